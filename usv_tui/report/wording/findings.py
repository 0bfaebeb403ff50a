"""Self-diagnosis in words: a line for each code."""

from collections.abc import Callable, Mapping
from typing import Any

from usv_tui.codes import Code


def _us(value: Any) -> str:
    return f"{float(value) / 1e3:.4g} µs"


def _crowd(e: Mapping[str, Any]) -> str:
    """`, load 6 on 2 cores: cc1plus, python`, as far as it is known."""
    load, cores = e.get("load"), e.get("cores")
    names = [str(name) for name in e.get("running") or ()]
    if not isinstance(load, int | float) or not isinstance(cores, int):
        return ""
    whom = f": {', '.join(names)}" if names else ""
    return f", load {load:.3g} on {cores} core{'s' if cores != 1 else ''}{whom}"


def _share(value: Any) -> str:
    return f"{float(value) * 100:.3g} %"


def _mib(value: Any) -> str:
    return f"{float(value) / (1 << 20):.4g} MiB"


def _roof(e: Mapping[str, Any]) -> str:
    if "tflops" in e:
        return (
            f"implausible: {e['tflops']:.4g} TFLOP/s, above {e['limit_tflops']:.4g} "
            f"({e['source']}): is `flops` right, and does it run in the timed stream?"
        )
    return (
        f"implausible: {e['gbps']:.4g} GB/s, above {e['limit_gbps']:.4g} "
        f"({e['source']}): is `bytes` right, and does it run in the timed stream?"
    )


def _fits(e: Mapping[str, Any]) -> str:
    if "rotated_bytes" in e:
        return (
            f"the rotated inputs ({_mib(e['rotated_bytes'])}) stay in the cache "
            f"({_mib(e['cache_bytes'])}): warm; rotate over more than twice of it"
        )
    return (
        f"{e['gbps']:.4g} GB/s is more than DRAM's {e['dram_gbps']:.4g}: "
        "the data come from the cache"
    )


def _alone(e: Mapping[str, Any]) -> str:
    """The time alone beside the time here, where both are known."""
    if not e.get("alone_ns"):
        return ""
    return f"alone {_us(e['alone_ns'])}, here {_us(e['here_ns'])}"


def _not_warm(e: Mapping[str, Any]) -> str:
    both = _alone(e)
    calls = f" after {e['refill']} untimed call(s)" if e["refill"] else ""
    return f"not warm: {e['reason']}{calls}" + (f" ({both})" if both else "")


def _window(e: Mapping[str, Any]) -> str:
    widths = ", ".join(f"{name} {_share(width)}" for name, width in e["widths"].items())
    why = f": a ratio's spread after a second of rounds is {widths}" if widths else ""
    return f"windows of {float(e['window_s']) * 1e3:g} ms{why}"


def _syncs(e: Mapping[str, Any]) -> str:
    return f"fn synchronises ({e['seen_by']}): its time includes the host"


def _grows(e: Mapping[str, Any]) -> str:
    if "bytes_per_s" not in e:
        return f"every call leaves {e['bytes_per_call']} bytes allocated"
    where = "the device's memory" if e["where"] == "device" else "the process's memory"
    rate = f"{float(e['bytes_per_s']) / 1e6:.3g} ± {float(e['error']) / 1e6:.2g} MB/s"
    if "bytes_per_call" in e:
        return f"{where} grows by {rate}; a call of this row leaves {e['bytes_per_call']} bytes"
    if "rows" not in e:
        return f"{where} grows by {rate}"
    return f"{where} grows by {rate}, and none of the {e['rows']} rows does so when called alone"


