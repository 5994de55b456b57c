"""Liveness and loops of hand-written functions, at the place of a marker in their bytecode."""

from __future__ import annotations

import dis
import random
import sys
from types import CodeType
from typing import Any

import pytest

from jitla.instrument.bytecode import live_locals
from jitla.instrument.instrumented import instrument
from tests.instrument.recording_hooks import Hook, define


def here() -> None:
    """Mark a place: the functions below call it or a variant of it with a number."""


def places(code: CodeType, name: str) -> list[int]:
    """Offsets of the calls of the global `name`, in order."""
    found, loaded = [], False
    for each in dis.get_instructions(code):
        if each.argval == name and each.opname.startswith("LOAD_GLOBAL"):
            loaded = True
        elif loaded and each.opname.startswith("CALL"):
            found.append(each.offset)
            loaded = False
    return found


def live(fn: Any, name: str = "here", which: int = 0) -> set[str]:
    """Live names at a call of `name`, without free variables."""
    names = live_locals(fn.__code__, places(fn.__code__, name)[which])
    assert names is not None
    return set(names)


L2SVM = """
def f(X, Y, w, s, lam, maxiter, test, inner):
    it = 0
    go = True
    g_old = X.T @ Y
    s = g_old
    Xw = X @ w
    while go and it < maxiter:
        step_sz = 0
        Xd = X @ s
        wd = lam * (w * s).sum()
        dd = lam * (s * s).sum()
        continue1 = True
        while continue1:
            tmp_w = w + step_sz * s
            out = 1 - Y * (Xw + step_sz * Xd)
            sv = out > 0
            out = out * sv
            g = wd + step_sz * dd - (out * Y * Xd).sum()
            h = dd + (Xd * sv * Xd).sum()
            step_sz = step_sz - g / h
            continue1 = test(g * g / h)
        w = w + step_sz * s
        Xw = Xw + step_sz * Xd
        out = 1 - Y * Xw
        sv = out > 0
        out = sv * out
        g_new = X.T @ (out * Y) - lam * w
        tmp = (s * g_old).sum()
        go = inner(step_sz * tmp)
        be = (g_new * g_new).sum() / (g_old * g_old).sum()
        s = be * s + g_new
        g_old = g_new
        it = it + 1
    return w
"""


def test_temporaries_of_l2svm_are_dead_at_the_inner_test() -> None:
    f = define(L2SVM)
    code = f.__code__
    calls = [i for i in dis.get_instructions(code) if i.opname == "CALL"]
    lines = L2SVM.splitlines()
    row = next(i for i, line in enumerate(lines, 1) if "= test(" in line)
    inner = next(i.offset for i in calls if _line(code, i.offset) == row)
    names = live_locals(code, inner)
    assert names is not None
    assert names.isdisjoint({"tmp_w", "out", "sv", "g", "h", "g_new", "tmp", "be"})
    assert {"w", "Xw", "Xd", "s", "step_sz", "Y", "wd", "dd", "g_old", "X", "lam"} <= names


def test_temporaries_of_l2svm_are_dead_in_instrumented_code() -> None:
    instrumented = instrument(define(L2SVM), Hook())
    assert instrumented is not None
    code = instrumented.__code__
    row = next(i for i, line in enumerate(L2SVM.splitlines(), 1) if "= test(" in line)
    calls = [i.offset for i in dis.get_instructions(code) if i.opname == "CALL"]
    last = [offset for offset in calls if _line(code, offset) == row]
    for offset in last[-2:]:  # the call of the test, and the hook at the end of the loop
        names = live_locals(code, offset)
        assert names is not None
        assert names.isdisjoint({"tmp_w", "out", "sv", "g", "h", "g_new", "tmp", "be"})
        assert {"w", "Xw", "Xd", "s", "step_sz", "Y", "wd", "dd", "g_old", "X", "lam"} <= names
    assert len(last) >= 3


def _line(code: CodeType, offset: int) -> int | None:
    return next(line for start, end, line in code.co_lines() if start <= offset < end)


def test_straight_line() -> None:
    f = define("def f(a, b):\n    x = a + b\n    y = x * 2\n    here()\n    return y")
    assert live(f) == {"y"}


CASES = [
    ("if a:\n    x = 1\n    y = 2\nhere()\nreturn x if b else 0", {"x", "b"}),
    ("x = 1\nhere()\nx = 2\nreturn x", set()),
    ("x = a\nhere()\ndel x\nreturn b", {"b"}),
    ("x = 1\nwhile a():\n    here()\n    x = x + 1\nreturn b", {"a", "b", "x"}),
    ("for i in a:\n    x = i\n    here()\n    x = i\nreturn b", {"b", "i"}),
    ("t = 1\nfor i in a:\n    t = i * 2\n    here()\nreturn t", {"t"}),
    ("for i in a:\n    t = i * 2\n    here()\nelse:\n    return b\nreturn t", {"b"}),
    ("for i in a:\n    t = i\n    here()\n    if t: break\nelse:\n    return b\nreturn t",
     {"t", "b"}),
    ("while a:\n    here()\n    if b: break\n    a = b\nelse:\n    return b\nreturn a", {"a", "b"}),
    ("for i in a:\n    for j in b:\n        u = i + j\n        here()\n    v = u\nreturn v",
     {"b", "i", "u"}),
    ("try:\n    here()\nexcept E:\n    return a\nreturn b", {"a", "b"}),
    ("x = 1\ntry:\n    x = here()\nexcept E:\n    return x\nreturn b", {"x", "b"}),
    ("x = 1\ntry:\n    x = 2\n    y = here()\nfinally:\n    print(x)\nreturn y", {"x"}),
    ("try:\n    g(b)\nfinally:\n    here()\n    b = a\nreturn b", {"a"}),
    ("with a as x:\n    y = b\n    here()\n    return y", {"y"}),
    ("with a as x:\n    here()\nreturn x", {"x"}),
    ("x = a\nif b:\n    return x\nhere()\nreturn b", {"b"}),
    ("x = here()\nreturn x", set()),
    ("try:\n    x = a\n    x\nexcept NameError:\n    return b\nhere()\nreturn x", {"x"}),
    ("x = y = a\nhere()\nx, y = y, a\nreturn x", {"y", "a"}),
    ("x = a\nhere()\nx += b\nreturn x", {"x", "b"}),
    ("here()\nreturn [i * b for i in a]", {"a", "b", "i"}),
    ("x = 1\nreturn here() and x or b", {"x", "b"}),
    ("match a:\n    case [x, *y]:\n        here()\n        return x\nreturn b", {"x"}),
    ("yield a\nhere()\nyield b", {"b"}),
    ("assert here(), b\nreturn a", {"a", "b"}),
    ("def g(): return b\nhere()\nreturn a", {"a", "b"}),
    ("b = a\ndef g(): return b\ng()\nhere()\nreturn a", {"a", "b"}),
]


