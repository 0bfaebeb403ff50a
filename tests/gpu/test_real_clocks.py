"""A lock on a real GPU: set, watched under load, given back. Skipped without the rights."""

import time

import pytest

from usv_tui.errors import ClockRefused, DeviceError
from usv_tui.library.fixed import fixed_clocks
from usv_tui.model import ClockHold
from usv_tui.seams import Tier
from usv_tui.telemetry.identity import find_telemetry

pytestmark = pytest.mark.gpu
WATCH_S = 13.0


def test_a_real_lock_is_verified_under_load_and_given_back() -> None:
    """Held, or not held with its reason; never still pending after ten seconds of load."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    source, how = find_telemetry("cuda:0")
    source.open()
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    try:
        with fixed_clocks(device=0) as lease:
            end = time.monotonic() + WATCH_S
            while time.monotonic() < end:
                for _ in range(20):
                    torch.matmul(matrix, matrix)
                torch.cuda.synchronize()
                lease.feed(source.read(Tier.ALL))
            print(how, lease.notes, lease.state.evidence)
            hold = lease.state.hold
    except (ClockRefused, DeviceError) as error:
        pytest.skip(str(error))
    finally:
        source.close()

    assert hold in {ClockHold.LOCKED, ClockHold.NOT_HELD}
    assert lease.state.hold is ClockHold.FREE
