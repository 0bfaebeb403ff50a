"""Times of single calls in ms, as a list."""

import time


def sleep_after_kernel_run(execution_time):
    time.sleep(execution_time)


def bench_gpu_time(
    fn,
    dry_run_iters=None,
    repeat_iters=None,
    dry_run_time_ms=25,
    repeat_time_ms=100,
    sleep_after_run=False,
    enable_cupti=False,
    use_cuda_graph=False,
    num_iters_within_graph=10,
    input_args=(),
    input_kwargs=None,
    cold_l2_cache=True,
    aggregate_op=None,
):
    times = []
    for _ in range(repeat_iters or 3):
        begun = time.perf_counter()
        fn(*input_args, **(input_kwargs or {}))
        times.append((time.perf_counter() - begun) * 1e3)
        if sleep_after_run:
            sleep_after_kernel_run(100)
    return [aggregate_op(t) for t in times] if aggregate_op else times


def bench_gpu_time_with_cudagraph(fn, repeat_iters=None, input_args=(), input_kwargs=None):
    return bench_gpu_time(fn, None, repeat_iters, input_args=input_args, input_kwargs=input_kwargs)
