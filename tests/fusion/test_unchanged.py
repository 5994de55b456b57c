"""Whatever plan is chosen, values stay: prices that are wrong by half, rules and templates left out."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from jitla.fusion import (
    TEMPLATES,
    CostModel,
    InterpretedBackend,
    Layout,
    contiguous,
    planner,
)
from jitla.hops import Hop, Meta, evaluate, leaf, make, topo
from jitla.recompile import Compiler
from jitla.rewrites import RULES, RuleSet
from tests.fusion.dags import joined_dag, random_dag
from tests.plans.test_plans import LITERALS, SHAPES, Traced, fixtures

#: Snippets of machine learning: a support vector machine, softmax, products from both sides.
SNIPPETS = [(code, returned) for _, code, returned, _ in fixtures() if len(code) > 1 or "@" in code[0]]
NATIVE = LlvmBackend()


class Shaken(CostModel):
    """Prices of which every single one is wrong by up to half."""

    rng = random.Random(0)

    def _memoised(self, kind: str, hop: Hop, find: Callable[[Hop], float]) -> float:
        return super()._memoised(kind, hop, lambda h: find(h) * self.rng.uniform(0.5, 1.5))

    def terms(self, *sums: Any) -> Any:
        return super().terms(*(s * self.rng.uniform(0.5, 1.5) for s in sums[:3]), *sums[3:])


@pytest.fixture
def shaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every plan be chosen by wrong prices."""
    monkeypatch.setattr(planner, "CostModel", Shaken)


def some_rules(rng: random.Random) -> RuleSet:
    """Return the rules without some of them."""
    return RULES.without(*(r.name for r in RULES if rng.random() < 0.3))


def some_templates(rng: random.Random) -> tuple[str, ...]:
    """Return the templates without some of them."""
    return tuple(t.name for t in TEMPLATES if rng.random() < 0.7)


def run(backend: Any, rules: RuleSet | None, templates: tuple[str, ...], roots, layouts, leaves) -> list[Any]:
    """Plan, compile and run."""
    kept = type(backend).templates
    type(backend).templates = tuple(t for t in kept if t in templates)
    try:
        program = Compiler(backend, rules=rules and (lambda: rules), check=True).build(roots, layouts)
    finally:
        type(backend).templates = kept
    return program.bind(program.identity(), layouts).run(leaves)


def drawn(seed: int):
    """Draw a DAG, its leaves, and their values."""
    rng = random.Random(seed)
    roots, layouts = rng.choice((random_dag, joined_dag))(rng, rng.randint(4, 25))
    layouts = {s: contiguous(tuple(min(n, 60) for n in p.shape), 8) for s, p in layouts.items()}
    new: dict[Hop, Hop] = {}
    for h in topo(roots):
        slot = dict(h.attrs).get("slot")
        new[h] = leaf(slot, Meta(layouts[slot].shape, h.meta.dtype)) \
            if h.op.name == "leaf" else make(h.op.name, [new[i] for i in h.inputs], **dict(h.attrs))
    data = np.random.default_rng(seed)
    leaves = [data.uniform(0.5, 1.5, layouts[s].shape) for s in sorted(layouts)]
    return rng, tuple(new[r] for r in roots), layouts, leaves


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_dags_by_wrong_prices(shaken, first):
    for seed in range(first, first + 20):
        rng, roots, layouts, leaves = drawn(seed)
        with np.errstate(all="ignore"):
            wanted = evaluate(roots, leaves)
            got = run(InterpretedBackend(), None, some_templates(rng), roots, layouts, leaves)
        for a, b in zip(got, wanted, strict=True):
            assert np.array_equal(a, b, equal_nan=True), seed


@pytest.mark.parametrize("at", range(len(SNIPPETS)))
def test_snippets(shaken, at):
    code, returned = SNIPPETS[at]
    rng = random.Random(at)
    LITERALS.clear()
    data = np.random.default_rng(at)
    arrays: dict[str, Any] = {n: data.random(s) for n, s in SHAPES.items()} | {"s": np.float64(0.5)}
    traced: dict[str, Any] = {"np": np}
    for slot, (name, value) in enumerate(arrays.items()):
        form = "array" if np.ndim(value) else "scalar"
        traced[name] = Traced(leaf(slot, Meta(np.shape(value), value.dtype), form))
    exec("\n".join(code), traced)
    names = re.split(r",\s*", returned)
    roots = tuple(traced[n].hop for n in names)
    layouts = {i: Layout(x.shape, x.strides) for i, x in enumerate(arrays.values()) if x.ndim}
    leaves = [*arrays.values(), *[None] * (100 - len(arrays)), *LITERALS]
    values: dict[str, Any] = {"np": np, **arrays}
    exec("\n".join(code), values)
    for _ in range(3):
        got = run(NATIVE, some_rules(rng), some_templates(rng), roots, layouts, leaves)
        for value, name in zip(got, names, strict=True):
            np.testing.assert_allclose(value, values[name], rtol=1e-11, err_msg=str(code))
