"""The stable codes of verdicts and findings: what each means, and what to do about it.

A code is a finding's name with hyphens. Programs may keep them: a code is never given another
meaning, and one that is no longer said stays explained.
"""

from collections.abc import Mapping
from typing import NamedTuple

from usv_tui.diagnosis.vocabulary import BADGES, DISBELIEVED


class Code(NamedTuple):
    """One code in words."""

    meaning: str
    remedy: str


def code_of(name: str) -> str:
    """The stable code of a finding's name."""
    return "-".join(name.lower().split())


CODES: Mapping[str, Code] = {
    # -- answers
    "measured": Code("the interval of the ratio tells the answer", "nothing"),
    "baseline": Code("the row that the others of its group are compared with", "nothing"),
    "no-baseline": Code("its group has no baseline", "give one row baseline=True"),
    "undecided": Code("the interval still holds more than one answer", "a longer run, or --until"),
    "still-moves": Code("the ratio itself changes in the run", "warm up longer, or lock the clock"),
    "no-sample": Code("no sample of it counts", "a longer run; see the row's state"),
    "failed": Code("it raised, hung or died, and is retired", "see its error in the evidence"),
    "baseline-failed": Code("its baseline has no sample", "mend the baseline"),
    "control-differs": Code(
        "the baseline timed twice differs from itself: no ratio of the run can be trusted",
        "an idle machine, a longer run, or a locked clock",
    ),
    # -- not believable
    "check": Code("its first result differs from the baseline's", "mend it, or widen the check"),
    "wrong-result": Code(
        "a result during the run differs from the baseline's on the same inputs",
        "it is right at first only, or now and then: mend it",
    ),
    "stale-result": Code(
        "it returned the result of earlier inputs", "do not keep results between calls"
    ),
    "nothing-written": Code(
        "its result was overwritten before a timed call, and the call left it so",
        "compute in each call; a result that is kept is not timed",
    ),
    "faster-again": Code(
        "on inputs that it has seen it has no work left, on fresh ones it has",
        "do not keep results by content, version or identity",
    ),
    "unfinished-result": Code(
        "its result still changes after the timed window",
        "wait for threads and pools in the callable, and give other streams as `stream`",
    ),
    "lazy-result": Code(
        "the work is done when the result is read", "evaluate the result inside the callable"
    ),
    "faster-than-roofline": Code(
        "more operations or bytes a second than this device can do",
        "are `flops` and `bytes` right, and is the work done inside the callable?",
    ),
    "work-outside-the-stream": Code(
        "work goes on after the end event of the window", "give the benchmark its `stream`"
    ),
    "clock-replaced": Code(
        "the file replaced a clock or a wait of Python's or torch's; it was put back",
        "do not patch time or torch in a benchmark file",
    ),
    "not-waited-for": Code(
        "nothing waits for the device, and the host's clock would time launches",
        "--device of torch's",
    ),
    "clock-parted": Code(
        "the measuring process's clock does not go with the program's", "do not bend time in a file"
    ),
    "library-replaced": Code(
        "the file replaced a function of Python's, torch's, numpy's or usv-tui's; it was put back",
        "change your own code, or a copy of the function under another name",
    ),
    "interpreter-watched": Code(
        "the file set a profile, trace or collection hook, which runs between clock and callable",
        "no sys.setprofile, sys.settrace or gc.callbacks in a benchmark file",
    ),
    "works-in-turns": Code(
        "every k-th call carries most of its time: the median is no time of its work",
        "time what belongs together in one call",
    ),
    "time-falls": Code(
        "from one window to the next it takes a fraction of its time, and stays there",
        "does it stop working after so many calls? If it compiles late, call it often in setup",
    ),
    "no-growth": Code(
        "with many times the work it takes no longer, while its baseline does",
        "give check= and inputs=, which show whether it does its work; are flops and bytes right?",
    ),
    "inputs-differ": Code(
        "its inputs are smaller than its baseline's: they are not the same work",
        "the same inputs= for all rows of a group, or another group",
    ),
    "no-result": Code(
        "it returns nothing, and its baseline returns something: nothing can be compared",
        "return the result",
    ),
    "work-outside-the-window": Code(
        "with each window goes time that is not in it: work in a hook, a finalizer or a thread",
        "do the work inside the callable",
    ),
    "coroutine": Code("it returned a coroutine: nothing ran", "run it inside the callable"),
    "generator": Code("it returned a generator: nothing ran", "exhaust it inside the callable"),
    "lazy": Code("it returned a map, filter or zip: nothing ran", "exhaust it in the callable"),
    "awaitable": Code("it returned what must be awaited: nothing waits", "wait in the callable"),
    "baseline-not-believable": Code("its baseline is not believable", "mend the baseline"),
    # -- of two versions
    "only-in-one": Code(
        "only one of two versions has this row, or has it under another name",
        "name it alike in both, to compare it",
    ),
    "foreign-code": Code(
        "modules of one version were imported from the other version's folder",
        "no absolute paths in sys.path; a worktree or folder that has them all",
    ),
    "version-refused": Code(
        "what was saved does not compile, or cannot be imported", "mend the line, and save again"
    ),
    # -- findings that do not take a verdict away
    "inputs-fixed": Code(
        "every call has the same inputs, so a kept result is not seen by its values", "give inputs="
    ),
    "inputs-restored": Code("it changes its arguments; they are put back untimed", "nothing"),
    "not-audited": Code("its results can be neither copied nor compared", "return plain tensors"),
    "mean-disagrees": Code(
        "most windows are faster than the baseline's, and a few so slow that all together are not",
        "does it work now and then only? An idle machine, or a longer run",
    ),
    "roofline-measured": Code("what this device was seen to do, once, in no window", "nothing"),
    "few-looks": Code(
        "there was no time to look whether it keeps results, so it is not called faster",
        "a longer run, or fewer rows",
    ),
    "audited": Code("how many looks at results were taken, and what they cost", "nothing"),
    "cached-result": Code(
        "most windows are as short as empty ones", "is a result kept, or nothing done?"
    ),
    "not-warmed-up": Code("its first windows differ from the rest", "a longer --warmup"),
    "compiling-inside": Code("something was compiled while it was timed", "call it once in setup"),
    "cpu-bound": Code("the device waited for the host", "--graph, --blocker or a larger --inner"),
    "synchronises": Code("it waits for the device", "do not read results inside the callable"),
    "below-timer-floor": Code("a window is hardly longer than an empty one", "a larger --inner"),
    "cold-that-is-warm": Code("cold was asked for, and most calls are warm", "--inner 1"),
    "fits-in-cache": Code("the data come from a cache", "rotate over more than twice its size"),
    "memory-grows": Code("calls leave memory behind", "free what a call makes"),
    "stalls": Code("some windows are over 20 times the median", "an idle machine"),
    "two-modes": Code("its times have two levels", "look at the detail page, lock the clock"),
    "launch-blocking": Code("every launch waits", "unset the variable"),
    "profiler-on": Code("a profiler is active", "run without it"),
    "anomaly-detection": Code("autograd's anomaly detection is on", "turn it off"),
    "flush-unavailable": Code("no flush of the cache can be had here", "--cache warm"),
    "no-blocker": Code("the device could not be held", "run without --blocker"),
    "graph-refused": Code("it could not be captured; it is timed eagerly", "see the reason"),
    "graph-differs": Code("the replay differs; it is timed eagerly", "see the reason"),
    "phases-hidden": Code("its phases cannot be told here", "see the reason"),
    "abilities-missing": Code(
        "some functions of torch are missing here", "a newer torch may have what is lost"
    ),
    "cache-not-warm": Code("it is not as warm as it is alone", "--cache as-is, or fewer rows"),
    "not-as-alone": Code("beside its neighbours it differs from alone", "-k for this row alone"),
    "inner-differs": Code("other calls a window than its baseline", "--inner N"),
    "window-chosen": Code("how long windows are, and why", "--target-window"),
    "off-the-cpu": Code("it sleeps or waits", "is that what is to be timed?"),
    "host-busy": Code("somebody else has its CPU", "an idle machine"),
    "page-faults": Code("memory is taken and given back in each call", "allocate once"),
    "sequential": Code(
        "a script's call that was timed by itself: no other was known when its value was needed",
        "what a perf_report, a Compare or one do_bench_many holds is interleaved",
    ),
    "in-place": Code(
        "timed with its group it took other than where the script called it: the value is from "
        "there, not interleaved",
        "give the callable all that it reads as arguments or in its closure",
    ),
    "warned": Code("its code gave a warning", "read it"),
    "unproven": Code("this way of timing has not been tried on a real device", "compare --timer"),
    "host-only": Code("nothing was put into the device's stream", "--timer wall"),
    "host-clock-waits": Code("the host's clock waits for a device", "a --device of torch's"),
    "other-device": Code(
        "it has tensors on a device that is not timed here", "a row of one device, or --device"
    ),
    "asynchronous-library": Code("a library that returns early is loaded", "wait in the callable"),
}
"""All of them."""
MORE_BADGES: Mapping[str, str] = {
    "ratio moves": "the rows follow the clock differently: their ratio holds for no one clock",
    "stragglers": "samples far outside the bulk, which make most of the spread",
    "check": CODES["check"].meaning,
    "wrong result": CODES["wrong-result"].meaning,
    "stale result": CODES["stale-result"].meaning,
}
"""Badges that no finding of this vocabulary gives."""


def badge_words(badge: str) -> str:
    """What a badge says of its row, and what to do; empty for an unknown one."""
    found = next((c for name, word in BADGES.items() if word == badge and (c := _code(name))), None)
    if found is not None:
        remedy = "" if found.remedy == "nothing" else f"; {found.remedy}"
        return f"{found.meaning}{remedy}"
    return next((words for word, words in MORE_BADGES.items() if badge.endswith(word)), "")


def _code(name: str) -> Code | None:
    return CODES.get(code_of(name))


NOT_BELIEVABLE = frozenset(
    {*map(code_of, DISBELIEVED), "check", "wrong-result", "stale-result"}
    | {"coroutine", "generator", "lazy", "awaitable", "baseline-not-believable"}
)
"""Codes under which a row's answer is `not_believable`."""
