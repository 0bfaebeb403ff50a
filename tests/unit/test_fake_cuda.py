"""The fake `torch.cuda` follows the documented semantics, so that what passes on it may be true."""

import threading
import warnings

import numpy as np
import pytest

from tests.fakes import fake_cuda
from tests.fakes.fake_cuda import Costs, FakeTorch

MS = 1_000_000


def pair(torch: FakeTorch, ns: int) -> tuple[object, object]:
    """Two timing events around a kernel."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    torch.kernel(ns)
    end.record()
    return start, end


def test_elapsed_time_before_completion_is_an_error() -> None:
    """A pair that the device has not passed cannot be read; after a wait it can."""
    torch = FakeTorch()
    start, end = pair(torch, 5 * MS)

    assert not end.query()
    with pytest.raises(RuntimeError, match="must be completed"):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(5.0, rel=1e-3)


def test_elapsed_time_wants_timing_events_that_were_recorded() -> None:
    """Events without timing, and events that were never recorded, are a ValueError."""
    torch = FakeTorch()
    plain, timed = torch.cuda.Event(), torch.cuda.Event(enable_timing=True)

    assert timed.query()
    with pytest.raises(ValueError, match="enable_timing"):
        plain.elapsed_time(timed)
    with pytest.raises(ValueError, match="must be recorded"):
        timed.elapsed_time(torch.cuda.Event(enable_timing=True))


def test_elapsed_time_is_a_coarse_float32() -> None:
    """The result has 24 bits of milliseconds in steps of the device's clock."""
    torch = FakeTorch(tick_ns=500)
    start, end = pair(torch, 1_234_567)
    torch.cuda.synchronize()

    ms = start.elapsed_time(end)

    assert ms == float(np.float32(ms))
    assert round(ms * 1e6) % 500 == 0


def test_host_runs_ahead_of_the_device() -> None:
    """Launching costs the host microseconds, whatever the kernel takes."""
    torch = FakeTorch()
    before_ns = torch.now_ns()

    torch.kernel(100 * MS)

    assert torch.now_ns() - before_ns == torch.costs.launch_ns + torch.costs.stream_ns
    torch.cuda.synchronize()
    assert torch.now_ns() - before_ns > 100 * MS


def test_full_launch_queue_holds_the_host() -> None:
    """The launch beyond the queue's length waits for an entry to become free."""
    torch = FakeTorch(launch_queue=4)
    for _ in range(4):
        torch.kernel(10 * MS)
    before_ns = torch.now_ns()

    torch.kernel(10 * MS)

    assert torch.now_ns() - before_ns > 9 * MS


def test_streams_overlap_until_one_waits_for_the_other() -> None:
    """Two streams run side by side; a wait orders them."""
    torch = FakeTorch()
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    torch.kernel(10 * MS, stream=a)
    torch.kernel(10 * MS, stream=b)
    assert abs(a.free_ns - b.free_ns) < MS

    b.wait_stream(a)
    torch.kernel(10 * MS, stream=a)
    done = torch.cuda.Event()
    done.record(a)
    b.wait_event(done)
    torch.kernel(10 * MS, stream=b)

    assert b.free_ns - a.free_ns == pytest.approx(10 * MS, rel=0.01)


def test_current_stream_and_device_are_per_thread() -> None:
    """What one thread chooses is not what another one gets."""
    torch = FakeTorch(devices=2)
    side = torch.cuda.Stream()
    torch.cuda.set_stream(side)
    torch.cuda.set_device(1)
    seen: list[object] = []

    thread = threading.Thread(
        target=lambda: seen.extend([torch.cuda.current_stream(), torch.cuda.current_device()])
    )
    thread.start()
    thread.join()

    assert torch.cuda.current_stream() is side
    assert seen == [torch.default_stream(0), 0]


def test_event_belongs_to_the_device_that_recorded_it_first() -> None:
    """Recording it on another device's stream is an error that names both."""
    torch = FakeTorch(devices=2)
    event = torch.cuda.Event()
    event.record()
    torch.cuda.set_device(1)

    with pytest.raises(RuntimeError, match="Event device 0 does not match"):
        event.record()


def test_sync_debug_mode_warns_and_raises_at_what_it_covers() -> None:
    """A read-back and a stream's synchronise are covered, a device-wide one is not."""
    torch = FakeTorch()
    x = torch.empty(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        x.item()
        torch.cuda.current_stream().synchronize()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
    texts = [str(w.message) for w in caught]

    assert texts.count(fake_cuda.SYNC_WARNING) == 2
    with pytest.raises(RuntimeError, match="synchronizing CUDA operation"):
        x.item()


def test_a_capture_records_and_does_not_run() -> None:
    """Captured kernels run at the replay, and only those that can be captured."""
    torch = FakeTorch()
    ran: list[str] = []
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        graph.capture_begin()
        torch.kernel(MS, effect=lambda: ran.append("kept"))
        torch.kernel(MS, effect=lambda: ran.append("lost"), is_capturable=False)
        graph.capture_end()
    assert ran == []

    graph.replay()

    assert ran == ["kept"]


def test_a_wait_inside_a_capture_breaks_it() -> None:
    """The wait raises, the end of the capture raises, and the stream is usable again."""
    torch = FakeTorch()
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        graph.capture_begin()
        with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
            torch.cuda.synchronize()
        with pytest.raises(RuntimeError, match="previous error during capture"):
            graph.capture_end()
        assert not torch.cuda.is_current_stream_capturing()


def test_a_capture_needs_a_stream_of_its_own() -> None:
    """The default stream cannot be captured."""
    torch = FakeTorch()

    with pytest.raises(RuntimeError, match="non-default stream"):
        torch.cuda.CUDAGraph().capture_begin()


def test_spin_takes_its_cycles_at_the_clock_of_the_moment() -> None:
    """The same cycles take twice as long at half the clock."""
    took = []
    for mhz in (2000, 1000):
        torch = FakeTorch(sm_mhz=mhz)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        torch.cuda._sleep(10_000_000)
        end.record()
        torch.cuda.synchronize()
        took.append(start.elapsed_time(end))

    assert took == pytest.approx([5.0, 10.0], rel=2e-3)


def test_cache_holds_what_was_touched_last() -> None:
    """A second touch is quick until something as large as the cache has been touched."""
    torch = FakeTorch(l2_bytes=50 << 20, costs=Costs(launch_ns=1))
    data, big = torch.empty(20 << 20, np.uint8), torch.empty(60 << 20, np.uint8)
    lengths = []
    for touched in (data, data, big, data):
        torch.kernel(0, touches=[touched])
        begin, end = torch.launched[-1]
        lengths.append(end - begin)

    assert lengths[0] == pytest.approx((20 << 20) / 3000, rel=0.01)
    assert lengths[1] == 0
    assert lengths[3] == lengths[0]


def test_memory_is_given_back_when_a_tensor_dies() -> None:
    """Allocated bytes follow the living tensors; beyond the card's memory there is an error."""
    torch = FakeTorch(memory_bytes=1000)
    tensor = torch.empty(200, np.float32)
    assert torch.cuda.memory_allocated() == 800

    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(100, np.float32)
    del tensor

    assert torch.cuda.memory_allocated() == 0
