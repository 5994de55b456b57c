"""The harness finds what it is there for: each way to differ is reported, equal programs are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.semantics import modes
from tests.semantics.modes import differences
from tests.semantics.permits import PERMITS
from tests.semantics.table import Case, returning

X = (("x", "f(n)"),)


def case(body: str, tag: str = "=", **options: str) -> Case:
    return Case("Z1", tag, X, body, "", options)


class Wrong:
    """Stands for `jitla.jit`: decorates so that the result of `f` is altered."""

    def __init__(self, alter: Any) -> None:
        self.alter = alter

    def __call__(self, function: Any = None, **options: Any) -> Any:
        if function is None:
            return self

        def altered(*arguments: Any) -> Any:
            return self.alter(function, *arguments)

        altered.stats = lambda: {"failures": 0, "kernels": 0}  # type: ignore[attr-defined]
        return altered


def writes(f: Any, x: Any) -> Any:
    made = f(x)
    x[0] += 1
    return made


def raises(f: Any, x: Any) -> Any:
    raise ValueError("no")


ALTERED = {
    "value": lambda f, x: np.nextafter(f(x), 9),
    "dtype": lambda f, x: f(x).astype("f4"),
    "shape": lambda f, x: f(x)[None],
    "strides": lambda f, x: np.repeat(f(x), 2)[::2],
    "flags": lambda f, x: np.frombuffer(f(x).tobytes()),
    "type": lambda f, x: f(x).view(np.recarray),
    "structure": lambda f, x: list(f(x)),
    "argument": writes,
    "outcome": raises,
    "alias": lambda f, x: x,
}


@pytest.mark.parametrize("kind", ALTERED)
def test_a_difference_is_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes.jitla, "jit", Wrong(ALTERED[kind]))
    found = differences(case("x.copy()" if kind == "alias" else "x * 3"), "f")
    assert found and (kind in found[0] or kind == "argument" and "value at argument" in found[0])


def test_equal_programs_do_not_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes.jitla, "jit", Wrong(lambda f, x: f(x)))
    assert differences(case("x * 3"), "f") == []


def test_text_and_line_of_exceptions_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "if MODE:\n    raise ValueError(WORD)\nraise ValueError('b')"
    for mode, word, kind in ((True, "b", "line"), (True, "a", "text")):
        def wrong(f: Any, x: Any, mode: bool = mode, word: str = word) -> Any:
            f.__globals__.update(MODE=mode, WORD=word)
            return f(x)

        monkeypatch.setattr(modes.jitla, "jit", Wrong(wrong))
        found = differences(Case("Z1", "=", X, body, "MODE = False"), "f")
        assert kind in found[0]


def test_last_bits_are_free_only_where_a_row_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes.jitla, "jit", Wrong(lambda f, x: np.nextafter(f(x), 9)))
    assert differences(case("x * 3", "~"), "f") == []
    assert differences(case("x * 3", "P:products"), "f") == []
    monkeypatch.setattr(modes.jitla, "jit", Wrong(lambda f, x: f(x) * (1 + 1e-14)))
    assert differences(case("x * 3", "~"), "f")


# What a decision does not permit: a program, and how its result is altered.
BEYOND = {
    "names": ("x()", raises),
    "resize": ("x.resize(8)", lambda f, x: None),
    "identity": ("x is None", lambda f, x: True),
    "casts": ("x.astype(int)", lambda f, x: f(x) + 1),
    "nan": ("np.copysign(x, x)", lambda f, x: -f(x)),
    "zeros": ("x * 0", lambda f, x: f(x) + 1e-300),
    "products": ("x * x.sum()", lambda f, x: f(x) * (1 + 1e-12)),
    "pieces": ("x.sum()", lambda f, x: f(x) * (1 + 1e-12)),
    "complex": ("x * 1j", lambda f, x: f(x) * (1 + 1e-12)),
    "argsort": ("np.argsort(x)", lambda f, x: np.argsort(x)[::-1].copy()),
    "time": ("x * 2", lambda f, x: f(x) + 1),
    "dead": ("x * 2", lambda f, x: f(x / np.zeros(1)) * 0),
    "lines": ("x * 2", lambda f, x: (np.ones(1) / np.zeros(1), f(x))[1]),
}


@pytest.mark.parametrize("decision", PERMITS)
def test_a_decision_permits_nothing_else(decision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body, beyond = BEYOND[decision]
    monkeypatch.setattr(modes.jitla, "jit", Wrong(beyond))
    made = Case("Z1", f"P:{decision}", (("x", "f(n)"), ("y", "f(n)")), body, "")
    monkeypatch.setattr(Wrong, "__call__", lambda self, f=None, **o: self if f is None else stats_of(
        lambda *given: self.alter(lambda x: f(x, *given[1:]), given[0])))
    assert differences(made, "f")


def stats_of(function: Any) -> Any:
    """Give a function the counters of a decorated one."""
    function.stats = lambda: {"failures": 0, "kernels": 0}
    return function


def test_without_a_compiler_failures_are_counted() -> None:
    names = modes.module("@jit\ndef f(x):\n    return x * 2 + 1\n", "no-compiler", modes.jitla.jit)
    with modes.no_compiler():
        assert names["f"](np.ones(3)).tolist() == [3.0] * 3
    assert names["f"].stats()["failures"] == 1


def test_warnings_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(f: Any, x: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(x)

    monkeypatch.setattr(modes.jitla, "jit", Wrong(silent))
    assert "warnings" in differences(case("np.divide(x, 0 * x)"), "f")[0]


def test_the_last_expression_is_returned() -> None:
    assert returning("x += 1; x, y") == "x += 1; return x, y"
    assert returning("for i in x:\n    y = i\ny") == "for i in x:\n    y = i\nreturn y"
    assert returning("(x,\n y)") == "return (x,\n y)"
    assert returning("x[0] = 1") == "x[0] = 1"
