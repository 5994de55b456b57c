"""Code that looks at frames: tracebacks of errors, warnings, logging, libraries that count frames."""

from __future__ import annotations

import gc
import inspect
import logging
import subprocess
import sys
import textwrap
import traceback
import warnings
import weakref
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

import jitla

# Code that looks at the frame it is called from, or counts frames: libraries, warnings, logging.

MODES = ("sync", "background", "auto")
LIBRARY = """
import sys, warnings
def warn(level):
    warnings.warn("library", stacklevel=level)
def names(frame=None):
    return sorted(sys._getframe(1).f_locals)
def value(name):
    found = sys._getframe(1).f_locals
    assert name in found and "absent" not in found and found.get("absent", 7) == 7
    return found[name]
def kinds():
    found = sys._getframe(1).f_locals.copy()
    return {name: type(value).__name__ for name, value in found.items()}
def evaluated(text):
    frame = sys._getframe(1)
    return eval(text, frame.f_globals, frame.f_locals)
def cleared(name):
    found = sys._getframe(1).f_locals
    value = found[name]
    found.clear()
    return value
def overwritten(x):
    x[:] = 0
    return sys._getframe(1).f_locals["y"] + 1
def place():
    frame = sys._getframe(1)
    code = frame.f_code
    return code.co_filename, code.co_name, code.co_qualname, frame.f_lineno, frame.f_globals["__name__"]
"""
library: dict = {"__name__": "a_library"}
exec(compile(LIBRARY, "/usr/lib/python3/dist-packages/a_library.py", "exec"), library)


def agree(function, *args):
    """Compare calls in all modes with the plain function, as often as it takes for calls to be traced."""
    wanted = np.asarray(function(*args))
    for mode in MODES:
        traced = jitla.jit(compile=mode)(function)
        for _ in range(30 if mode == "auto" else 3):
            made = np.asarray(traced(*args))
            assert made.dtype == wanted.dtype and np.array_equal(made, wanted), mode


X = np.arange(1.0, 30000.0)


# ------------------------------------------------------------------------- libraries that read variables


def test_numexpr():
    numexpr = pytest.importorskip("numexpr")

    def scaled(x):
        y = x * 2
        z = y + 1  # noqa: F841
        return numexpr.evaluate("y*3+z")

    agree(scaled, X)


def test_pandas():
    pd = pytest.importorskip("pandas")

    def query(x):
        t = x.sum() / len(x)  # noqa: F841
        table = pd.DataFrame({"a": x})
        return table.query("a > @t")["a"].to_numpy() * 2

    def evaluate(x):
        y = x * 2  # noqa: F841
        table = pd.DataFrame({"a": x})
        return table.eval("b = a * @y")["b"].to_numpy() + 1

    def top(x):
        y = x * 2
        z = y - 1  # noqa: F841
        return pd.eval("y + z") * 2

    for function in (query, evaluate, top):
        agree(function, X)


def test_bmat():
    def blocks(x):
        y = x * 2
        z = y - 1  # noqa: F841
        return np.asarray(np.bmat("y z; z y")) * 2

    agree(blocks, np.arange(12.0).reshape(3, 4))


@pytest.mark.parametrize("mode", MODES)
def test_variables_are_those_of_the_user(mode):
    names, kinds = library["names"], library["kinds"]

    def seen(x, *rest, flag=True):
        y = x * 2
        total = y.sum()
        pair = [y, total]
        y += 1
        return names(), kinds(), len(pair), flag

    traced = jitla.jit(compile=mode)(seen)
    for _ in range(20):
        assert traced(X, 1) == seen(X, 1)


@pytest.mark.parametrize("read", ["value", "cleared"])
def test_values_that_nothing_else_reads(read):
    read = library[read]

    def dead(x):
        y = x * 2
        z = y + 1
        w = (z * z).sum()
        return read("y") + read("z") + w

    agree(dead, X)


def test_a_value_is_that_before_the_call_wrote_what_it_came_from():
    overwritten = library["overwritten"]

    def written(x):
        x = x.copy()
        y = x * 2  # noqa: F841
        return overwritten(x) * 2

    agree(written, X)


def test_code_is_evaluated_in_the_frame():
    evaluated = library["evaluated"]

    def over(x):
        y = x + 1  # noqa: F841
        return evaluated("y.sum() + x[3] * len(X)")

    agree(over, X)


def test_variables_of_closures_and_comprehensions():
    value, names = library["value"], library["names"]
    factor = np.float64(3.0)

    def outer(x):
        y = x * factor

        def inner(z):
            return value("z") + y + len(names())

        return inner(y) + sum([value("n") for n in range(2)])

    agree(outer, X)


