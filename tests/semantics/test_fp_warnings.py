"""Section S: floating-point warnings and the error state."""

from __future__ import annotations

import ctypes
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.codegen import level_target
from jitla.config import TracingThresholds, current
from tests.semantics.oracle import FILTERS, module
from tests.semantics.oracle import check_warnings as check

# Section S: floating-point warnings and the error state.

AT_ONCE = TracingThresholds(min_replay_ns=0.0)  # flag tests are compiled as soon as they may be
BAD = """
def make(n):
    x = np.linspace(-1.0, 1.0, n)
    y = x.copy()
    y[n // 2] = 0.0
    y[-1] = np.inf
    return x, y
"""


def test_s1_once_per_line_at_the_users_line():
    found = check(BAD + """
@jit
def f(x, y):
    a = x / y
    b = np.log(y)
    return a, b
""")
    assert found == []  # the last filter is "error"
    found = check(BAD + """
@jit
def f(x, y):
    return 1.0 / y
""", filters=("default",))
    assert len(found) == 1 and "divide by zero encountered in divide" in found[0]


def test_s1_helpers_warn_at_their_lines():
    check(BAD + """
def ratio(x, y):
    return x / y

def both(x, y):
    a = ratio(x, y)
    return a + ratio(y,
                     y)

@jit
def f(x, y):
    return both(x, y), both(y, y)
""")


def test_s1_what_numpy_does_in_place_warns_at_its_line():
    check("""
def make(n):
    return np.arange(n, dtype=np.float32), [np.float64(3)]

@jit
def f(x, held):
    total = np.float32(1)
    total *= 1e300
    total -= total
    small = np.int8(100)
    small += np.int8(100)
    x[0] += 1e300
    held[0] /= 0
    half = x.astype(np.float16)
    half[1:] /= 0
    half[0] = 1e30
    half[:] = 1e30
    return total, small, held, half
""")


def test_s1_what_overflows_in_place_is_the_operation():
    check("""
def make(n):
    return np.full((3, n), 2, np.float32), np.full(n, 1e50), np.full((3, n), 1e30, np.complex64)

@jit
def f(x, y, z):
    x[1:] *= y + 1.0
    t = x * np.float32(2)
    t -= y * 2
    np.multiply(x[0], y + 1, out=x[2])
    z *= y + 1.0
    x[0] = y + 1.0
    return x, t, z
""")


def test_s1_the_same_tape_from_other_lines():
    check("""
flags = iter([0, 1, 1, 0] * 100)
@jit
def f(x, first):
    if first:
        y = 1.0 / x
    else:
        y = 1.0 / x
    return y * 2
calls = 0
def make(n):
    global calls
    calls += 1
    return np.arange(float(n)), calls % 3 == 0
""", filters=("always", "default"), calls=8)


def test_s2_two_warnings_of_one_operation_in_order():
    check("""
@jit
def f(x, y):
    return x / y
def make(n):
    x = np.zeros(n)
    x[0] = 1.0
    return x, np.zeros(n)
""")


