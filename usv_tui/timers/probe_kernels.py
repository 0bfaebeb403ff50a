"""One-thread kernels that write the cycle counter, a timer of constant rate, and where they ran.

Needs triton at import; `timers.probe` imports it only where triton is installed. The counters are
those of one multiprocessor (NVIDIA) or one chiplet (AMD), so readings are compared within one.
"""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def read_nvidia(out: tl.tensor) -> None:
    """Cycles, nanoseconds, multiprocessor."""
    cycles = tl.inline_asm_elementwise(
        "mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )
    ns = tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )
    unit = tl.inline_asm_elementwise(
        "mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )
    tl.store(out, cycles)
    tl.store(out + 1, ns)
    tl.store(out + 2, unit.to(tl.int64))


@triton.jit  # type: ignore[untyped-decorator]
def read_amd(out: tl.tensor) -> None:
    """Cycles, ticks of 10 ns, chiplet: for gfx942 and gfx950, which have several clocks."""
    cycles = tl.inline_asm_elementwise(
        "s_memtime $0\ns_waitcnt lgkmcnt(0)", "=s", [], dtype=tl.int64, is_pure=False, pack=1
    )
    ticks = tl.inline_asm_elementwise(
        "s_memrealtime $0\ns_waitcnt lgkmcnt(0)", "=s", [], dtype=tl.int64, is_pure=False, pack=1
    )
    unit = tl.inline_asm_elementwise(
        "s_getreg_b32 $0, hwreg(HW_REG_XCC_ID)", "=s", [], dtype=tl.int32, is_pure=False, pack=1
    )
    tl.store(out, cycles)
    tl.store(out + 1, ticks)
    tl.store(out + 2, unit.to(tl.int64))
