"""Benchmark files for runs of the whole program, from well-behaved to hopeless."""

HEAD = """
import ctypes, itertools, os, subprocess, sys, threading, time
from usv_tui import benchmark

@benchmark
def good():
    return lambda: sum(range(5_000))
"""


def late(action: str, at: int = 150) -> str:
    """A file whose row `bad` works for a while and then does something at every call."""
    body = "\n".join(f"            {line}" for line in action.strip().splitlines())
    return f"""{HEAD}

@benchmark
def bad():
    count = itertools.count(1)

    def fn():
        call = next(count)
        if call < {at}:
            return sum(range(5_000))
        else:
{body}

    return fn
"""


TWO = f"""{HEAD}

@benchmark(params={{"n": [3_000, 6_000]}}, baseline={{"n": 3_000}}, flops=lambda n: n)
def total(n):
    return lambda: sum(range(n))
"""
"""Three rows: `good`, and two of a group with a baseline."""
HANG = 'print("hanging", flush=True)\nthreading.Event().wait(600)'