NAMES = [
    "x / z", "x // z", "x % z", "np.fmod(x, z)", "np.sqrt(x)", "x ** 0.5", "np.log(x)", "np.log2(x)",
    "np.log10(x)", "np.log1p(x - 5)", "np.exp(x * 1000)", "np.exp2(x * 5000)", "np.expm1(x * 1000)",
    "np.sinh(x * 1000)", "np.cosh(x * 1000)", "np.arcsin(x * 2)", "np.arccos(x * 2)",
    "np.arccosh(x)", "np.arctanh(x * 2)", "np.sin(x / z)", "np.tan(1 / z)", "x * 1e308 * 1e308",
    "x + np.inf - np.inf", "(x * 1e200) ** 2", "np.square(x * 1e200)", "1 / z", "z ** -1",
    "np.reciprocal(z)", "np.power(x, 0.5)", "np.power(z, -1.5)", "np.hypot(x * 1e308, x * 1.7e308)",
    "(x / z).astype('i8')", "(x * 1e300).astype('f4')", "(x * 1e30).astype('i4')",
    "(x * 1.7e308).sum() + 1", "np.sum(x * 1.7e308) + 1", "(1 / z - 1 / z).sum()",
    "np.add.reduce(1 / z - 1 / z)", "(1 / z - 1 / z).mean()", "np.mean(1 / z - 1 / z)",
    "np.var(1 / z)", "(1 / z).std()", "(x * 1e300).var()", "np.prod(x * 1e300)",
    "(x * 1e200) @ (x * 1e200)", "np.dot(1 / z, z)", "np.cumsum(1 / z - 1 / z)",
    "x.sum() / z.sum()", "np.divide(x.sum(), z.sum())", "-x.sum() / (z.sum() * 2)",
    "np.log(z.sum())", "np.sqrt(x.min())", "np.exp(x.max() * 1000)", "(x.max() * 1e308) * 1e308",
    "i // j", "i % j", "np.fmod(i, j)", "i / j", "i // 0", "i % 0", "(-i) // j", "u // w", "u % w",
    "i.sum() // j.sum()", "np.where(z > 0, x / z, 0.0)", "np.maximum(1 / z, 0)", "np.abs(x / z)",
    "np.rad2deg(x * 1e307)", "np.logaddexp(x / z, 1)", "np.clip(x / z, 0, 1)", "-(x / z)",
]
OPERANDS = """
def make(n):
    x = np.linspace(-1.0, 2.0, n)
    i = np.arange(n)
    return x, np.zeros(n), i, i * 0, i.astype('u2'), np.zeros(n, 'u2')
"""


@pytest.mark.parametrize("expression", NAMES)
def test_s3_the_operations_name(expression: str):
    check(OPERANDS + f"""
@jit
def f(x, z, i, j, u, w):
    return {expression}
""", filters=("always", "default"), sizes=(3, 1000), threads=(1,))


@pytest.mark.parametrize("how", ["ignore", "warn", "raise", "call", "print", "log"])
@pytest.mark.parametrize("kind", ["divide", "over", "invalid", "under", "all"])
def test_s4_error_state(how: str, kind: str, capfd: pytest.CaptureFixture[str]):
    check(BAD + f"""
said = []
class Log:
    def write(self, text): said.append(text)
def called(*args): said.append(args)
@jit
def f(x, y):
    a = x * 2
    b = caught = None
    try:
        with np.errstate({kind}={how!r}, call={'Log()' if how == 'log' else 'called'}):
            b = a / y
            c = np.exp(a * 1000)
            a = np.sqrt(x) + c
    except FloatingPointError as error:
        caught = str(error)
    d = x / y
    heard = list(map(str, said))
    said.clear()
    return a, b, d, caught, heard
""", filters=("always", "default", "error"), sizes=(5, 1000), threads=(1,))
    capfd.readouterr()


@pytest.mark.parametrize("setting", [
    {"all": "ignore"}, {"all": "raise"}, {"divide": "raise"}, {"under": "warn"}, {"invalid": "ignore"},
])
def test_s4_around_the_call(setting: dict[str, str]):
    check(BAD + """
@jit
def f(x, y):
    a = x / y
    return np.exp(a * -1000) + np.sqrt(a)
""", setting=lambda: np.errstate(**setting))


def test_s4_global_decorator_nested():
    check(BAD + """
@np.errstate(divide='ignore')
def quiet(x, y):
    return x / y
@jit
def f(x, y):
    a = quiet(x, y)
    old = np.seterr(invalid='ignore')
    try:
        b = np.sqrt(x)
        with np.errstate(divide='raise'):
            with np.errstate(divide='ignore'):
                c = 1 / (x - x)
            d = x + 1
            with np.errstate(divide='warn'):
                e = 1 / (x - x)
    finally:
        np.seterr(**old)
    return a, b, c, d, e, np.sqrt(-np.abs(y))
""")


def test_s4_raises_inside_the_users_try_at_its_line():
    check(BAD + """
@jit
def f(x, y):
    done = []
    with np.errstate(all='raise', under='ignore'):
        try:
            a = x + 1.0
            done.append(1)
            b = a / (y - y)
            done.append(2)
        except FloatingPointError as error:
            done.append((str(error), error.__traceback__.tb_lineno))
    return done
""")


def test_s5_underflow_only_if_asked():
    check("""
@jit
def f(x):
    a = np.exp(-x)
    with np.errstate(under='warn'):
        b = a * 1e-300
    with np.errstate(all='raise'):
        c = np.exp(-x) * 1e-308
    return a, b, c
def make(n):
    return np.linspace(1, 800, n)
""")


