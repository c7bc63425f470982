"""The int4 layout that is measured, the models whose shapes matter, and the float64 oracle."""
