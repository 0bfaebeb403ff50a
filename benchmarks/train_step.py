"""A training step of a plain network, in phases, with three ways to run the optimiser.

usv-tui benchmarks/train_step.py
"""

import torch
from torch import nn

from usv_tui import benchmark, phase


def sizes(device):
    """Rows of the batch, width and number of the layers."""
    return (64, 256, 4) if device == "cpu" else (4096, 4096, 8)


def flops(device):
    """6 * batch * weights: 2 forward, 2 for the inputs' and 2 for the weights' gradients.

    The first layer needs no gradient of its inputs; that it is counted is usual.
    """
    batch, width, layers = sizes(device)
    return 6 * batch * layers * width * width


def options(way):
    """AdamW's switches for one of its three implementations."""
    return {"foreach": way == "foreach", "fused": way == "fused"}


def skip(way, device):
    """Not every torch has every implementation on every device."""
    try:
        weight = nn.Parameter(torch.zeros(2, device=device))
        weight.grad = torch.zeros_like(weight)
        torch.optim.AdamW([weight], **options(way)).step()
    except (RuntimeError, AssertionError) as error:
        return f"no {way} AdamW here: {str(error).splitlines()[0]}"
    return ""


@benchmark(
    params={"way": ["loop", "foreach", "fused"]},
    baseline={"way": "loop"},
    flops=flops,
    skip=skip,
)
def train_step(way, device):
    """Forward, backward, AdamW; gradients are set to None between the samples, untimed."""
    torch.manual_seed(0)
    batch, width, layers = sizes(device)
    stack = [nn.Sequential(nn.Linear(width, width, bias=False), nn.GELU()) for _ in range(layers)]
    model = nn.Sequential(*stack).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **options(way))
    inputs, targets = (torch.randn(batch, width, device=device) for _ in range(2))

    def step():
        with phase("forward"):
            loss = nn.functional.mse_loss(model(inputs), targets)
        with phase("backward"):
            loss.backward()
        with phase("optimizer"):
            optimizer.step()

    step.reset = optimizer.zero_grad
    return step
