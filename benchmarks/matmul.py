"""Square matrix products in the formats that the device has.

usv-tui benchmarks/matmul.py
usv-tui benchmarks/matmul.py -k bfloat16
"""

from functools import lru_cache

import torch

from usv_tui import benchmark


def sizes(device):
    """Small enough for a round in milliseconds on a CPU, large enough to fill a GPU."""
    return [128, 256, 512] if device == "cpu" else [1024, 2048, 4096, 8192]


def formats(device):
    """On a CPU half precision is emulated in most machines, and an order slower."""
    if device == "cpu":
        return [torch.float32, torch.bfloat16]
    return [torch.float32, torch.float16, torch.bfloat16]


@lru_cache
def refusal(dtype, device):
    """Why the device cannot multiply in this format: tried once."""
    try:
        a = torch.zeros(16, 16, dtype=dtype, device=device)
        torch.mm(a, a)
    except (RuntimeError, AssertionError) as error:
        return f"no product of {dtype} here: {str(error).splitlines()[0]}"
    return ""


def check(result, baseline):
    """As the product in single precision, within what the format holds of sums of this length."""
    error = (result.float() - baseline).abs().max().item()
    assert error <= 0.02 * baseline.abs().max().item(), f"differs by up to {error:.3g}"


@benchmark(
    params=lambda device: {"n": sizes(device), "dtype": formats(device)},
    baseline={"dtype": torch.float32},
    flops=lambda n: 2 * n**3,  # n*n results of n products and n sums each
    bytes=lambda n, dtype: 3 * n * n * dtype.itemsize,  # A and B read, C written, each once
    skip=refusal,
    check=check,
)
def matmul(n, dtype, device):
    """C = A B into memory that is there already."""
    generator = torch.Generator(device).manual_seed(n)
    a, b = (torch.randn(n, n, generator=generator, device=device).to(dtype) for _ in range(2))
    c = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=c)
