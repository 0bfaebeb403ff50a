"""Time GPU kernels in an interleaved loop beside live clock, temperature and power."""
