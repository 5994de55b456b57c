"""Section T: exceptions: type, text, line, and effects before them."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

import jitla
from tests.semantics.oracle import check_warnings as check
from tests.semantics.oracle import nothing_compiles

# Section T: exceptions: type, text, line, and what was done before them.

GIVEN = """
def make(n):
    return np.linspace(1.0, 2.0, n), np.arange(n)
"""


@pytest.mark.parametrize("statement", [
    "y + np.ones(len(x) + 1)", "x.reshape(7, -1)", "np.sum(x, axis=2)", "x @ np.ones(len(x) + 1)",
    "x[len(x)]", "x[i + 1]", "np.add(x)", "np.add(x, 1, 2, 3)", "x.sum(axes=1)", "x['a']", "x + 'a'",
    "np.concatenate([x, y.reshape(1, -1)])", "i ** -1", "np.linalg.inv(np.zeros((2, 2)) * x[0])",
    "x.astype('nonsense')", "x[0, 0]", "np.array(['a', 'b']).astype(float)", "x.nothing", "i << 'x'",
    "np.zeros(2)[5]", "x.resize(3, refcheck=1)", "np.take(x, i + 1)", "1 / 0", "[][1]",
])
def test_t1_t2_errors_of_every_kind_at_their_line(statement: str):
    check(GIVEN + f"""
log = []
@jit
def f(x, i):
    y = x * 2.0
    log.append(1)
    z = {statement}
    log.append(z)
    return y
""", filters=("always", "error"), sizes=(3, 1000), threads=(1,))


def test_t2_before_later_effects():
    check(GIVEN + """
@jit
def f(x, i):
    done = []
    try:
        y = x[i] * 2
        done.append(y)
        z = y[i + 1]
        done.append(z)
    except IndexError as error:
        done.append(str(error))
    try:
        with np.errstate(over='raise'):
            w = y * 1e308
            done.append(w)
            w = w * 10
            done.append(w)
    except FloatingPointError as error:
        done.append(str(error))
    return done
""")


def test_t3_handlers_and_contexts_see_the_error():
    check(GIVEN + """
import contextlib
class Context:
    def __init__(self): self.seen = []
    def __enter__(self): return self
    def __exit__(self, kind, error, trace):
        self.seen.append((kind, str(error)))
        return kind is FloatingPointError
@jit
def f(x, i):
    context, order = Context(), []
    with np.errstate(divide='raise'):
        with context:
            y = x + 1
            y = y / (x - x)
            order.append('not here')
        with contextlib.suppress(FloatingPointError):
            y = 1 / (i - i)
            order.append('nor here')
        try:
            try:
                y = 1.0 / (x - x)
            finally:
                order.append('finally')
        except ArithmeticError:
            order.append('except')
    return y, order, context.seen
""")


def test_t4_t5_what_was_done_before_stays():
    check("""
@jit
def f(x, y):
    caught = []
    x += 1
    try:
        x[len(x)] = 0
    except IndexError:
        caught.append('index')
    with np.errstate(divide='raise'):
        try:
            np.divide(1, x, out=x)
        except FloatingPointError as error:
            caught.append(str(error))
        try:
            y[...] = 1 / y
        except FloatingPointError as error:
            caught.append(str(error))
        try:
            y /= 0.0
        except FloatingPointError as error:
            caught.append(str(error))
    try:
        y[:] = np.ones(len(y) + 1)
    except ValueError as error:
        caught.append(str(error))
    return caught
def make(n):
    return np.arange(n) - 2.0, np.arange(float(n))
""")


def test_t5_casts_into_memory():
    check("""
@jit
def f(x, i, g):
    caught = []
    try:
        i += x
    except TypeError as error:
        caught.append((type(error).__name__, str(error)))
    i[...] = x * 2.5
    with np.errstate(over='raise', invalid='raise'):
        try:
            g[...] = x * 1e300
        except FloatingPointError as error:
            caught.append(str(error))
        try:
            g += x
        except FloatingPointError as error:
            caught.append(str(error))
    g[...] = x * 1e200
    return caught
