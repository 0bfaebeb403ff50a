"""The shape of tritonbench."""