def test_s6_integers_and_casts():
    check("""
@jit
def f(i, j, x):
    return i * 2**40, i // j, i % j, x.astype('i4'), x.astype('f4'), (i.max() + 1) - i.max()
def make(n):
    return np.arange(n) << 40, np.arange(n) % 3, np.geomspace(1e-3, 1e300, n)
""", filters=("always", "default"))


def test_s7_both_branches_and_products_with_zero():
    check(BAD + """
@jit
def f(x, y):
    a = np.where(y > 0, 1 / (y - y), 0.0)
    b = np.sqrt(x) * 0
    return a.sum() + b.max()
""")


CLEAN = [
    "np.where(x > 0, x, -x)", "1 / (1 + np.exp(-x * 500))", "np.tanh(x * 1e3)",
    "np.log1p(np.exp(-np.abs(x)))", "x.astype('i8') + 1", "np.sqrt(x * x)", "np.maximum(x, 0) / 3",
    "x / np.where(x == 0, 1, x)", "np.exp(-x * x * 1e3)", "x.mean() / x.std()",
    "(x - x.mean()) / x.std()", "np.arctan2(x, x)", "np.floor(x * 10) % 3", "x.max() - x.min()",
    "np.power(np.abs(x), 1.5)", "np.cbrt(x)", "np.log(np.abs(x) + 1e-300)", "x[1:] / (x[:-1] + 9)",
    "np.clip(x, 0, 1) * 2", "(x > 0) & (1 / (x + 9) > 0)", "np.nan_to_num(x) + 1",
    "(x + x[::-1]).sum() / x.size", "np.sin(x) / np.cos(x)", "x // 0.3",
]


@pytest.mark.parametrize("nans", [False, True])
@pytest.mark.parametrize("expression", CLEAN)
def test_s8_no_spurious_warnings_and_no_slow_path(
    expression: str, nans: bool, monkeypatch: pytest.MonkeyPatch
):
    """Lanes that nobody asked for raise nothing: not even a look by NumPy is needed."""
    cpu = current().cpu
    if nans and cpu and "avx" not in level_target(cpu).features:
        pytest.skip("comparisons of these processors raise a flag for NaN, and NumPy looks")
    told = []
    monkeypatch.setattr("jitla.tracing.force.BlockCloser._give_warnings", lambda *a: told.append(a))
    source = f"""
@jit
def f(x):
    return {expression}
def make(n):
    x = np.linspace(-1.0, 1.0, n) + 1e-3
    if {nans}:
        x[::5] = np.nan
    return x
"""
    for n in (2, 3, 7, 8, 9, 15, 17, 63, 65, 129, 1000, 8193):
        if nans and "astype" in expression:
            continue  # NumPy warns
        names: dict = {"np": np, "jit": jitla.jit}
        assert compile_and_call(source, names, n) is not None
        assert not told, (expression, n)


def compile_and_call(source: str, names: dict, n: int) -> object:
    from tests.semantics.oracle import module

    made = module("import numpy as np\n" + source, f"clean-{n}", jitla.jit)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        made["f"](made["make"](n))
        return made["f"](made["make"](n))


@pytest.mark.parametrize("at", [0, 1, 500_000, 999_999])
def test_s9_flags_of_every_thread(at: int):
    found = check(f"""
@jit
def f(x):
    return np.sqrt(x) + 1
def make(n):
    x = np.ones(1_000_000)
    x[{at}] = -1.0
    return x
""", sizes=(1,), filters=("always",), calls=2)
    assert len(found) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="asks libm")
def test_s9_the_callers_sticky_flags_stay():
    libm = ctypes.CDLL("libm.so.6")
    fast = jitla.jit(_halves)
    x = np.zeros(100)
    with np.errstate(all="ignore"):
        fast(x, x)
        libm.feclearexcept(0x3D)
        fast(x, x)
        assert not libm.fetestexcept(0x0D)
        libm.feraiseexcept(0x08)
        fast(x, x)
        kept = libm.fetestexcept(0x0D)
        libm.feclearexcept(0x3D)
    assert kept == 0x08


