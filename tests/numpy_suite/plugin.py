"""The pytest plugin inside a worker: decorates test functions and writes down what becomes of them."""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import Any

import pytest

import jitla
from tests.numpy_suite.items import Log, add_options, failures, keep_items, start_log
from tests.numpy_suite.lazies import start_pending

_decorated: dict[int, tuple[Any, Any]] = {}
# States of the decorated functions of the running item, and the failures that each had before.
_states: dict[Any, int] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what a worker is told."""
    add_options(parser, ("plain", "decorate", "lazy"))


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the mode."""
    if config.getoption("--mode") == "lazy":
        start_pending()
    start_log(config, DecoratedLog)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the items of this part that have not been run."""
    keep_items(config, items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Put the decorated function in the place of the test function."""
    if isinstance(item, pytest.Function) and item.config.getoption("--mode") != "plain":
        item.obj = decorated(item.obj)


def decorated(function: Any) -> Any:
    """Return `function` with its body decorated, below what other decorators put around it."""
    if isinstance(function, MethodType):
        return MethodType(decorated(function.__func__), function.__self__)
    known = _decorated.get(id(function))
    if known is None:
        known = _decorated[id(function)] = (function, _inside(function))
    state = getattr(known[1], "__jitla_state__", None)
    if state is not None:
        _states[state] = len(failures(state))
    return known[1]


def _inside(function: Any) -> Any:
    given = getattr(function, "hypothesis", None)
    if given is not None:
        given.inner_test = decorated(given.inner_test)
        return function
    inner = getattr(function, "__wrapped__", None)
    if isinstance(function, FunctionType) and isinstance(inner, FunctionType):
        for cell in function.__closure__ or ():
            if cell.cell_contents is inner:
                cell.cell_contents = decorated(inner)
                return function
    return jitla.jit(function, compile="sync")


class DecoratedLog(Log):
    """Writes down, too, whether anything was traced, and which blocks no program could be made for."""

    def begin(self) -> None:
        """Forget the functions of the item before."""
        _states.clear()

    def details(self) -> dict[str, Any]:
        """Return what the decorated functions of the item did."""
        new = [failure for state, n in _states.items() for failure in failures(state)[n:]]
        traced = any(state.instrumented for state in _states)
        return {"traced": traced, **({"internal": new[-3:]} if new else {})}
