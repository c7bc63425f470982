"""Results on disk, from asv and elsewhere, as one tidy frame."""
