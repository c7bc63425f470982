"""Devices that weights are read on. `open_device` is the way in."""
