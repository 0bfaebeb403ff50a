"""Sensors of devices and of the host, read beside the samples."""
