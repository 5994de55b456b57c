"""Instrumented functions that are called, and the user's frames."""

from __future__ import annotations

import gc
import linecache
import traceback
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np
import pytest

import jitla
from jitla.cli import demo_algorithms
from jitla.tracing import INSTRUMENTED
from jitla.tracing.frames import frame_kind, user_line
from tests.tracing.sameness import same

# Instrumented functions: as the globals are now.

PROGRAMS = {
    "rebind": """
G=3.0; K=[1]
def h(x): return np.exp(x)*G
@jit
def g(a,b): return h(a)+np.sqrt(np.abs(b))*G
n=[0]
def f(a,b):
    global G
    n[0]+=1
    r=[g(a,b)]
    G=np.arange(6.)
    r.append(g(a,b))
    G+=1
    r.append(g(a,b))
    old=np.exp
    seen=[]
    def fake(x): seen.append(type(x).__name__); x+=1; return x*2
    np.exp=fake
    try: r.append(g(a,b)); r.append(g(a.copy(),b))
    finally: np.exp=old
    r.append(g(a,b))
    G=2
    return r, seen
""",
    "rebind2": """
import math
def act(x): return np.maximum(x,0)
@jit
def g(a,b): return act(a)+len([a,b])
def f(a,b):
    global act, len
    r=[g(a,b)]
    old=act
    act=lambda x: x*3
    r.append(g(a,b))
    act=np.tanh
    r.append(g(a,b))
    len=lambda x: 100
    r.append(g(a,b))
    del len
    r.append(g(a,b))
    act=old
    return r
""",
    "monkey": """
class A:
    def m(self,x): return x*2
@jit
def g(o,a): return o.m(a)+1
def f(a,b):
    o=A(); r=[g(o,a)]
    o.m=lambda x: x*5
    r.append(g(o,a))
    old=A.m
    A.m=lambda s,x: x-1
    r.append(g(A(),a)); A.m=old
    r.append(g(A(),a))
    return r
""",
    "codeswap": """
def h(x): return x*2
def k(x): return x*7
@jit
def g(a): return h(a)+1
def f(a,b):
    r=[g(a)]
    c=h.__code__
    h.__code__=k.__code__
    r.append(g(a))
    h.__code__=c
    h.__defaults__=(b,)
    r.append(g(a)); h.__defaults__=None
    return r
""",
    "defaultsmut": """
def h(x,k=2): return x*k
def mk(c):
    def q(x,*,k=1): return x*c+k
    return q
Q=mk(3)
@jit
def g(a): return h(a)+Q(a)
def f(a,b):
    r=[g(a)]
    h.__defaults__=(5,); Q.__kwdefaults__={'k':9}
    r.append(g(a)); h.__defaults__=(2,); Q.__kwdefaults__={'k':1}
    Q.__closure__[0].cell_contents=4
    r.append(g(a)); Q.__closure__[0].cell_contents=3
    return r
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_called_functions_behave_as_plain_ones(program: str) -> None:
    same(program)


def test_inner_functions_are_let_go() -> None:
    def makes(c: np.ndarray) -> Callable[..., Any]:
        def power(k: int, x: np.ndarray) -> np.ndarray:
            return x if k == 0 else power(k - 1, x * c)

        return power

    @jitla.jit
    def inside(x: np.ndarray) -> np.ndarray:
        return makes(x)(3, x)

    @jitla.jit
    def outside(x: np.ndarray, function: Callable[..., Any]) -> np.ndarray:
        return function(3, x)

    x = np.full(3, 2.0)
    inside(x), outside(x, makes(x))
    gc.collect()
    before = len(INSTRUMENTED)
    for _ in range(20):
        assert (inside(x) == 16).all() and (outside(x, makes(x)) == 16).all()
    gc.collect()
    assert len(INSTRUMENTED) <= before


def test_code_of_its_own_is_a_library_but_programs_that_are_shown_are_not() -> None:
    assert INSTRUMENTED.get(jitla.jit) is None
    assert INSTRUMENTED.get(jitla.explain) is None
    shown = demo_algorithms.l2svm
    assert INSTRUMENTED.get(getattr(shown, "__wrapped__", shown), decorated=True) is not None
    assert INSTRUMENTED.get(jitla.jit) is None


@pytest.mark.parametrize(("place", "module", "library"), [
    ("/home/a/.local/lib/python3.11/site-packages/tool/work.py", "tool.work", True),
    ("/usr/lib/python3/dist-packages/tool/work.py", "tool.work", True),
    ("/opt/stack/scipy/sparse/_compressed.py", "scipy.sparse._compressed", True),
    ("/home/a/projects/tool/work.py", "tool.work", False)])
def test_packages_are_libraries_wherever_they_are_installed(place: str, module: str, library: bool) -> None:
    text = "def double(x):\n    return x * 2.0\n"
    linecache.cache[place] = len(text), None, text.splitlines(keepends=True), place
    space: dict[str, Any] = {"__name__": module}
    exec(compile(text, place, "exec"), space)
    assert (INSTRUMENTED.get(space["double"]) is None) is library


def test_functions_that_are_dropped_are_freed_with_their_globals() -> None:
    gone = []
    for number in range(3):
        name, text = f"<dropped {number}>", f"def double(x):\n    return helper(x) + {number}.0\n" \
            "def helper(x):\n    x[0] = 1.0\n    return x * 2.0\n"
        linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
        space: dict[str, Any] = {"__name__": "nowhere"}
        exec(compile(text, name, "exec"), space)
        function = jitla.jit(space["double"], compile="sync")
        for n in (3, 4):
            assert (function(np.ones(n)) == 2.0 + number).all()
        gone += [ref(space["double"]), ref(space["double"].__code__), ref(space["helper"].__code__)]
        assert function.stats()["calls"] == 2 and function.stats()["kernel_runs"]
        del function, space
    gc.collect()
    assert [each() for each in gone] == [None] * 9


# Frames of the user, as tracebacks and counts show them.


def helper(x):
    return x + np.ones(7)


@jitla.jit
def fails(a):
    y = a * 2
    return helper(y)


def test_a_traceback_ends_at_the_users_line() -> None:
    with pytest.raises(ValueError, match="broadcast") as caught:
        fails(np.ones(3))
    frames = [f for f in traceback.extract_tb(caught.value.__traceback__) if "jitla/tracing" in f.filename]
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert last.name == "helper" and not frames


def test_generators_too() -> None:
    @jitla.jit
    def steps(a):
        yield a * 2
        yield helper(a)

    running = steps(np.ones(3))
    next(running)
    with pytest.raises(ValueError, match="broadcast") as caught:
        next(running)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "helper"


def test_user_line_is_here() -> None:
    file, line = user_line()
    assert file == __file__ and line == test_user_line_is_here.__code__.co_firstlineno + 1


def test_own_files_are_internal() -> None:
    assert frame_kind(frame_kind.__code__) == 1 and frame_kind(helper.__code__) == 0
