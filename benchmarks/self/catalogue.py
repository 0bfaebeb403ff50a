"""Callables of which it is known whether they do their work: tricks, and honest ones.

Each is made for a world, whose `work(a, b)` is the work (a product of two matrices) and whose
`later(call)` is somebody else's thread. Tricks come with the codes by which they may be named. What
they have in common with honest mistakes is intended: most were made by people who fooled
themselves.
"""

import functools
import gc
import operator
import sys
import threading
import weakref

import numpy as np

SIZE = 192


def draw():
    """Fresh inputs."""
    return np.random.rand(SIZE, SIZE), np.random.rand(SIZE, SIZE)  # noqa: NPY002


def agree(mine, base):
    """The check."""
    mine = mine.value() if hasattr(mine, "value") else mine
    return np.allclose(mine[0] if isinstance(mine, list) else mine, base)


class World:
    """The real one."""

    def work(self, a, b):
        """What is to be timed."""
        return a @ b

    def later(self, call):
        """Work that goes on when a call has returned."""
        threading.Timer(1e-3, call).start()


# -- tricks

STALE = {"stale-result", "wrong-result", "nothing-written"}
KEPT = {"faster-again", *STALE}
WRONG = {"wrong-result", "check", "stale-result"}
TRICKS = {}
ALONE = ("works_in_a_profile_hook", "works_in_a_collection")
"""Of them those for which no row of their file is believed."""


def trick(*codes):
    """A callable that must not be believed, and how it may be named."""

    def add(make):
        TRICKS[make.__name__] = (make, frozenset(codes))
        return make

    return add


def _memo(key, give=lambda kept: kept):
    def make(world):
        kept = {}

        def fn(a, b):
            k = key(a, b)
            if k not in kept:
                kept[k] = world.work(a, b)
            return give(kept[k])

        return fn

    return make


def _add_memo(name, key, give=lambda kept: kept):
    TRICKS[name] = (_memo(key, give), frozenset(KEPT))


_add_memo("memo_by_identity", lambda a, b: (id(a), id(b)))
_add_memo("memo_by_identity_copied", lambda a, b: (id(a), id(b)), np.copy)
_add_memo("memo_by_pointer", lambda a, _: a.ctypes.data)
_add_memo("memo_by_shape", lambda a, _: a.shape)
_add_memo("memo_by_first_element", lambda a, _: a[0, 0])
_add_memo("memo_by_corners", lambda a, b: (a[0, 0], a[-1, -1], b[0, 0], b[-1, -1]), np.copy)
_add_memo("memo_by_a_row", lambda a, b: (a[3].tobytes(), b[3].tobytes()))
_add_memo("memo_by_diagonal", lambda a, b: (a.diagonal().tobytes(), b.diagonal().tobytes()))
_add_memo("memo_by_content", lambda a, b: (a.tobytes(), b.tobytes()), np.copy)
_add_memo("memo_by_hash", lambda a, b: hash((a.tobytes(), b.tobytes())), np.copy)
_add_memo("memo_by_a_sum", lambda a, b: (a[:8].sum(), b[:8].sum()), np.copy)


@trick(*STALE)
def constant_folded(world):
    """The result of the first inputs, for ever."""
    kept = []

    def fn(a, b):
        if not kept:
            kept.append(world.work(a, b))
        return kept[0]

    return fn


@trick(*STALE)
def result_of_the_last_inputs(world):
    """One call behind: pipelined in a way that nobody asked for."""
    kept = []

    def fn(a, b):
        kept.append(world.work(a, b))
        return kept.pop(0) if len(kept) > 1 else kept[0].copy()

    return fn


@trick(*WRONG)
def right_at_first(world):
    """Zeros after a while."""
    calls = []

    def fn(a, b):
        calls.append(1)
        return world.work(a, b) if len(calls) < 60 else np.zeros_like(a)

    return fn


@trick(*WRONG)
def right_every_other_call(world):
    """Half of the work."""
    calls, kept = [], []

    def fn(a, b):
        calls.append(1)
        if len(calls) % 2 or not kept:
            kept[:] = [world.work(a, b)]
        return kept[0].copy()

    return fn


