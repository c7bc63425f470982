"""The kernels, each source with its versions and their ideas at the head, and what launches them."""
