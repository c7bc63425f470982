"""Finished results as text, charts and documents: neither measures nor judges."""
