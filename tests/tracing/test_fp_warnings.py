"""Which floating-point flags operations may raise, value by value."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import jitla
from jitla.hops import FLAG_BY_KIND, Meta, apply, evaluate, leaf, lookup, possible_flags
from jitla.tracing.fp_warnings import _DISTINGUISHED_OPS, flag_tests_of

# Signs say of operations which flags NumPy's loops raise, value by value.

VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-320, -1e-320, 1e-40, 1e30, -1e30, 1e300, -1e300, 750.0,
          -750.0, 90.0, np.inf, -np.inf, np.nan]


def raised(name: str, operands: list[np.ndarray]) -> int:
    """Return the flags that NumPy raises."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lookup(name).numpy[0](*operands)
    return sum(bit for text, bit in FLAG_BY_KIND.items() if any(text in str(w.message) for w in caught))


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("name", sorted(_DISTINGUISHED_OPS - {"cast"}))
def test_signs_are_what_numpy_raises(name: str, dtype: str):
    arity = lookup(name).arity
    assert arity is not None
    kind = np.dtype(dtype)
    hops = [leaf(slot, Meta((2,), kind), "array") for slot in range(arity)]
    hop = apply(name, *hops)
    signs = flag_tests_of(0, hop, possible_flags(hop))
    if name == "power" and signs is None:
        pytest.skip("on this processor NumPy's loop raises flags for infinite exponents, as it likes")
    assert signs is not None and all(sign.exact for sign in signs)
    with np.errstate(all="ignore"):
        values = np.array(VALUES).astype(kind)
    for given in itertools.product(values, repeat=arity):
        operands = [np.full(2, value, kind) for value in given]
        with np.errstate(all="ignore"):
            seen = evaluate([sign.condition for sign in signs], operands)
        shown = sum(sign.flags for sign, value in zip(signs, seen, strict=True) if value)
        assert shown == raised(name, operands), given


def test_a_program_that_observes_tells_of_new_flags():
    """What it did not look for at first, it looks for from then on."""
    fast = jitla.jit(lambda x, y: 1 / (np.exp(x) - y))
    plain = fast.__wrapped__
    for x, y in [(1000.0, 0.0)] * 4 + [(0.0, 1.0)] * 4 + [(np.inf, np.inf)] * 4 + [(0.0, 0.0)] * 2 + [
            (1000.0, np.inf)] * 2:
        texts = []
        for f in (plain, fast):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                f(np.full(100, x), np.full(100, y))
            texts.append([str(w.message) for w in caught])
        assert texts[0] == texts[1], (x, y)