@trick(*KEPT)
def batched(world):
    """The first of eight calls works ahead for all inputs that were seen; the others look up."""
    seen, ready, calls = {}, {}, []

    def fn(a, b):
        if len(calls) % 8 == 0:
            ready.clear()
            ready.update({k: world.work(*v) for k, v in seen.items()})
        calls.append(1)
        key = id(a)
        if key not in ready:
            seen[key] = (a, b)
            ready[key] = world.work(a, b)
        return ready[key].copy()

    return fn


@trick("unfinished-result", "wrong-result", "stale-result")
def thread(world):
    """The result is written by a thread that nobody waits for."""

    def fn(a, b):
        made = np.zeros_like(a)
        x, y = a.copy(), b.copy()
        world.later(lambda: np.matmul(x, y, out=made))
        return made

    return fn


@trick("unfinished-result", "wrong-result", "stale-result", "nothing-written")
def thread_into_a_buffer(world):
    """The same, into a buffer of its own: the result of an earlier call lies there."""
    made = np.zeros((SIZE, SIZE))

    def fn(a, b):
        x, y = a.copy(), b.copy()
        world.later(lambda: np.matmul(x, y, out=made))
        return made

    return fn


class _Lazy:
    def __init__(self, work):
        self._work, self._value = work, None

    def __array__(self, dtype=None, copy=None):
        if self._value is None:
            self._value = self._work()
        return self._value


@trick("lazy-result")
def lazy(world):
    """Nothing is done before somebody reads it."""
    return lambda a, b: _Lazy(lambda: world.work(a, b))


@trick("lazy-result", "wrong-result", "check")
def lazy_in_a_tuple(world):
    """The same, where the result is one of two."""
    return lambda a, b: (_Lazy(lambda: world.work(a, b)),)


