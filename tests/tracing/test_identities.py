"""``id`` of arrays and scalars within a call: that of what a proxy stands for."""

from __future__ import annotations

import numpy as np
import pytest

import jitla

MODES = ("sync", "background", "auto")
X = np.arange(1.0, 30000.0)
library: dict = {"__name__": "a_library"}
exec("def key(x):\n    return id(x)\ndef keep(cache, x):\n    cache[id(x)] = x\n", library)
key, keep = library["key"], library["keep"]


def stable(x):
    y = x * 2
    before = id(y)
    z = y
    y += 1
    w = y + 1
    return before == id(y), id(y) == id(z), id(y) == id(w), key(y) == before, id(w) == key(w), y.sum()


def scalars(x):
    s = x.sum()
    t = s + 1
    return id(s) == id(s), id(s) == id(t), key(s) == id(s), float(t)


def of_argument(x):
    y = x + 1
    return id(x) == id(X), key(x) == id(X), float(y.sum())


def cached(x):
    cache: dict = {}
    y = x * 2
    keep(cache, y)
    z = x * 3
    cache[id(z)] = z
    found = cache[id(y)] + cache[key(z)]
    return found.sum(), len(cache), cache[id(y)] is y, cache[id(z)] is z


def updated(x):
    y = x + 0
    seen = []
    for _ in range(5):
        y += x
        y *= 0.5
        seen.append(id(y))
    return len(set(seen)), y.sum()


def views(x):
    y = x * 2
    v = y[1:]
    return id(v) == id(v), id(v) == id(y), key(v) == id(v), v.sum()


def mapped(x):
    y, z = x * 2, x + 1
    keys = [id(each) for each in (y, z)]
    return keys == list(map(id, (y, z))), keys == [key(y), key(z)], sorted(keys) == sorted(map(id, [z, y]))


@pytest.mark.parametrize("function", [stable, scalars, of_argument, cached, updated, views, mapped])
@pytest.mark.parametrize("mode", MODES)
def test_identities(function, mode):
    wanted = function(X)
    traced = jitla.jit(compile=mode)(function)
    for _ in range(20):
        assert traced(X) == wanted


def test_sparse_matrices():
    sparse = pytest.importorskip("scipy.sparse")

    def scaled(m):
        n = m * 2
        return id(n) == id(n), key(n) == id(n), id(m) == key(m), n.sum()

    m = sparse.random(300, 300, 0.1, "csr", random_state=1)
    traced = jitla.jit(compile="sync")(scaled)
    for _ in range(3):
        assert traced(m) == scaled(m)


def test_wrong_calls():
    @jitla.jit(compile="sync")
    def wrong(x):
        y = x * 2
        return id(y, y)

    with pytest.raises(TypeError, match="exactly one argument"):
        wrong(X)
