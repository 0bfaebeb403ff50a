"""Self-diagnosis in words: a line for each code."""

from collections.abc import Callable, Mapping
from typing import Any


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


SENTENCES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "compiling inside": lambda e: (
        f"{e['windows']} window(s) of up to {e['longest_ns'] / 1e6:.4g} ms with the host busy: "
        "something was compiled or tuned while it was timed, or the host was held up"
    ),
    "CPU-bound": lambda e: (
        f"CPU-bound: in {_share(e['starved_share'])} of the windows the device waited for the host "
        f"(host {_us(e['host_ns'])}, window {_us(e['window_ns'])}); try {e['remedy']}"
    ),
    "synchronises": _syncs,
    "work outside the stream": lambda e: (
        f"work outside the timed stream: {_us(e['after_end_ns'])} of it after the end event"
        + (f" of {e['calls']} calls" if e.get("calls", 1) > 1 else "")
        + f" (window {_us(e['window_ns'])}); give the benchmark its `stream`"
    ),
    "below timer floor": lambda e: (
        f"a window of {_us(e['window_ns'])} is within 3x of an empty one ({_us(e['floor_ns'])}); "
        f"try {e['remedy']}"
    ),
    "faster than roofline": _roof,
    "cold that is warm": lambda e: f"cold was asked for, but {e['reason']}",
    "fits in cache": _fits,
    "memory grows": _grows,
    "off the CPU": lambda e: (
        f"{_share(e['off_share'])} of its time is spent off the CPU: it sleeps, or waits for other "
        f"threads or for I/O ({e['waited_per_window']:.3g} times a window)"
    ),
    "host busy": lambda e: (
        f"{_share(e['off_share'])} of its time somebody else had its CPU "
        f"({e['preempted_per_window']:.3g} switches a window): the host is busy{_crowd(e)}"
    ),
    "page faults": lambda e: (
        f"{e['faults_per_window']:.3g} page faults a window, about {_share(e['share'])} of its time"
        + (f", {e['from_disk']} of them read from disk" if e["from_disk"] else "")
        + ": memory is taken from the system and given back in each call"
    ),
    "warned": lambda e: f"{e['kind']}: {e['text']}",
    "stalls": lambda e: (
        f"{e['count']} window(s) over 20x the median, the longest {e['longest_ns'] / 1e6:.4g} ms"
    ),
    "two modes": lambda e: (
        f"two modes: {_us(e['low_ns'])} and {_us(e['high_ns'])} "
        f"({_share(e['share_high'])} in the slower one)"
    ),
    "cached result": lambda e: (
        f"{_share(e['share_at_floor'])} of the windows are as short as empty ones: "
        "is a result kept, or nothing done?"
    ),
    "launch blocking": lambda e: (
        f"{e['variable']}={e['value']}: every launch waits, so the times describe something else"
    ),
    "profiler on": lambda _: "a profiler is active: the times include it",
    "anomaly detection": lambda _: "autograd's anomaly detection is on: the times include it",
    "no blocker": lambda e: f"no blocker: {e['reason']}",
    "graph refused": lambda e: f"timed eagerly, not as a graph: {e['reason']}",
    "graph differs": lambda e: f"timed eagerly, not as a graph: {e['reason']}",
    "phases hidden": lambda e: e["reason"],
    "abilities missing": lambda e: (
        "some functions of torch are missing here: " + "; ".join(e["reasons"])
    ),
    "cache not warm": _not_warm,
    "not as alone": lambda e: (
        f"{_alone(e)}: its neighbours leave it other caches, clocks or memory than it has by itself"
    ),
    "inner differs": lambda e: (
        f"{e['inner']} call(s) a window, and {e['base_inner']} in those of its baseline "
        f"{e['base']}: what a window costs by itself is divided differently"
    ),
    "window chosen": _window,
    "unproven": lambda e: e["reason"],
    "host only": lambda e: (
        f"its time is the host's: {_us(e['host_ns'])} of a call are spent there, and "
        f"{_us(e['window_ns'])} in the stream (an empty window: {_us(e['floor_ns'])}); "
        "--timer wall times the host"
    ),
    "host clock waits": lambda e: (
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
    "not waited for": lambda e: f"NOT BELIEVABLE: {e['reason']}",
    "other device": lambda e: (
        f"it also holds tensors on {', '.join(e['devices'])}: what runs there is in none of the "
        f"times of {e['home']}"
    ),
    "asynchronous library": lambda e: (
        f"{e['library']} is loaded: its calls return before their work is done, and the host's "
        f"clock does not wait for it; call {e['call']} in fn"
    ),
    "clock replaced": lambda e: (
        f"NOT BELIEVABLE: the file replaced {', '.join(e['what'])}, which was put back"
    ),
    "library replaced": lambda e: (
        f"NOT BELIEVABLE: the file replaced {', '.join(e['what'])}, which was put back"
    ),
    "interpreter watched": lambda e: (
        f"NOT BELIEVABLE: the file hooked itself into the interpreter by {', '.join(e['what'])}: "
        "its code runs between the clock and the callable"
    ),
    "few looks": lambda e: (
        f"{e['looks']} look(s) at it are too few to tell whether it keeps results: a longer run"
    ),
    "works in turns": lambda e: (
        f"NOT BELIEVABLE: {e['share']:.0%} of its time is in every {e['period']}th window: the "
        f"median says {_us(e['median_ns'])}, the mean {_us(e['mean_ns'])}"
    ),
    "time falls": lambda e: (
        f"NOT BELIEVABLE: after window {e['window']} it takes {_us(e['after_ns'])} and no longer "
        f"{_us(e['before_ns'])}: does it still do its work?"
    ),
    "no growth": lambda e: (
        f"NOT BELIEVABLE: {e['work']:.3g} times the work takes it {e['time']:.3g} times as long, "
        f"and its baseline {e['base']:.3g} times"
    ),
    "no result": lambda _: (
        "NOT BELIEVABLE: it returns nothing, and its baseline returns something: nothing can be "
        "compared"
    ),
    "work outside the window": lambda e: (
        f"NOT BELIEVABLE: with each window of {_us(e['window_ns'])} goes {_us(e['outside_ns'])} "
        "that is not in it"
    ),
    "not audited": lambda e: f"its results cannot be looked at ({e['reason']})",
    "inputs fixed": lambda _: (
        "every call has the same inputs, so a result that is kept is not found out by its values: "
        "give inputs="
    ),
    "nothing written": lambda _: (
        "NOT BELIEVABLE: its result was overwritten before a timed call, and the call left it so: "
        "it did no work"
    ),
    "faster again": lambda e: (
        f"NOT BELIEVABLE: {_us(e['fresh_ns'])} on fresh inputs and {_us(e['again_ns'])} on the "
        f"same ones again ({e['looks']} looks): it keeps results"
    ),
    "unfinished result": lambda _: (
        "NOT BELIEVABLE: its result still changes after the timed window: the work goes on in a "
        "thread, another stream or a pool"
    ),
    "lazy result": lambda _: (
        "NOT BELIEVABLE: what it returns is worked out when it is read, after the timed window"
    ),
}
"""A line for each code that has none elsewhere, for the room that words notices."""
