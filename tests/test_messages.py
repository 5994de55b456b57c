"""What jitla raises and warns of: five lines at most, the user's first, what to do, once for each line."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import jitla
from jitla import errors

X = np.arange(12.0)


def _strict():
    @jitla.jit(strict=True)
    def middle(x):
        y = 2.0 * x
        return np.partition(y, 3)[3]

    middle(X)


def _loop():
    @jitla.jit(strict=True)
    def turns(x):
        for i in range(len(x)):
            try:
                x[i] = 1 / x[i]
            except ZeroDivisionError:
                pass
        return x

    turns(X)


def _verified():
    calls = []

    @jitla.jit(verify=True)
    def counted(x):
        calls.append(1)
        return x + len(calls)

    counted(X)


@pytest.mark.parametrize(("wrong", "kind", "told"), [
    (_strict, errors.UnsupportedError, "remove strict=True"),
    (_loop, errors.UnsupportedError, "drop strict=True"),
    (_verified, errors.VerificationError, "do not all do the same")])
def test_errors_begin_with_the_users_line_and_say_what_to_do(wrong, kind, told):
    with pytest.raises(kind) as caught:
        wrong()
    text = str(caught.value)
    assert text.startswith(f"{__file__}:") and told in text
    assert text.count("\n") < 5 and text.endswith(f"[{kind.code}]")
    number = int(text.removeprefix(f"{__file__}:").partition(":")[0])
    first = wrong.__code__.co_firstlineno
    assert first < number < first + 9


@pytest.mark.parametrize("wrong", [
    lambda: jitla.jit("no function"), lambda: jitla.configure(numerics="fast"), lambda: jitla.explain(3),
    lambda: jitla.configure(no_such_option=1), lambda: jitla.spec(-1),
    lambda: jitla.explain(abs, level="deep"), lambda: jitla.explain(jitla.jit(lambda x: x)).save("plan.doc")])
def test_misuse_is_answered_in_a_line(wrong):
    with pytest.raises(errors.JitlaError) as caught:
        wrong()
    assert "\n" not in str(caught.value) and str(caught.value).endswith(f"[{caught.value.code}]")


def test_a_fallback_is_warned_of_once_for_each_line_with_its_cost():
    @jitla.jit
    def twice(x):
        low = np.median(2.0 * x)
        return low + np.median(3.0 * x)

    with jitla.options(fallback="warn", compile="sync"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            twice(X)
    found = [w for w in caught if w.category is errors.FallbackWarning]
    first = twice.__wrapped__.__code__.co_firstlineno
    assert [(w.filename, w.lineno) for w in found] == [(__file__, first + 2), (__file__, first + 3)]
    assert all("ms" in str(w.message) and "\n" not in str(w.message) for w in found)
