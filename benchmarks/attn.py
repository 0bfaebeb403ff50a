"""Scaled-dot-product attention: torch's kernels against softmax(Q K^T / sqrt(D)) V written out.

usv-tui benchmarks/attn.py
usv-tui benchmarks/attn.py -k seq=512 -k causal=True
"""

import math
import warnings
from functools import lru_cache

import torch
from torch.backends import cuda as backends
from torch.nn.functional import scaled_dot_product_attention as sdpa

from usv_tui import benchmark

HEAD_DIM = 64


def sizes(device):
    """Batch x sequence is the same for every length, so that all rows do comparable work."""
    if device == "cpu":
        return {"seqs": [128, 512], "tokens": 512, "heads": 4, "dtype": torch.float32}
    return {"seqs": [1024, 4096, 8192], "tokens": 16384, "heads": 16, "dtype": torch.bfloat16}


def shape(seq, device):
    """Batch, heads, sequence, head dimension."""
    size = sizes(device)
    return max(1, size["tokens"] // seq), size["heads"], seq, HEAD_DIM


def flops(seq, causal, device):
    """Two matrix products of 2*B*H*S*S*D each; a causal mask needs half of them.

    The softmax is not counted, as is usual. A kernel that computes what the mask throws away shows
    fewer TFLOP/s for it.
    """
    b, h, s, d = shape(seq, device)
    return 4 * b * h * s * s * d * (0.5 if causal else 1.0)


def moved(seq, device):
    """Q, K and V are read once and the output is written once: 4*B*H*S*D elements.

    What is written and read again in between (the S x S scores of the naive way) is not counted.
    """
    return 4 * math.prod(shape(seq, device)) * sizes(device)["dtype"].itemsize


KERNELS = {
    "math": backends.enable_math_sdp,
    "efficient": backends.enable_mem_efficient_sdp,
    "flash": backends.enable_flash_sdp,
}
if hasattr(backends, "enable_cudnn_sdp"):  # since torch 2.5
    KERNELS["cudnn"] = backends.enable_cudnn_sdp


def use_only(kind):
    """Let scaled_dot_product_attention take this kernel or fail; about a microsecond.

    torch's context manager does the same in some forty, which would be timed.
    """
    for name, enable in KERNELS.items():
        enable(name == kind)


@lru_cache
def refusal(kind, device, causal):
    """Why this device has no such kernel: tried once on a small input."""
    try:
        q = torch.zeros(1, 1, 64, HEAD_DIM, dtype=sizes(device)["dtype"], device=device)
        if kind == "naive":
            return ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch explains each kernel that it does not take
            use_only(kind)
            sdpa(q, q, q, is_causal=causal)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split(". ")[0]
        return f"torch {torch.__version__} has no {kind} kernel on {device}: {reason}"
    finally:
        for enable in KERNELS.values():
            enable(True)
    return ""


def skip(seq, causal, kind, device):
    """No such kernel, or no room for the scores that the naive way keeps (three copies)."""
    reason = refusal(kind, device, causal)
    if reason or kind not in ("naive", "math") or device == "cpu":
        return reason
    b, h, s, _ = shape(seq, device)
    needed = 3 * b * h * s * s * sizes(device)["dtype"].itemsize
    free, _ = torch.cuda.mem_get_info(device)
    if needed > free:
        return f"needs {needed / 2**30:.1f} GiB for the scores, {free / 2**30:.1f} are free"
    return ""


def check(result, baseline):
    """The same numbers as the naive way, within what the format can hold."""
    tolerance = 1e-4 if result.dtype == torch.float32 else 2e-2
    torch.testing.assert_close(result, baseline, rtol=tolerance, atol=tolerance)


@benchmark(
    params=lambda device: {
        "seq": sizes(device)["seqs"],
        "causal": [False, True],
        "kind": ["naive", "math", "efficient", "flash"],
    },
    baseline={"kind": "naive"},
    flops=flops,
    bytes=moved,
    skip=skip,
    check=check,
)
def attention(seq, causal, kind, device):
    """One forward pass; no input wants a gradient, so none is prepared."""
    generator = torch.Generator(device).manual_seed(seq)
    # Random inputs: constants would draw less power, and so run at a higher clock.
    q, k, v = (
        torch.randn(
            shape(seq, device),
            generator=generator,
            device=device,
            dtype=sizes(device)["dtype"],
        )
        for _ in range(3)
    )
    if kind == "naive":
        return naive(q, k, v, causal)

    def fused():
        use_only(kind)
        return sdpa(q, k, v, is_causal=causal)

    return fused


def naive(q, k, v, causal):
    """The formula as it is written, with the scores in memory."""
    scale = 1 / math.sqrt(q.shape[-1])
    length = q.shape[-2]
    mask = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)

    def written_out():
        scores = (q @ k.transpose(-2, -1)) * scale
        if causal:
            scores = scores.masked_fill(mask, float("-inf"))
        return scores.softmax(-1) @ v

    return written_out