def test_place_of_the_frame():
    place = library["place"]

    def where(x):
        y = x * 2
        return [place(), place(
        )], (y * y).sum()

    for mode in MODES:
        traced = jitla.jit(compile=mode)(where)
        for _ in range(20):
            assert traced(X) == where(X)


def test_frames_do_not_keep_what_was_there():
    value = library["value"]

    class Thing:
        pass

    @jitla.jit(compile="sync")
    def used(x, thing):
        y = x * 2  # noqa: F841
        return value("y").sum()

    used(X, Thing())
    gc.disable()
    try:
        thing = Thing()
        gone = weakref.ref(thing)
        used(X, thing)
        del thing
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("mode", MODES)
def test_frames_of_tracebacks_have_the_variables_of_the_user(mode):
    factor = 2.0

    def fails(x):
        y = x * factor

        def inner(z):
            return z + y + np.ones(7)

        return inner(y)

    traced = jitla.jit(compile=mode)(fails)
    for _ in range(20):
        with pytest.raises(ValueError, match="broadcast") as caught:
            traced(X)
        frames = {each.tb_frame.f_code.co_name: each.tb_frame for each in tracebacks(caught.value)}
        for name, wanted in (("fails", {"x", "y", "inner", "factor"}), ("inner", {"z", "y"})):
            found = frames[name].f_locals
            assert {each for each in found if each[:1] != "."} == wanted
        assert np.array_equal(frames["inner"].f_locals["z"], X * 2)


def tracebacks(error):
    found = error.__traceback__
    while found is not None:
        yield found
        found = found.tb_next


# ------------------------------------------------------------------------- functions that look at frames


def own_variables(x):
    y = x * 2  # noqa: F841
    return sys._getframe().f_locals["y"]


def callers_name(x):
    return inspect.stack()[1].function, sys._getframe(1).f_code.co_name, float(x.sum())


def two_up():
    return sys._getframe(2).f_code.co_name


def asks_two_up(x):
    return two_up(), float((x * 2).sum())


def one_up():
    return inspect.stack()[1].function, inspect.currentframe().f_back.f_lineno


def asks_one_up(x):
    y = x * 2
    return one_up(), float(y.sum())


def all_up():
    return [each.function for each in inspect.stack()]


def asks_all(x):
    y = x * 2
    return all_up(), float(y.sum())


@pytest.mark.parametrize("function", [callers_name, asks_two_up, asks_one_up, asks_all])
def test_names_of_callers(function):
    ways = [function, *(jitla.jit(compile=mode)(function) for mode in MODES)]
    for _ in range(20):
        wanted, *found = [way(X) for way in ways]  # from one line
        assert all(each == wanted for each in found)


def test_own_variables():
    agree(own_variables, X)


@pytest.mark.parametrize(("function", "told"), [
    (own_variables, "it looks at frames of the stack, by _getframe"),
    (callers_name, "it looks at frames of the stack"),
    (asks_two_up, "two_up, which it calls, looks at frames of the stack, by _getframe"),
    (asks_all, "all_up, which it calls, looks at frames of the stack, by inspect.stack")])
def test_why_a_function_stays_plain_is_told(function, told):
    decorated = jitla.jit(function)
    decorated(X)
    assert f"runs in NumPy: {told}" in str(decorated.explain())
    with pytest.raises(jitla.UnsupportedError, match=told):
        jitla.jit(strict=True)(function)(X)


def test_reading_variables_by_name_is_told():
    @jitla.jit(compile="sync")
    def read(x):
        return locals()["x"] + 1

    read(X)
    assert "it reads variables of its frame, by locals" in str(read.explain())


def test_functions_of_numpy_with_such_names_are_traced():
    def stacked(x):
        inspect.isfunction(x)
        return np.trace(np.stack([x, x])) + 1

    agree(stacked, X)
    traced = jitla.jit(compile="sync")(stacked)
    traced(X)
    assert "runs in NumPy" not in str(traced.explain()) and traced.stats().calls == 1


# ------------------------------------------------------------------------- warnings and logging


def direct(x, level):
    y = x * 2
    warnings.warn("direct", stacklevel=level)
    warnings.warn("twice", UserWarning, level)
    return y + 1


def helper(x, level):
    z = x + 1
    warnings.warn("helper", stacklevel=level)
    return z * 2


def nested(x, level):
    return helper(x * 2, level) + helper(x, level)


def by_library(x, level):
    y = x * 2
    library["warn"](level)
    return y + 1


def by_partial(x, level):
    y = x * 2
    partial(warnings.warn, "partial", stacklevel=level)()
    return y + 1


