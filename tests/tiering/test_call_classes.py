"""Call classes: by which arguments calls are told apart."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from jitla.tiering.call_classes import (
    MAX_CALL_CLASSES,
    CallClasses,
    argument_class,
    element_bits,
)
from jitla.tiering.engine import FunctionProfile

BITS = 18
MANY = np.zeros(1 << BITS)


class Table:
    """Has arrays, but is none."""

    def __init__(self, *lengths: Any) -> None:
        self.shape = lengths

    def to_numpy(self) -> Any:
        raise AssertionError("nobody may ask for all of it")


def new_classes() -> CallClasses:
    """The call classes of a function that was not called yet."""
    tracer: Any = SimpleNamespace(begin_class=lambda args, kwargs, bits: None)
    return CallClasses(FunctionProfile(tracer))


@pytest.mark.parametrize("given", [
    MANY, [MANY], {"x": MANY}, SimpleNamespace(x=MANY), Table(1 << 13, 1 << 5),
    sp.csr_array(MANY[None] + 1.0),
], ids=lambda given: type(given).__name__)
def test_elements_are_counted_in_whatever_holds_them(given: Any) -> None:
    assert element_bits((given,), {}) == element_bits((), {"x": given}) == BITS + 1
    assert new_classes().class_of((given,), {}).elements == BITS + 1


@pytest.mark.parametrize("given", [
    7, "word", None, np.float64(1.0), len, test_elements_are_counted_in_whatever_holds_them, np, Table,
    Table("?", None), [[MANY]], sp.csr_array((1 << 10, 1 << 10)),
], ids=lambda given: type(given).__name__)
def test_other_arguments_have_no_elements(given: Any) -> None:
    assert element_bits((given,), {}) == 0


@pytest.mark.parametrize("made", [
    lambda n: Table(n, 3), lambda n: Table(3, n), lambda n: [np.zeros(n)], lambda n: sp.csr_array((n, 3))])
def test_calls_are_alike_if_what_holds_elements_has_about_as_many(made: Callable[[int], Any]) -> None:
    assert argument_class(made(1000)) == argument_class(made(1001)) != argument_class(made(1 << 12))


def test_sizes_of_sparse_matrices_belong_to_the_class() -> None:
    classes = new_classes()
    small, large, wide = (sp.random_array(shape, density=d, format="csr", rng=1)
                          for shape, d in (((20, 20), 0.1), ((20, 20), 0.9), ((20, 200), 0.01)))
    found = [classes.class_of((x,), {}) for x in (small, large, wide, small.copy())]
    assert len(set(map(id, found))) == 3 and found[3] is found[0]
    assert classes.class_of((sp.coo_array(small),), {}) not in found


def test_keywords_belong_to_the_class() -> None:
    classes, x = new_classes(), np.ones(9)
    found = {id(classes.class_of(args, kwargs)) for args, kwargs in (
        ((x,), {}), ((x, 3), {}), ((x,), {"k": 3}), ((x,), {"k": None}), ((), {"x": x}))}
    assert len(found) == 5


def test_classes_are_bounded_and_their_calls_counted() -> None:
    classes = new_classes()
    for n in range(3 * MAX_CALL_CLASSES):
        kind = classes.class_of((f"{n}",), {})
        kind.calls += 2
        kind.loop_calls += 1
    assert len(classes.kinds) <= MAX_CALL_CLASSES
    assert classes.calls == 6 * MAX_CALL_CLASSES and classes.all_calls == 9 * MAX_CALL_CLASSES
