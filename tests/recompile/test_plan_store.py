"""Serialised plans: they round-trip, and damaged texts are refused."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from jitla.compile_stats import count_compilations
from jitla.fusion import InterpretedBackend
from jitla.hops import Meta, NotSerialisable, apply, block_digest, leaf
from jitla.hops.ops_elementwise import (
    Body,
    Step,
    register_user_function,
)
from jitla.recompile import Compiler
from jitla.recompile.plan_store import parse_plan
from tests.recompile.dags import SYMBOLS, difference, layouts_of, run, sample

F8 = np.dtype("f8")


class Shelf(dict):
    """Texts in memory."""

    def put(self, words: str, text: bytes) -> None:
        self[words] = text


def built(store: Shelf, recipe, here: str = "here"):
    """Return a new process's program, and how many plans were made for it."""
    compiler = Compiler(InterpretedBackend(), plan_store=store, environment=here)
    with count_compilations() as made:
        program = compiler.build(*recipe)
    return program, made.plans


@pytest.mark.parametrize("block", range(6))
def test_random_plans_come_back(block: int) -> None:
    for seed in range(8 * block, 8 * block + 8):
        given, store = sample(seed, SYMBOLS), Shelf()
        roots, leaves = given.roots, given.leaves
        recipe = roots, layouts_of(leaves)
        first, second = built(store, recipe), built(store, recipe)
        assert (first[1], second[1], len(store)) == (1, 0, 1), seed
        assert first[0].plan == second[0].plan and first[0].traced_roots == second[0].traced_roots
        got, want = (run(p.bind(p.identity(), p.layouts), leaves) for p in (second[0], first[0]))
        assert not any(difference(a, b) for a, b in zip(got, want, strict=True)), seed


def cells():
    x, y = leaf(0, Meta((50, 4), F8)), leaf(1, Meta((50, 4), F8))
    root = apply("sum", apply("multiply", apply("exp", x), y), axis=(0,), keepdims=False)
    return (root,), layouts_of([np.ones((50, 4)), np.ones((50, 4))])


def test_a_plan_that_was_found_says_how_it_was_made() -> None:
    store, recipe = Shelf(), cells()
    first, second = built(store, recipe)[0], built(store, recipe)[0]
    assert [s.text() for s in second.stages] == [s.text() for s in first.stages]
    assert second.fired == first.fired


def test_plans_of_another_machine_are_made_anew() -> None:
    store, recipe = Shelf(), cells()
    assert [built(store, recipe, here)[1] for here in ("here", "there", "there", "here")] == [1, 1, 0, 1]


def test_sizes_layouts_and_targets_are_words() -> None:
    roots, layouts = cells()
    x = leaf(0, Meta((51, 4), F8))
    words = {block_digest(roots, layouts, (None,), frozenset()),
             block_digest(roots, layouts, (1,), frozenset()),
             block_digest(roots, layouts, (None,), frozenset({(0, 1, -1)})),
             block_digest(roots, {**layouts, 0: ((50, 4), (8, 400))}, (None,), frozenset()),
             block_digest((apply("exp", x),), {0: ((51, 4), (32, 8))}, (None,), frozenset()),
             block_digest((apply("exp2", x),), {0: ((51, 4), (32, 8))}, (None,), frozenset())}
    assert len(words) == 6 and block_digest(roots, layouts, (), frozenset()) in words


def test_what_is_no_plan_is_none() -> None:
    store, recipe = Shelf(), cells()
    plan = built(store, recipe)[0].plan
    (text,) = store.values()
    asked = Asked(*recipe)
    rng = random.Random(1)
    for _ in range(300):
        broken = bytearray(text)
        for _ in range(rng.randint(1, 3)):
            broken[rng.randrange(len(broken))] = rng.choice(b'0123456789[]{},":abn ')
        found = parse_plan(asked, bytes(broken), "here")  # its checksum tells before that
        assert found is None or len(found.plan.outputs) == len(plan.outputs)
    rows = json.loads(text)
    assert parse_plan(asked, json.dumps(rows[:-1]).encode(), "here") is None
    assert parse_plan(asked, text[:-9], "here") is None and parse_plan(asked, b"\xff\x00", "here") is None
    store.update(dict.fromkeys(store, b"[]"))
    assert built(store, recipe)[0].plan == plan


class Asked:
    """What a plan is asked for."""

    def __init__(self, roots, layouts):
        self.roots, self.layouts, self.outs, self.aliases = roots, layouts, (None,) * len(roots), frozenset()


def test_functions_that_users_compiled_have_no_words() -> None:
    body = Body((Step("arg", (), F8, 0), Step("add", (0, 0), F8)), 1)
    op = register_user_function(lambda x: x + x, "doubled", (F8,), F8, body)
    root = apply(op.name, leaf(0, Meta((50,), F8)))
    with pytest.raises(NotSerialisable, match="user"):
        block_digest((root,), {}, (None,), frozenset())
    store = Shelf()
    built(store, ((root,), layouts_of([np.ones(50)])))
    assert not store
