"""What calls are told apart by before they are traced: how many elements they are given, and in what."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from jitla.profiling import call_classes as cold
from jitla.profiling.call_classes import (
    MAX_COLD_BITS,
    CallClasses,
    ColdCallClass,
    argument_class,
    element_bits,
)

MANY = np.zeros(1 << MAX_COLD_BITS)


class Table:
    """Has arrays, but is none."""

    def __init__(self, *lengths: Any) -> None:
        self.shape = lengths

    def to_numpy(self) -> Any:
        raise AssertionError("nobody may ask for all of it")


def payoff() -> CallClasses:
    """What is known of no call yet; whatever is traced is "traced"."""
    def ways() -> Any:
        return lambda bits, grow, spent, plain: SimpleNamespace(bits=bits, calls=0, skip=0, granted=0), None

    return CallClasses("file", 1, ways)


@pytest.mark.parametrize("given", [
    MANY, [MANY], {"x": MANY}, SimpleNamespace(x=MANY), Table(1 << 13, 1 << 5),
    sp.csr_array(MANY[None] + 1.0),
], ids=lambda given: type(given).__name__)
def test_elements_are_counted_in_whatever_holds_them(given: Any) -> None:
    assert element_bits((given,), {}) == element_bits((), {"x": given}) == MAX_COLD_BITS + 1
    assert type(payoff().class_of((given,), {})) is not ColdCallClass
    assert type(payoff().class_of((), {"x": given})) is not ColdCallClass


@pytest.mark.parametrize("given", [
    7, "word", None, np.float64(1.0), len, test_elements_are_counted_in_whatever_holds_them, np, Table,
    Table("?", None), [[MANY]], sp.csr_array((1 << 10, 1 << 10)),
], ids=lambda given: type(given).__name__)
def test_other_arguments_have_no_elements(given: Any) -> None:
    assert element_bits((given,), {}) == 0
    assert type(payoff().class_of((given,), {})) is ColdCallClass


@pytest.mark.parametrize("made", [
    lambda n: Table(n, 3), lambda n: Table(3, n), lambda n: [np.zeros(n)], lambda n: sp.csr_array((n, 3))])
def test_calls_are_alike_if_what_holds_elements_has_about_as_many(made: Callable[[int], Any]) -> None:
    assert argument_class(made(1000)) == argument_class(made(1001)) != argument_class(made(1 << 12))


def test_nothing_is_loaded_at_the_end_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold, "seconds_before_tracing", lambda *_: 0.0)
    grown: list[Any] = []
    then = SimpleNamespace(weigh=lambda *given: given[-2])
    kind = ColdCallClass(5, lambda spent, plain: grown.append(kind) or then, 0)
    assert kind.bypass(None, len, ("abc",), {}) == 3
    assert not kind.bypassed and not grown
    assert kind.weigh(None, len, None, ("abc",), {}) == ("abc",)
    assert grown == [kind]