def _halves(x, y):
    return x / 2.0 + y * 3.0


def _ratio(x, y):
    return x / y


@pytest.mark.threads
def test_s10_threads_start_with_the_default_state():
    fast, x, found = jitla.jit(_ratio), np.zeros(9), []

    def work() -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fast(x, x)
        found.append([str(w.message) for w in caught])

    with np.errstate(all="ignore"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        work()
    assert found == [["invalid value encountered in divide"], []]


def test_s10_generators_and_coroutines():
    check("""
import asyncio
@jit
def steps(x):
    with np.errstate(divide='ignore'):
        yield 1 / x
        yield 2 / x
    yield 3 / x
@jit
async def later(x):
    await asyncio.sleep(0)
    with np.errstate(invalid='raise'):
        try:
            y = x / x
        except FloatingPointError as error:
            y = str(error)
    return y
def f(x):
    return list(steps(x)), asyncio.run(later(x))
def make(n):
    return np.arange(float(n))
""", filters=("always", "default", "error"))


def test_s11_filters_inside():
    check(BAD + """
@jit
def f(x, y):
    b = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            a = x + 1
            b = a / (y - y)
            a = b
    except RuntimeWarning as warning:
        b = str(warning), b
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        c = x / (y - y)
        d = np.sqrt(c - 5)
    return a, b, c, d, [(str(w.message), w.lineno) for w in caught], np.log(x)
""")


def test_s11_shown_again_after_the_filters_changed():
    check(BAD + """
@jit
def f(x, y):
    a = x / y
    with warnings.catch_warnings():
        pass
    return a, np.log(y)
""", filters=("default", "module", "once"))


@pytest.mark.parametrize("arguments", [
    ("ignore", "divide by zero.*"), ("error", "invalid value.*"), ("always", ".*in log"),
])
def test_s11_filters_by_text(arguments: tuple[str, str]):
    class Setting(warnings.catch_warnings):
        def __enter__(self):
            made = super().__enter__()
            warnings.filterwarnings(*arguments)
            return made

    check(BAD + """
@jit
def f(x, y):
    a = x / y
    return a + np.log(y), np.sqrt(x)
""", filters=("default", "always"), setting=Setting)


def test_s12_tracing_adds_no_warnings():
    found = check("""
@jit
def f(x, i):
    y = x.copy()
    y[1:] = x[:-1] * 2
    y += np.sort(x)
    s = float(y.sum()) + int(i.max()) + np.median(y)
    return [np.concatenate([y, x]), np.unique(i), y.reshape(-1, 1) @ x.reshape(1, -1), s, y[i % 2 == 0]]
def make(n):
    return np.linspace(0, 1, n), np.arange(n)
""")
    assert found == []


def test_s13_the_error_state_is_untouched():
    state = np._core.umath._extobj_contextvar  # type: ignore[attr-defined]

    def fails(x, y):
        z = (x / y).sum() / y.sum()
        return np.ones(3) + x + z

    fast, before = jitla.jit(fails), state.get()
    with np.errstate(all="ignore"):
        inside = state.get()
        fast(np.zeros(3), np.zeros(3))
        with pytest.raises(ValueError):
            fast(np.zeros(4), np.zeros(4))
        assert state.get() is inside
    assert state.get() is before


def test_s14_other_categories_keep_file_and_line():
    check("""
@jit
def f(x):
    a = np.add(x, 1, where=x > 5)[:0]
    b = np.polyfit(np.ones(len(x)), x, 2)[:0]
    c = np.mean(x[:0])
    d = x[:0].mean()
    e = np.nanmean(x * np.nan)
    z = (x + 1j).astype(float)
    return a, b, c, d, e, z, np.var(x[:1], ddof=1)
def make(n):
    return np.linspace(0, 1, n)
""", sizes=(5, 100))


def test_s15_flags_that_were_there_before():
    libm = ctypes.CDLL("libm.so.6") if sys.platform == "linux" else None
    if libm is None:
        pytest.skip("asks libm")
    fast = jitla.jit(_halves)
    x = np.ones(100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            libm.feraiseexcept(0x0D)
            fast(x, x)
    libm.feclearexcept(0x3D)


def test_d6_masked_lanes_raise_nothing():
    found = check("""
@jit
def f(x, y):
    out = np.zeros_like(x)
    np.divide(x, y, where=y != 0, out=out)
    with np.errstate(all='raise'):
        np.log(y, where=y > 0, out=out)
    return out
def make(n):
    return np.ones(n), np.arange(n) % 2.0
""")
    assert found == []


STORES = [
    "x /= y", "x += y * 1e308", "x *= x", "x[...] = 1 / y", "x[1:] = x[:-1] / y[1:]", "x -= y / (y - y)",
    "np.divide(x, y, out=x)", "np.sqrt(x, out=x)", "x[::2] /= y[::2]", "x[0] = x[1] / (y[1] - y[1])",
    "x[1:] += np.log(x[:-1])", "x[:] = np.log(y) + x", "y[:] = x; x /= y - y", "x[y > 0] /= 0.0",
    "x //= y", "x %= y", "x **= 0.5",
]


@pytest.mark.parametrize("statement", STORES)
def test_stores_into_memory_that_the_block_reads(statement: str):
    check(f"""
@jit
def f(x, y):
    {statement}
    return x
def make(n):
    return np.linspace(-2.0, 1.5e308, n), np.arange(float(n))
""", filters=("always", "default", "error"))


def test_values_computed_later_warn_once():
    """What a recipe computes a second time has warned already."""
    check(BAD + """
def look(value):
    return float(value)
@jit
def f(x, y):
    a = 1 / (y - y)
    b = a * 2 - a
    s = a.sum()
    if look(s) > 0:
        return b
    return a
""", filters=("always",))


def test_a_line_that_warned_is_not_done_twice(monkeypatch: pytest.MonkeyPatch):
    """Warnings that would not be shown again cost no second run by NumPy."""
    from jitla.tracing import fp_warnings as effects

    played = []
    play = effects._Replay.run
    monkeypatch.setattr(effects._Replay, "run",
                        lambda self, *a: (played.append(1), play(self, *a))[1])
    fast, x = jitla.jit(_ratio), np.zeros(1000)
    for name in FILTERS[:5]:
        with warnings.catch_warnings(record=True), jitla.options(thresholds=AT_ONCE):
            warnings.simplefilter(name)
            before = len(played)
            for _ in range(20):
                fast(x, x)
            wanted = {"always": effects.MIN_REPLAYS}.get(name, 0)
            assert len(played) - before == wanted, name


def test_flags_for_nothing_are_seen_by_the_program(monkeypatch: pytest.MonkeyPatch):
    """exp of infinity raises a flag here and none in NumPy: it does the work only twice."""
    from jitla.tracing import fp_warnings as effects

    played = []
    play = effects._Replay.run
    monkeypatch.setattr(effects._Replay, "run",
                        lambda self, *a: (played.append(1), play(self, *a))[1])

    def saturate(x):
        return 1 / (1 + np.exp(x))

    fast, x = jitla.jit(saturate), np.full(1000, np.inf)
    with warnings.catch_warnings(record=True) as caught, jitla.options(thresholds=AT_ONCE):
        warnings.simplefilter("always")
        for _ in range(20):
            fast(x)
        assert len(played) == effects.MIN_REPLAYS and not caught
        x[5] = 1000.0
        fast(x)
        assert [str(w.message) for w in caught] == ["overflow encountered in exp"]


# ---------------------------------------------------------------------- decisions, as documented


def test_policy_values_that_nobody_reads_do_not_warn():
    def dead(x):
        unused = np.log(x)
        del unused
        y = np.sqrt(x - 1)
        y = x + 1
        return y

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with warnings.catch_warnings(record=True) as caught:
            fast = jitla.jit(dead)
            for _ in range(3):
                fast(np.zeros(9))
        assert not caught


def test_policy_a_warning_comes_when_the_value_is_needed():
    order: list[str] = []

    def late(x):
        y = 1 / x
        order.append("behind")
        return y

    fast = jitla.jit(late)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *rest: order.append(str(message))
        fast(np.zeros(3))
    assert order == ["behind", "divide by zero encountered in divide"]


def test_policy_of_several_operations_on_large_overwritten_memory_the_first_is_named():
    def inside(x, y):
        x[...] = (x - y) * y
        return x

    fast, found = jitla.jit(inside), {}
    for n in (5, 1 << 16, 1 << 18):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fast(np.full(n, 2e200), np.full(n, 1e200))  # the difference is finite, the product is not
        found[n] = [str(w.message).removeprefix("overflow encountered in ") for w in caught]
    assert found == {5: ["multiply"], 1 << 16: ["multiply"], 1 << 18: ["subtract"]}


def test_policy_inexact_flags_of_very_large_overwritten_memory_warn_nobody(
    monkeypatch: pytest.MonkeyPatch
):
    """exp of infinity raises a flag for nothing; whether `x` overflowed cannot be told any more."""
    def inside(x):
        x -= np.exp(x) * 3
        return x

    monkeypatch.setattr("jitla.recompile.program_source.MAX_SAVED_INEXACT_BYTES", 1 << 20)
    fast = jitla.jit(inside)
    for value in (np.inf, 1000.0):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            x = fast(np.full(1 << 18, value))
        assert not np.isfinite(x).any() and not caught


def test_policy_the_line_of_a_path_seen_late():
    def paths(x, kind):
        y = x + 1.0
        if kind:
            y = np.log(x)
        y = y * 2.0
        return y

    fast = jitla.jit(paths)
    start = paths.__code__.co_firstlineno
    for _ in range(3):
        fast(np.ones(5), False)
    lines = []
    for _ in range(3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fast(np.zeros(5), True)
        lines += [w.lineno - start for w in caught if w.filename == __file__]
    assert lines[1:] == [3, 3]


def test_s3_what_is_overwritten_is_asked_where_another_view_of_it_is_an_operand_too():
    found = check("""
def make(n):
    x = np.linspace(1.0, 2.0, n)
    return x, x[...], np.zeros(n)

@jit
def f(x, same, y):
    z = np.dot(np.square(y), x)
    z = 3.0 // y[:, None]
    same *= np.square(y + 1.0)
    return z
""", filters=("always",))
    assert {text.rpartition(" ")[2] for text in found} == {"floor_divide"}


def test_s3_what_is_overwritten_is_summed_in_its_own_order_again():
    """Whether infinities of both signs meet before a NaN depends on how columns lie in memory."""
    found = check("""
def make(n):
    w = np.asfortranarray(np.zeros((33, 7)))
    w[[8, 16, 24]] = np.array([[np.inf], [-np.inf], [np.inf]])
    w[7] = np.nan
    return w,

@jit
def f(w):
    for i in range(4):
        w[i] = w[i:].sum(axis=0)
""", filters=("always",))
    assert found


def test_s1_operators_on_scalars_are_named_as_such():
    for line in ("x[1] -= s * x[0]", "t = x[1]; t -= s; x[0] = t", "x[1] = x[1] - s", "x[0] = s - x[1]",
                 "x[1] = np.subtract(x[1], s)", "x[0] = np.float32(0.0) * s"):
        found = check(f"""
def make(n):
    return np.array([1.0, np.inf, 3.0], "f4"),

@jit
def f(x):
    s = (1.0 + x * 7).sum()
    {line}
    return x
""", filters=("always",))
        assert len(set(found)) == 1


def test_in_place_operations_on_numbers_warn_at_their_lines():
    """Whatever is on the right; the same names hold arrays and lazy scalars at other times."""
    check("""
class Odd:
    def __rmul__(self, other):
        return other * 2
@jit
def f(s, k, x):
    t = s
    s *= k
    s += (
        k * s)
    s -= s
    for each in (x.sum(), np.float32(3e38), 2, np.ones(2), [1], "a", Odd()):
        u = each
        u *= 3
        u *= 2 if isinstance(u, (list, str)) else each
        t = t * 0 + 1
        t *= u if isinstance(u, (np.ndarray, float)) else 1
    def inside(v):
        nonlocal k
        k *= v
        return k
    s += inside(s)
    try:
        missing *= inside(2)
    except UnboundLocalError as error:
        u = str(error), k
    else:
        missing = 1
    return s, t, u
def make(n):
    return np.float64(1e300), np.float64(1e300), np.full(n, 1e308)
""", sizes=(3,), filters=("always", "default", "error"))


POWERS = [
    "x ** 2", "x ** 2.0", "np.power(x, 2)", "np.power(x, 2.0)", "np.square(x)", "x ** 3", "x ** 3.0",
    "np.power(x, 3)", "y ** -1", "y ** -1.0", "np.power(y, -1)", "np.power(y, -1.0)", "y ** -2",
    "y ** 0.5", "np.power(y, 0.5)", "np.sqrt(y)", "x ** 1", "x ** 1.0", "np.power(x, 1)", "x ** 2.5",
    "x ** np.float64(2)", "np.power(2.0, x)", "np.power(x, x)", "x ** True", "x ** 0", "x ** 0.0",
]


@pytest.mark.parametrize("dtype", ["f8", "f4", "D"])
@pytest.mark.parametrize("expression", POWERS)
def test_powers_are_named_as_numpy_names_them(expression: str, dtype: str):
    """The operator has shortcuts, the function has its own; both may be part of more."""
    for text in (expression, f"{expression} + 1", f"(x + 0) ** 2 - {expression}"):
        source = f"import numpy as np\ndef f(x, y):\n    return {text}\n"
        plain = module(source, f"powers {text}", jitla.jit)["f"]
        fast = jitla.jit(plain)
        x = np.array([1.0, -1e200 if dtype != "f4" else -1e30, np.inf, -0.0]).astype(dtype)
        y = np.array([1.0, 0.0, -2.0, -np.inf]).astype(dtype)
        for _ in range(4):
            (want, expected), (got, found) = _told(plain, x, y), _told(fast, x, y)
            assert sorted(found) == sorted(expected), text  # what NumPy runs warns at once
            np.testing.assert_allclose(got, want, rtol=1e-6)
            assert got.dtype == want.dtype
        assert fast.stats()["calls"] == 4


def _told(f: Any, *args: Any) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = f(*args)
    return value, [str(w.message) for w in caught]


@pytest.mark.parametrize(("shape", "dtype"), [((1,), "f8"), ((2, 3), "f8"), ((5,), "i8"), ((5,), "f4")])
def test_s1_the_first_warning_of_a_new_class_of_shapes_names_its_line(shape: tuple[int, ...], dtype: str):
    """Calls in which nothing warned have shown where the operations come from."""
    check(f"""
calls = 0
@jit
def f(x):
    y = x * 2
    z = np.sqrt(x - 4.0)
    return y, z

def make(n):
    global calls
    calls += 1
    if calls < 6:
        return np.full(5, 9.0),
    return np.ones({shape!r}, {dtype!r}),
""", filters=("always", "default"), sizes=(1,), calls=8)


def test_in_place_operations_warn_at_their_lines_where_underflow_warns_too():
    """Then nothing is traced."""
    check("""
def f(x, k):
    with np.errstate(all="warn"):
        return inner(x, k)
@jit
def inner(x, k):
    x += (
        x)
    t = x[1:]
    t *= x[:-1]
    x[
        0] = np.float64(1e300)
    k["s"] = 1
    k["s"] += 1
    return t
def make(n):
    return np.full(n, 3e38, "f4"), {}
""", sizes=(3, 70), filters=("always", "default", "error"))


@pytest.mark.parametrize("expression", [
    "1 / m", "1 / (k != 0)", "np.reciprocal(m.astype(np.float32))", "1.0 / (m & (k > 0))", "(1 / m).sum()",
])
def test_s1_quotients_by_bools_warn_wherever_one_is_false(expression: str):
    """The rest behind whole vectors is code for one element, where more is known of what is divided by."""
    check(f"""
def make(n):
    k = np.ones(n, np.int64)
    k[-1] = 0
    return k != 0, k

@jit
def f(m, k):
    return {expression}
""", filters=("always",), sizes=(1, 5, 37), calls=2, threads=(1,))


@pytest.mark.parametrize("dtype", ["f4", "i1"])
def test_s1_functions_of_small_integers_into_an_array_warn_as_often(dtype: str):
    """NumPy computes them in half precision, and refuses to write that into integers before it does."""
    check(f"""
def make(n):
    return np.zeros(n, np.int8), np.zeros(n, "{dtype}")

@jit
def f(x, y):
    np.log2(x, out=y)
    return np.log2(x * 1, out=y * 1)
""", filters=("always",), sizes=(5,), calls=2, threads=(1,), failures=True)
