"""The shape of Triton, for scripts that time with it: no compiler in it."""

from triton import testing

__all__ = ["testing"]