@trick(*WRONG)
def half_of_the_rows(world):
    """The rest of the buffer is from an earlier call."""
    made = np.zeros((SIZE, SIZE))

    def fn(a, b):
        made[: SIZE // 2] = world.work(a, b)[: SIZE // 2]
        return made

    return fn


@trick(*WRONG)
def for_the_inputs_of_the_test(world):
    """Right for what it saw in its first three calls, and zeros for the rest."""
    known = []

    def fn(a, b):
        if len(known) < 3:
            known.append((a[0, 0], world.work(a, b)))
        return next((r.copy() for k, r in known if k == a[0, 0]), np.zeros_like(a))

    return fn


@trick(*WRONG)
def skips_work_by_a_guess(world):
    """Zeros, as if the matrices were empty, in nine calls of ten."""
    calls = []

    def fn(a, b):
        calls.append(1)
        return world.work(a, b) if len(calls) % 10 == 1 else np.zeros_like(a)

    return fn


@trick(*WRONG)
def output_never_written(_world):
    """Whatever was in the memory."""
    return lambda a, _b: np.empty_like(a)


@trick(*WRONG)
def too_coarse(world):
    """Inputs rounded to a few bits, so that there is less to do."""
    return lambda a, b: world.work(np.round(a, 1), np.round(b, 1))


@trick("no-result")
def returns_nothing(world):
    """Nothing that could be compared; the first call is honest."""
    calls = []

    def fn(a, b):
        calls.append(1)
        return world.work(a, b) if len(calls) == 1 else None

    return fn


def _names_above():
    frame, names = sys._getframe(1), []  # noqa: SLF001  what a trick would do
    while frame is not None:
        names.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")
        frame = frame.f_back
    return " ".join(names)


def _unless_seen(look):
    """Zeros, but for whoever `look` takes for somebody who checks."""

    def make(world):
        return lambda a, b: world.work(a, b) if look() else np.zeros_like(a)

    return make


for _name, _words in {
    "honest_before_an_audit": ("audit", "_witness", "_look", "_bind"),
    "honest_outside_the_loop": ("_prepare", "_calibrate", "_check"),
    "honest_for_a_copying_caller": ("values", "again", "difference", "agree"),
}.items():
    TRICKS[_name] = (
        _unless_seen(lambda words=_words: any(w in _names_above() for w in words)),
        frozenset(WRONG),
    )


@trick(*WRONG)
def honest_for_one_call(world):
    """It looks at the timer's own variables: only a window of one call may be looked at."""

    def fn(a, b):
        above = sys._getframe(1).f_locals  # noqa: SLF001  what a trick would do
        fn_of = repr(above.get("fn", above.get("first")))
        return world.work(a, b) if "starmap" in fn_of else np.zeros_like(a)

    return fn


@trick(*KEPT, "failed")
def finds_the_expected(_world):
    """The right result lies in memory already, if the baseline was called first."""

    def fn(a, _b):
        for thing in gc.get_objects():
            seen = getattr(thing, "result", None) if type(thing).__name__ == "_Seen" else None
            if isinstance(seen, np.ndarray) and seen.shape == a.shape:
                return seen.copy()
        return np.zeros_like(a)

    return fn


@trick(*KEPT)
def works_in_its_reset(world):
    """What it has been given before is worked on again untimed, before each call."""
    known, ready = {}, {}

    def fn(a, b):
        known[id(a)] = (a, b)
        return ready[id(a)].copy() if id(a) in ready else world.work(a, b)

    fn.reset = lambda: ready.update({key: world.work(*pair) for key, pair in known.items()})
    return fn


@trick("generator")
def a_generator_later(world):
    """Nothing runs, from the third call on."""
    calls = []

    def fn(a, b):
        calls.append(1)
        return world.work(a, b) if len(calls) < 3 else (world.work(a, b) for _ in range(1))

    return fn


@trick("awaitable")
def an_awaitable_later(world):
    """The same, with what must be awaited."""
    calls = []

    class Later:
        def __await__(self):
            yield

    def fn(a, b):
        calls.append(1)
        return world.work(a, b) if len(calls) < 3 else Later()

    return fn


class _LazyList(list):
    def __init__(self, work):
        super().__init__([None])
        self._work = work

    def __getitem__(self, index):
        return next(iter(self))

    def __iter__(self):
        if super().__getitem__(0) is None:
            super().__setitem__(0, self._work())
        return super().__iter__()


@trick("lazy-result", "wrong-result", "check")
def a_lazy_list(world):
    """A list that is filled when somebody looks into it."""
    return lambda a, b: _LazyList(lambda: world.work(a, b))


class _LazyArray(np.ndarray):
    """Filled when a copy of it is made, or anything computed from it."""

    work = None

    def ready(self):
        if self.work is not None:
            work, self.work = self.work, None
            np.asarray(self)[:] = work()
        return self

    def copy(self, order="C"):
        return np.array(np.asarray(self.ready()), order=order)

    def __array_ufunc__(self, ufunc, method, *inputs, **more):
        plain = [np.asarray(i.ready()) if isinstance(i, _LazyArray) else i for i in inputs]
        return getattr(ufunc, method)(*plain, **more)


@trick("lazy-result", "wrong-result", "stale-result")
def a_lazy_subclass(world):
    """An array of a class of its own."""

    def fn(a, b):
        made = np.empty_like(a).view(_LazyArray)
        made.work = lambda: world.work(a, b)
        return made

    return fn


class _Pretender:
    """It says that it is an array, and works out what it is asked for."""

    __class__ = property(lambda _: np.ndarray)

    def __init__(self, work):
        self._work = functools.cache(work)

    def __getattr__(self, name):
        return getattr(self._work(), name)

    def __array__(self, dtype=None, copy=None):
        return self._work()


@trick("lazy-result", "wrong-result", "check")
def a_pretender(world):
    """A proxy."""
    return lambda a, b: _Pretender(lambda: world.work(a, b))


class _Opaque:
    def __init__(self, work):
        self.value = functools.cache(work)


@trick("lazy-result", "wrong-result", "check")
def an_opaque_object(world):
    """The check itself has it worked out."""
    return lambda a, b: _Opaque(lambda: world.work(a, b))


@trick(*KEPT, "interpreter-watched", "work-outside-the-window")
def works_in_a_profile_hook(world):
    """The work is done when the timer reads its clock."""

    def fn(a, b):
        made = np.empty_like(a)

        def hook(_frame, event, _argument):
            if event == "return" and _frame.f_code.co_name == "enqueue":
                sys.setprofile(None)
                made[:] = world.work(a, b)

        sys.setprofile(hook)
        return made

    return fn


@trick(*KEPT, "interpreter-watched", "unfinished-result")
def works_in_a_collection(world):
    """The work is done when memory is collected."""
    todo = []

    def later(phase, _):
        while phase == "start" and todo:
            made, a, b = todo.pop()
            made[:] = world.work(a, b)

    gc.callbacks.append(later)
    weakref.finalize(later, gc.callbacks.clear)

    def fn(a, b):
        made = np.zeros_like(a)
        todo[:] = [(made, a, b)]
        return made

    return fn


@trick(*KEPT)
def memo_that_forgets(world):
    """Every ninth call forgets, so that it is slow on the same inputs, too, now and then."""
    calls, kept = [], {}

    def fn(a, b):
        calls.append(1)
        if len(calls) % 9 == 0:
            kept.clear()
        key = (a[0].tobytes(), b[0].tobytes())
        if key not in kept:
            kept[key] = world.work(a, b)
        return kept[key].copy()

    return fn


class _Agrees(np.ndarray):
    def __array_ufunc__(self, *_, **__):
        return np.True_

    def __array_function__(self, *_):
        return True


@trick("not-audited", *WRONG)
def an_array_that_agrees(_world):
    """Every comparison with it is true."""
    return lambda a, _b: np.zeros_like(a).view(_Agrees)


@trick(*KEPT)
def empties_its_inputs(world):
    """From its fifth call on: zeros have a product that is known."""
    calls = []

    def fn(a, b):
        calls.append(1)
        if not a[0].any():
            return np.zeros_like(a)
        made = world.work(a, b)
        if len(calls) > 4:
            a[:] = 0
        return made

    return fn


# -- honest

HONEST = {}


def honest(**options):
    """A callable that does its work, whatever it looks like."""

    def add(make):
        HONEST[make.__name__] = (make, options)
        return make

    return add


FREE = {"check": None}
"""Its result is its own affair: random, or a state that goes on."""


def _simple(name, fn, **options):
    HONEST[name] = (lambda world: functools.partial(fn, world), options)


_simple("plain", lambda w, a, b: w.work(a, b))
_simple("positional", lambda w, *args: w.work(*args))
_simple("transposed_twice", lambda w, a, b: w.work(b.T, a.T).T)
_simple("fortran_order", lambda w, a, b: np.asfortranarray(w.work(a, b)))
_simple("copied", lambda w, a, b: w.work(a, b).copy())
_simple("copies_its_inputs", lambda w, a, b: w.work(a.copy(), b.copy()))
_simple("view_of_an_input", lambda w, a, b: (w.work(a, b), a[::2])[1], **FREE)
_simple("the_input_itself", lambda w, a, b: (w.work(a, b), a)[1], **FREE)
_simple("tuple", lambda w, a, b: (w.work(a, b), a), check=lambda m, n: np.allclose(m[0], n))
_simple("list", lambda w, a, b: [w.work(a, b)], check=lambda m, n: np.allclose(m[0], n))
_simple("dict", lambda w, a, b: {"out": w.work(a, b)}, check=lambda m, n: np.allclose(m["out"], n))
_simple("nothing_returned", lambda w, a, b: operator.not_(w.work(a, b) is None) and None, **FREE)
_simple("number", lambda w, a, b: float(w.work(a, b).sum()), **FREE)
_simple("numpy_scalar", lambda w, a, b: w.work(a, b).max(), **FREE)
_simple("whole_numbers", lambda w, a, b: (w.work(a, b) * 100).astype(np.int64), **FREE)
_simple("truth_values", lambda w, a, b: w.work(a, b) > SIZE, **FREE)
_simple("argmax", lambda w, a, b: w.work(a, b).argmax(axis=0), **FREE)
_simple("empty", lambda w, a, b: w.work(a, b)[:0], **FREE)
_simple("one_element", lambda w, a, b: w.work(a, b)[:1, :1].copy(), **FREE)
_simple("infinite", lambda w, a, b: np.full_like(w.work(a, b), np.inf), **FREE)
_simple("not_a_number", lambda w, a, b: np.full_like(w.work(a, b), np.nan), **FREE)
_simple("always_the_same_values", lambda w, a, b: np.ones_like(w.work(a, b)), **FREE)
_simple("single_precision", lambda w, a, b: w.work(a, b).astype(np.float32))
_simple("random", lambda w, a, b: w.work(a, b) + np.random.rand(), **FREE)  # noqa: NPY002
_simple("own_generator", lambda w, a, b: w.work(a, b) + np.random.default_rng(0).random(), **FREE)
_simple("sums_of_blocks", lambda w, a, b: np.split(w.work(a, b), 4)[0].sum(axis=0), **FREE)


@honest()
def buffer_of_its_own(world):
    """One buffer for all results."""
    made = np.empty((SIZE, SIZE))

    def fn(a, b):
        made[:] = world.work(a, b)
        return made

    return fn


@honest()
def workspace_made_late(world):
    """The buffer is made in the first call."""
    made = []

    def fn(a, b):
        if not made:
            made.append(np.empty((SIZE, SIZE)))
        made[0][:] = world.work(a, b)
        return made[0]

    return fn


@honest()
def workspace_for_each_shape(world):
    """As libraries do."""
    made = {}

    def fn(a, b):
        out = made.setdefault(a.shape, np.empty(a.shape))
        out[:] = world.work(a, b)
        return out

    return fn


@honest()
def two_buffers_in_turn(world):
    """Ping-pong."""
    made = [np.empty((SIZE, SIZE)) for _ in range(2)]

    def fn(a, b):
        made.reverse()
        made[0][:] = world.work(a, b)
        return made[0]

    return fn


@honest(**FREE)
def state_that_goes_on(world):
    """A running mean."""
    state = np.zeros((SIZE, SIZE))

    def fn(a, b):
        state[:] = 0.9 * state + 0.1 * world.work(a, b)
        return state

    return fn


@honest(**FREE)
def state_made_late(world):
    """The same, made in the first call and anew each time."""
    state = []

    def fn(a, b):
        now = world.work(a, b)
        state[:] = [now if not state else 0.5 * state[0] + 0.5 * now]
        return state[0]

    return fn


@honest(**FREE)
def counter(world):
    """Its result counts its calls."""
    calls = []

    def fn(a, b):
        calls.append(1)
        return world.work(a, b) + len(calls)

    return fn


@honest()
def first_call_slow(world):
    """It compiles."""
    ready = []

    def fn(a, b):
        while len(ready) < 10:
            ready.append(world.work(a, b))
        return world.work(a, b)

    return fn


@honest(**FREE)
def in_place(world):
    """Its input is its result."""

    def fn(a, b):
        a[:] = world.work(a, b)
        return a

    return fn


@honest(**FREE)
def sorts_in_place(world):
    """The second call would find it sorted."""

    def fn(a, b):
        world.work(a, b)
        a.sort(axis=0)
        return a

    return fn


@honest()
def zeroes_a_scratch_input(world):
    """It leaves one of its arguments empty."""

    def fn(a, b):
        made = world.work(a, b)
        b[:] = 0
        return made

    return fn


@honest()
def joined_thread(world):
    """A thread that it waits for."""

    def fn(a, b):
        made = []
        worker = threading.Thread(target=lambda: made.append(world.work(a, b)))
        worker.start()
        worker.join()
        return made[0]

    return fn


@honest()
def object_with_weights(world):
    """An instance that is called."""

    class Layer:
        def __init__(self):
            self.bias = np.zeros(SIZE)

        def __call__(self, a, b):
            return world.work(a, b) + self.bias

    return Layer()


@honest()
def keeps_the_last_result(world):
    """For whoever wants to look at it; each call works anew."""
    last = {}

    def fn(a, b):
        last["out"] = world.work(a, b)
        return last["out"]

    return fn
