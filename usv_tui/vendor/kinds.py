"""Whose device it is: the word that identities, sensors, controllers and undos agree on."""

from enum import StrEnum


class Vendor(StrEnum):
    """The kind of a device."""

    NVIDIA = "nvidia"
    AMD = "amd"
    CPU = "cpu"
    SIM = "sim"
