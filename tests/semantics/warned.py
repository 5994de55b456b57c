"""Decorated against plain, warnings included: category, text, file, line, order, count.

A program is the source of a module, as for `oracle.faults`. Filters are named as the user sets them.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from textwrap import dedent
from typing import Any

import numpy as np

import jitla
from tests.fuzz.compare import Outcome, compare, innermost, leaves
from tests.fuzz.load import plain_jit
from tests.semantics.oracle import module

FILTERS = ("always", "default", "module", "once", "ignore", "error")
_NUMBER = count()


def check(
    source: str, *, filters: Sequence[str] = FILTERS, sizes: Sequence[int] = (3, 17, 1000),
    calls: int = 4, threads: Sequence[int] = (1, 2), setting: Callable[[], Any] | None = None,
    failures: bool = False,
) -> list[str]:
    """Fail if a module does or warns anything else jitted than plain; return the last warnings.

    It defines `f` and `make(n)` -> arguments. `setting` makes a context in which both run;
    `failures` says that programs may fail.
    """
    name = f"warned-{next(_NUMBER)}"
    text = "import numpy as np\nimport warnings\n" + dedent(source)
    last: list[str] = []
    for filter_name in filters:
        for workers in threads:
            plain, jitted = (module(text, name, jit) for jit in (plain_jit, jitla.jit))
            for n in sizes:
                wanted = list(seen(plain, n, name, filter_name, calls, setting))
                with jitla.options(num_threads=workers):
                    found = list(seen(jitted, n, name, filter_name, calls, setting))
                where = f"filter {filter_name}, size {n}, {workers} threads"
                for a, b in zip(wanted, found, strict=True):
                    faults = [f for f in compare(a[0], b[0]) if f.kind != "value"]
                    assert not faults, f"{where}: {faults[0]}"
                    for (path, x), (_, y) in zip(a[0].leaves, b[0].leaves, strict=True):
                        if isinstance(x, (np.ndarray, np.generic, float)):
                            np.testing.assert_allclose(y, x, 1e-12, err_msg=f"{where}: {path}")
                        elif type(x) in (str, int):
                            assert x == y, f"{where}: {path}: {y!r} and not {x!r}"
                last = [text for _, caught in wanted for text in caught]
                for call, (a, b) in enumerate(zip(wanted, found, strict=True)):
                    assert a[1] == b[1], f"{where}, call {call}: {b[1]} and not {a[1]}"
            failed = getattr(jitted["f"], "stats", dict)().get("failures", 0)
            assert failures or not failed, f"{filter_name}: {failed} failures"
    return last


def seen(
    names: dict[str, Any], n: int, name: str, filter_name: str, calls: int,
    setting: Callable[[], Any] | None,
) -> Iterator[tuple[Outcome, list[str]]]:
    """Call `f` some times under one filter; yield what came of each call and its warnings."""
    names.pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(filter_name)
        for _ in range(calls):
            given = names["make"](n)
            given = given if isinstance(given, tuple) else (given,)
            found, before = Outcome(), len(caught)
            try:
                if setting is None:
                    found.result = names["f"](*given)
                else:
                    with setting():
                        found.result = names["f"](*given)
            except Exception as error:
                found.error = error
                found.line = innermost(error.__traceback__, f"<{name}>")
            found.result = copy.copy(found.result)
            found.leaves = [*leaves(found.result, "result"), *leaves(list(given), "argument")]
            yield found, [
                f"{w.filename}:{w.lineno}: {w.category.__name__}: {w.message}" for w in caught[before:]
            ]


@contextmanager
def nothing_compiles(patch: Any) -> Iterator[None]:
    """Let every program fail to be made, so that blocks are run op by op."""
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no program")

    with patch.context() as inner:
        inner.setattr("jitla.recompile.compiler.Compiler.program", fail)
        yield
