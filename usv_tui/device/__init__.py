"""Telemetry and clock control of the measured device."""