@pytest.mark.parametrize(("body", "expected"), CASES)
def test_live_names_at_the_marker(body: str, expected: set[str]) -> None:
    text = "def f(a, b):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    f = define(text)
    names = live(f)
    if "i * b for" in body:
        names |= {"i"}  # a local of the function only where comprehensions are inlined
    assert names == expected


def test_unknown_where_locals_are_read() -> None:
    for text in ("locals()", "eval('a')", "vars()", "exec('a')", "sys._getframe().f_locals"):
        f = define(f"def f(a):\n    here()\n    return {text}")
        assert live_locals(f.__code__, places(f.__code__, "here")[0]) is None
    module = compile("x = 1", "m", "exec")
    assert live_locals(module, 0) is None
    assert live_locals(live.__code__, -1) is None
    assert live_locals(live.__code__, 10**6) is None


def test_offset_of_a_cache_entry_belongs_to_its_instruction() -> None:
    f = define("def f(a, b):\n    x = a\n    here()\n    return x")
    copy_position = places(f.__code__, "here")[0]
    assert live_locals(f.__code__, copy_position + 2) == live_locals(f.__code__, copy_position) == {"x"}


def test_frames_of_suspended_callers_point_at_their_calls() -> None:
    seen = []

    def probe() -> None:
        frame = sys._getframe(1)
        seen.append((frame.f_lineno, live_locals(frame.f_code, frame.f_lasti)))

    f = define(
        "def f(a, b):\n    x = a\n    probe()\n    for i in range(2):\n        y = x\n"
        "        probe()\n        x = y\n    return b\n",
        probe=probe,
    )
    f(1, 2)
    assert seen == [(3, {"x", "b"}), (6, {"y", "b"}), (6, {"y", "b"})]


def _statement(rng: random.Random, depth: int) -> list[str]:
    # a random program whose every read is logged by the names it reads
    name = lambda: rng.choice("pqrs")  # noqa: E731
    kind = rng.randrange(9 if depth else 4)
    if kind < 2:
        return [f"{name()} = mark({name()}, {name()})"]
    if kind == 2:
        return [f"{name()} = {name()}"]
    if kind == 3:
        return [f"if coin(): {rng.choice(['break', 'continue', 'return ' + name()])}"]
    inner = ["    " + line for line in _block(rng, depth - 1)]
    other = ["    " + line for line in _block(rng, depth - 1)]
    match kind:
        case 4:
            return ["if coin():", *inner, "else:", *other]
        case 5:
            return [f"for {name()} in range(3):", *inner, "else:", *other]
        case 6:
            return ["while coin():", *inner]
        case 7:
            return ["try:", *inner, "except E:", *other]
        case _:
            return ["try:", *inner, "finally:", f"    {name()} = mark({name()}, {name()})"]


def _block(rng: random.Random, depth: int) -> list[str]:
    return [line for _ in range(rng.randint(1, 4)) for line in _statement(rng, depth)]


@pytest.mark.parametrize("seed", range(60))
def test_dead_values_are_never_read(seed: int) -> None:
    """Poison every variable said to be dead; nothing that is read may be poisoned."""
    rng = random.Random(seed)
    lines = ["    " + line for line in _block(rng, 3)]
    source = "def f(p, q, r, s):\n  while coin():\n" + "\n".join(lines) + "\n  return p"
    coins = random.Random(seed)

    class Failed(Exception):
        pass

    births: list[tuple[int, frozenset[str], dict[str, int]]] = []

    def coin() -> bool:
        return coins.random() < 0.6

    def mark(x: int, y: int) -> int:
        # a value is the number of the step that made it; what a variable holds here is recorded
        frame = sys._getframe(1)
        for then, live_then, held in births:
            for read in (x, y):
                names = {n for n, v in held.items() if v == read}
                assert not names or names & live_then, (then, read, names, live_then, source)
        names = live_locals(frame.f_code, frame.f_lasti)
        assert names is not None
        births.append((len(births), names, {k: v for k, v in frame.f_locals.items() if v > 9}))
        if coins.random() < 0.1:
            raise Failed
        return len(births) + 10

    f = define(source, coin=coin, mark=mark, E=Failed)
    try:
        f(1, 2, 3, 4)
    except Failed:
        pass
