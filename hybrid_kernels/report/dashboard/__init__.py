"""The pages that asv publish adds."""