def make(n):
    return np.arange(float(n)), np.arange(n), np.zeros(n, 'f4')
""")


def test_t6_classes_of_exceptions():
    check(GIVEN + """
import pickle
@jit
def f(x, i):
    kinds = []
    for job in (lambda: np.sum(x, axis=5), lambda: np.add.reduce(x.astype('M8[s]')),
                lambda: np.linalg.cholesky(-np.eye(2) * x[0]), lambda: x.__iadd__(1j)):
        try:
            job()
        except Exception as error:
            kinds.append((type(error).__name__, type(error).__mro__[1].__name__, str(error)))
            assert type(pickle.loads(pickle.dumps(error))) is type(error)
    return kinds
""")


def test_t7_memory_errors_at_the_statement():
    check(GIVEN + """
@jit
def f(x, i):
    try:
        return np.zeros((1 << 25, 1 << 25)) + x
    except MemoryError as error:
        return str(error)
""")


def test_t8_the_users_own_exceptions():
    check("""
class Own(BaseException): pass
@jit
def work(x, y, kind):
    x += 1
    y[1:] = x[:-1] / 2
    z = x * y
    if kind == 0:
        raise KeyError(z)
    if kind == 1:
        raise Own('mine', z.sum())
    if kind == 2:
        raise StopIteration(3)
    raise KeyboardInterrupt
def f(x, y):
    seen = []
    for kind in range(4):
        try:
            work(x, y, kind)
        except BaseException as error:
            seen.append((type(error).__name__, [*error.args]))
    return seen
def make(n):
    return np.arange(float(n)), np.ones(n)
""")


def test_t9_what_fails_inside_never_surfaces(monkeypatch: pytest.MonkeyPatch):
    source = """
import numpy as np, warnings
@jit
def f(x, y):
    a = x / y
    y[1:] = np.sqrt(a[:-1])
    with np.errstate(divide='ignore'):
        b = 1 / (y - y)
    return a, b, np.log(y)
def make(n):
    return np.linspace(-1.0, 1.0, n), np.arange(n) % 3.0
"""
    with nothing_compiles(monkeypatch):
        check(source, failures=True)


def test_t9_nor_do_warnings_get_lost_when_looking_fails(monkeypatch: pytest.MonkeyPatch):
    """A fault in the search for warnings costs the warning, not the call."""
    def broken(*args: object) -> None:
        raise LookupError("a fault of jitla's own")

    monkeypatch.setattr("jitla.tracing.fp_warnings.WarningReporter.report", broken)
    fast = jitla.jit(lambda_free)
    assert np.isinf(fast(np.zeros(5) + 0.0)).all()
    assert fast.stats()["failures"] == 1


def lambda_free(x):
    return 1.0 / x


def test_t10_recursion():
    check(GIVEN + """
@jit
def deep(x, k):
    return x if k == 0 else deep(x + 1, k - 1)
@jit
def endless(x):
    return endless(x + 1)
def f(x, i):
    try:
        endless(x)
    except RecursionError as error:
        return deep(x, 50), type(error).__name__
""", sizes=(3,), calls=2)


def test_t1_tracebacks_hold_the_users_frames_only():
    def plain(x):
        with np.errstate(divide="raise"):
            y = x * 2
            return 1 / y

    def lines(function):
        try:
            function(np.zeros(3))
        except FloatingPointError as error:
            frames = traceback.extract_tb(error.__traceback__)
            return [(f.name, f.lineno) for f in frames if f.filename == __file__]
        raise AssertionError("it did not raise")

    assert lines(jitla.jit(plain))[-1] == lines(plain)[-1]
    with np.errstate(all="raise"):
        assert lines(jitla.jit(plain))[-1] == lines(plain)[-1]