class Warner:
    level = 1

    def method(self, x, level):
        y = x * 2
        warnings.warn("method", stacklevel=level)
        return y

    @property
    def factor(self):
        warnings.warn("property", stacklevel=self.level)
        return 2.0

    def __enter__(self):
        warnings.warn("enter", stacklevel=self.level)

    def __exit__(self, *raised):
        warnings.warn("exit", stacklevel=self.level)

    def __iter__(self):
        warnings.warn("iter", stacklevel=self.level)
        yield 1
        warnings.warn("next", stacklevel=self.level)


def by_object(x, level):
    warner = Warner()
    warner.level = level
    y = warner.method(x * 2, level) * warner.factor
    with warner:
        y = y + 1
    for _ in warner:
        y = y * 2
    return y


@contextmanager
def warned(level):
    warnings.warn("managed", stacklevel=level)
    yield


def managed(x, level):
    y = x * 2
    with warned(level):
        y = y + 1
    return y


def stepwise(x, level):
    y = x * 2
    warnings.warn("step", stacklevel=level)
    yield y


def generates(x, level):
    return sum(list(stepwise(x, level)))


def inside(x, level):
    def inner(z):
        warnings.warn("inner", stacklevel=level)
        return z * 2
    return inner(x + 1)


def shown(function, level):
    """Return what a call warns of, with file and line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = function(X, level)
        if inspect.isgenerator(made):
            list(made)
    return [(str(each.message), each.filename, each.lineno) for each in caught]


@pytest.mark.parametrize("level", range(6))
@pytest.mark.parametrize("function", [
    direct, nested, by_library, by_partial, by_object, managed, stepwise, generates, inside])
def test_a_warning_belongs_to_the_line_that_it_counts_up_to(function, level):
    ways = [function, *(jitla.jit(compile=mode)(function) for mode in MODES)]
    for _ in range(16):
        wanted, *found = [shown(way, level) for way in ways]  # from one line
        assert wanted and all(each == wanted for each in found)


@pytest.mark.parametrize("level", range(1, 5))
@pytest.mark.parametrize("mode", MODES)
def test_decorated_functions_that_call_each_other(mode, level):
    inner = helper

    def outer(x, level):
        return inner(x * 2, level) + 1

    traced, plain = jitla.jit(compile=mode)(outer), outer
    for _ in range(16):
        found = []
        for inner, way in ((helper, plain), (jitla.jit(compile=mode)(helper), traced)):
            found.append(shown(way, level))
        assert found[0] == found[1]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="an argument of later versions")
@pytest.mark.parametrize("mode", MODES)
def test_files_are_skipped(mode):
    def skipping(x, level):
        warnings.warn("skipped", skip_file_prefixes=("/nowhere",))
        return x * 2

    ways = [skipping, jitla.jit(compile=mode)(skipping)]
    for _ in range(16):
        wanted, found = [shown(way, 1) for way in ways]
        assert found == wanted


@pytest.mark.parametrize("mode", MODES)
def test_two_lines_are_two_warnings_and_one_line_is_one(mode):
    traced = jitla.jit(compile=mode)(direct)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(20):
            traced(X, 2)
        for _ in range(20):
            traced(X, 2)
    assert len(caught) == 4 and len({each.lineno for each in caught}) == 2


@pytest.mark.process
@pytest.mark.parametrize("mode", MODES)
def test_deprecations_are_shown_to_main(mode, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(f"""
        import warnings
        import numpy as np
        import jitla
        @jitla.jit(compile={mode!r})
        def old(x):
            warnings.warn("old is deprecated", DeprecationWarning, stacklevel=2)
            return x * 2
        x = np.ones(3000)
        for _ in range(20):
            old(x)
        old(x)
    """))
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    lines = [line for line in run.stderr.splitlines() if "DeprecationWarning" in line]
    assert run.returncode == 0 and lines == [
        f"{script}:{line}: DeprecationWarning: old is deprecated" for line in (11, 12)], run.stderr


class Kept(logging.Handler):
    """Keeps where messages come from."""

    def __init__(self):
        super().__init__()
        self.places = []

    def emit(self, record):
        self.places.append((record.msg, record.funcName, record.lineno, record.pathname, record.module))


log = logging.getLogger("tests.caller_frames")


def logs(x, level):
    y = x * 2
    log.warning("direct", stacklevel=level)
    logging.getLogger("tests.caller_frames").log(logging.ERROR, "log", stacklevel=level)
    return y + 1


def logs_below(x, level):
    y = logs(x * 2, level)
    log.error("below")
    return y


@pytest.mark.parametrize("level", range(1, 5))
@pytest.mark.parametrize("function", [logs, logs_below])
def test_logging_reports_function_and_line(function, level):
    kept = Kept()
    log.addHandler(kept)
    log.propagate = False
    try:
        ways = [function, *(jitla.jit(compile=mode)(function) for mode in MODES)]
        for _ in range(16):
            found = []
            for way in ways:
                way(X, level)
                found.append(kept.places)
                kept.places = []
            assert found[0] and all(each == found[0] for each in found)
    finally:
        log.removeHandler(kept)
        log.propagate = True


# Exceptions are NumPy's own, with the user's line innermost, and what was done before is kept.

ERRORS_X = np.arange(6.0)


def wrong_shape(x):
    y = x * 2
    z = y + np.ones(4)
    return z


def wrong_axis(x):
    y = x * 2
    return y.sum(axis=3)


def wrong_index(x):
    y = x + 1
    return y[17]


def wrong_product(x):
    y = x * 2
    return y @ np.ones((3, 2))


def wrong_reshape(x):
    return (x + 1).reshape(4, 4)


def wrong_store(x):
    x += 1
    x[2:] = np.ones(7)
    return x


def wrong_cast(x):
    n = np.arange(6)
    n += x * 0.5
    return n


def empty_maximum(x):
    y = x[6:] * 2
    return y.max()


def ambiguous(x):
    y = x > 2
    if y:
        return 1
    return 0


def no_attribute(x):
    y = x * 2
    return y.nothing_like_this


def out_of_range(x):
    y = x.astype(np.uint8)
    return y + 300


def own_exception(x):
    y = x * 2
    raise KeyError(float(y.sum()))


def negative_power(x):
    n = x.astype(int)
    return n**-1


def bool_minus(x):
    return (x > 1) - (x > 2)


def in_a_helper(x):
    return wrong_shape(x * 2)


@pytest.mark.parametrize(
    "function",
    [
        wrong_shape,
        wrong_axis,
        wrong_index,
        wrong_product,
        wrong_reshape,
        wrong_store,
        wrong_cast,
        empty_maximum,
        ambiguous,
        no_attribute,
        out_of_range,
        own_exception,
        negative_power,
        bool_minus,
        in_a_helper,
    ],
)
@pytest.mark.parametrize("call", ["cold", "warm"])
def test_exceptions_are_numpys(function, call: str) -> None:
    jitted = jitla.jit(function)
    if call == "warm":
        with pytest.raises(Exception):  # noqa: B017
            jitted(ERRORS_X.copy())
    x, y = ERRORS_X.copy(), ERRORS_X.copy()
    with pytest.raises(Exception) as expected:
        function(x)
    with pytest.raises(Exception) as actual:
        jitted(y)
    assert actual.type is expected.type
    assert str(actual.value) == str(expected.value)
    assert _innermost_user_line(actual.value) == _innermost_user_line(expected.value)
    assert actual.value.__cause__ is None and actual.value.__context__ is None
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "function",
    [
        wrong_shape,
        wrong_axis,
        wrong_product,
        wrong_reshape,
        wrong_store,
        wrong_cast,
        ambiguous,
        no_attribute,
        own_exception,
        in_a_helper,
    ],
)
def test_the_users_line_is_the_innermost_frame(function) -> None:
    with pytest.raises(Exception) as plain:
        function(ERRORS_X.copy())
    with pytest.raises(Exception) as jitted:
        jitla.jit(function)(ERRORS_X.copy())
    if traceback.extract_tb(plain.value.__traceback__)[-1].filename == __file__:
        assert traceback.extract_tb(jitted.value.__traceback__)[-1].filename == __file__


def _innermost_user_line(error: BaseException) -> tuple[str, int | None]:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
    return frames[-1].name, frames[-1].lineno


def test_what_was_done_before_stays_done() -> None:
    @jitla.jit
    def f(x, log, held):
        x += 1
        log.append(x * 2)
        held.v = x + 1
        x[99] = 0
        return x

    class Held:
        v = None

    x, log, held = ERRORS_X.copy(), [], Held()
    with pytest.raises(IndexError):
        f(x, log, held)
    np.testing.assert_array_equal(x, ERRORS_X + 1)
    np.testing.assert_array_equal(log[0], (ERRORS_X + 1) * 2)
    np.testing.assert_array_equal(held.v, ERRORS_X + 2)
    assert type(log[0]) is type(held.v) is np.ndarray


def test_a_handler_sees_the_exception_at_its_line() -> None:
    @jitla.jit
    def f(x):
        steps = []
        try:
            y = x * 2
            steps.append("before")
            y = y + np.ones(4)
            steps.append("after")
        except ValueError as error:
            steps.append(str(error)[:8])
        finally:
            steps.append("finally")
        return steps, x + 1

    steps, _ = f(ERRORS_X)
    assert steps == ["before", "operands", "finally"]