SENTENCES: Mapping[Code, Callable[[Mapping[str, Any]], str]] = {
    Code.COMPILING_INSIDE: lambda e: (
        f"{e['windows']} window(s) of up to {e['longest_ns'] / 1e6:.4g} ms with the host busy: "
        "something was compiled or tuned while it was timed, or the host was held up"
    ),
    Code.CPU_BOUND: lambda e: (
        f"CPU-bound: in {_share(e['starved_share'])} of the windows the device waited for the host "
        f"(host {_us(e['host_ns'])}, window {_us(e['window_ns'])}); try {e['remedy']}"
    ),
    Code.SYNCHRONISES: _syncs,
    Code.WORK_OUTSIDE_THE_STREAM: lambda e: (
        f"work outside the timed stream: {_us(e['after_end_ns'])} of it after the end event"
        + (f" of {e['calls']} calls" if e.get("calls", 1) > 1 else "")
        + f" (window {_us(e['window_ns'])}); give the benchmark its `stream`"
    ),
    Code.BELOW_TIMER_FLOOR: lambda e: (
        f"a window of {_us(e['window_ns'])} is within 3x of an empty one ({_us(e['floor_ns'])}); "
        f"try {e['remedy']}"
    ),
    Code.FASTER_THAN_ROOFLINE: _roof,
    Code.COLD_THAT_IS_WARM: lambda e: f"cold was asked for, but {e['reason']}",
    Code.FITS_IN_CACHE: _fits,
    Code.MEMORY_GROWS: _grows,
    Code.OFF_THE_CPU: lambda e: (
        f"{_share(e['off_share'])} of its time is spent off the CPU: it sleeps, or waits for other "
        f"threads or for I/O ({e['waited_per_window']:.3g} times a window)"
    ),
    Code.HOST_BUSY: lambda e: (
        f"{_share(e['off_share'])} of its time somebody else had its CPU "
        f"({e['preempted_per_window']:.3g} switches a window): the host is busy{_crowd(e)}"
    ),
    Code.PAGE_FAULTS: lambda e: (
        f"{e['faults_per_window']:.3g} page faults a window, about {_share(e['share'])} of its time"
        + (f", {e['from_disk']} of them read from disk" if e["from_disk"] else "")
        + ": memory is taken from the system and given back in each call"
    ),
    Code.WARNED: lambda e: f"{e['kind']}: {e['text']}",
    Code.STALLS: lambda e: (
        f"{e['count']} window(s) over 20x the median, the longest {e['longest_ns'] / 1e6:.4g} ms"
    ),
    Code.TWO_MODES: lambda e: (
        f"two modes: {_us(e['low_ns'])} and {_us(e['high_ns'])} "
        f"({_share(e['share_high'])} in the slower one)"
    ),
    Code.CACHED_RESULT: lambda e: (
        f"{_share(e['share_at_floor'])} of the windows are as short as empty ones: "
        "is a result kept, or nothing done?"
    ),
    Code.LAUNCH_BLOCKING: lambda e: (
        f"{e['variable']}={e['value']}: every launch waits, so the times describe something else"
    ),
    Code.PROFILER_ON: lambda _: "a profiler is active: the times include it",
    Code.ANOMALY_DETECTION: lambda _: "autograd's anomaly detection is on: the times include it",
    Code.NO_BLOCKER: lambda e: f"no blocker: {e['reason']}",
    Code.GRAPH_REFUSED: lambda e: f"timed eagerly, not as a graph: {e['reason']}",
    Code.GRAPH_DIFFERS: lambda e: f"timed eagerly, not as a graph: {e['reason']}",
    Code.PHASES_HIDDEN: lambda e: e["reason"],
    Code.ABILITIES_MISSING: lambda e: (
        "some functions of torch are missing here: " + "; ".join(e["reasons"])
    ),
    Code.CACHE_NOT_WARM: _not_warm,
    Code.NOT_AS_ALONE: lambda e: (
        f"{_alone(e)}: its neighbours leave it other caches, clocks or memory than it has by itself"
    ),
    Code.INNER_DIFFERS: lambda e: (
        f"{e['inner']} call(s) a window, and {e['base_inner']} in those of its baseline "
        f"{e['base']}: what a window costs by itself is divided differently"
    ),
    Code.WINDOW_CHOSEN: _window,
    Code.UNPROVEN: lambda e: e["reason"],
    Code.HOST_ONLY: lambda e: (
        f"its time is the host's: {_us(e['host_ns'])} of a call are spent there, and "
        f"{_us(e['window_ns'])} in the stream (an empty window: {_us(e['floor_ns'])}); "
        "--timer wall times the host"
    ),
    Code.HOST_CLOCK_WAITS: lambda e: (
        f"work on {' and '.join(e['kinds'])} goes on after a call: the host's clock waits for it "
        "at both ends of a window"
        + (
            f"; --device {e['devices'][0]} times it better, by its events"
            if e.get("devices")
            else ""
        )
        + (
            "; until now it did not, and what was timed before is left out"
            if e.get("is_late")
            else ""
        )
        + (
            f"; nothing here tells whether synchronize() of {' and '.join(e['unsure'])} does wait"
            if e.get("unsure")
            else ""
        )
    ),
    Code.NOT_WAITED_FOR: lambda e: f"NOT BELIEVABLE: {e['reason']}",
    Code.OTHER_DEVICE: lambda e: (
        f"it also holds tensors on {', '.join(e['devices'])}: what runs there is in none of the "
        f"times of {e['home']}"
    ),
    Code.ASYNCHRONOUS_LIBRARY: lambda e: (
        f"{e['library']} is loaded: its calls return before their work is done, and the host's "
        f"clock does not wait for it; call {e['call']} in fn"
    ),
    Code.CLOCK_REPLACED: lambda e: (
        f"NOT BELIEVABLE: the file replaced {', '.join(e['what'])}, which was put back"
    ),
    Code.CLOCK_PARTED: lambda e: (
        f"NOT BELIEVABLE: the clock of the measuring process went {abs(float(e['apart_s'])):.2g} s "
        f"{'ahead of' if float(e['apart_s']) < 0 else 'behind'} that of the program in "
        f"{float(e['in_s']):.0f} s"
    ),
    Code.LIBRARY_REPLACED: lambda e: (
        f"NOT BELIEVABLE: the file replaced {', '.join(e['what'])}, which was put back"
    ),
    Code.INTERPRETER_WATCHED: lambda e: (
        f"NOT BELIEVABLE: the file hooked itself into the interpreter by {', '.join(e['what'])}: "
        "its code runs between the clock and the callable"
    ),
    Code.FEW_LOOKS: lambda e: (
        f"{e['looks']} look(s) at it are too few to tell whether it keeps results: a longer run"
    ),
    Code.WORKS_IN_TURNS: lambda e: (
        f"NOT BELIEVABLE: {e['share']:.0%} of its time is in every {e['period']}th window: the "
        f"median says {_us(e['median_ns'])}, the mean {_us(e['mean_ns'])}"
    ),
    Code.TIME_FALLS: lambda e: (
        f"NOT BELIEVABLE: after window {e['window']} it takes {_us(e['after_ns'])} and no longer "
        f"{_us(e['before_ns'])}: does it still do its work?"
    ),
    Code.NO_GROWTH: lambda e: (
        f"NOT BELIEVABLE: {e['work']:.3g} times the work takes it {e['time']:.3g} times as long, "
        f"and its baseline {e['base']:.3g} times"
    ),
    Code.INPUTS_DIFFER: lambda e: (
        f"NOT BELIEVABLE: its inputs have {e['elements']:,} figures, its baseline's {e['base']:,}: "
        "that is not the same work"
    ),
    Code.NO_RESULT: lambda _: (
        "NOT BELIEVABLE: it returns nothing, and its baseline returns something: nothing can be "
        "compared"
    ),
    Code.WORK_OUTSIDE_THE_WINDOW: lambda e: (
        f"NOT BELIEVABLE: with each window of {_us(e['window_ns'])} goes {_us(e['outside_ns'])} "
        "that is not in it"
    ),
    Code.NOT_AUDITED: lambda e: f"its results cannot be looked at ({e['reason']})",
    Code.INPUTS_FIXED: lambda _: (
        "every call has the same inputs, so a result that is kept is not found out by its values: "
        "give inputs="
    ),
    Code.NOTHING_WRITTEN: lambda _: (
        "NOT BELIEVABLE: its result was overwritten before a timed call, and the call left it so: "
        "it did no work"
    ),
    Code.FASTER_AGAIN: lambda e: (
        f"NOT BELIEVABLE: {_us(e['fresh_ns'])} on fresh inputs and {_us(e['again_ns'])} on the "
        f"same ones again ({e['looks']} looks): it keeps results"
    ),
    Code.UNFINISHED_RESULT: lambda _: (
        "NOT BELIEVABLE: its result still changes after the timed window: the work goes on in a "
        "thread, another stream or a pool"
    ),
    Code.LAZY_RESULT: lambda _: (
        "NOT BELIEVABLE: what it returns is worked out when it is read, after the timed window"
    ),
}
"""A line for each code that has none elsewhere, for the room that words notices."""
