"""A namespace of NVIDIA's."""
