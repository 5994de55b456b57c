"""Kernels and their memory in another process: the same hops, the same places, the same bits."""

from __future__ import annotations

import io

import numpy as np
import pytest

import jitla
from jitla.engine import ENGINE
from jitla.recompile import UNTUNED
from jitla.tuner.transport import (
    Job,
    OperandMemory,
    Unsendable,
    pack,
    packed_header,
    receive_job,
    send_job,
    unpack,
)

X = np.random.default_rng(1).random((60, 40))


def cells(x, y):
    return np.sqrt(x * x + y) * 3.0


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def laps(a):
    b = a[:-2, 1:-1] + a[2:, 1:-1] - 4 * a[1:-1, 1:-1]
    return b[:-2] * b[2:]


class Listening:
    """Chooses nothing, and remembers of every kernel what may be chosen, and what it was run on."""

    def __init__(self):
        self.chosen, self.notes, self.seen = {}, {}, []

    def block(self, choice):
        block, launch = choice.make(UNTUNED)

        def run(block, *operands):
            flags = launch(block, *operands)
            self.seen.append((choice, operands))
            return flags
        return block, run


@pytest.fixture
def heard():
    listening = Listening()
    ENGINE.use_tuning_session(listening)
    yield listening.seen
    ENGINE.use_tuning_session()


@pytest.mark.parametrize("function, args", [
    (cells, (X.T, X[0, :1])), (softmax, (X,)), (laps, (np.random.default_rng(2).random((500, 600)),))],
    ids=["cells", "softmax", "laps"])
def test_what_was_sent_computes_the_same(heard, function, args):
    wanted = jitla.jit(function, compile="sync")(*args)
    assert heard
    choice, operands = heard[-1]
    memory = OperandMemory.copy_of(operands, choice.outputs)
    wire = io.BytesIO()
    send_job(wire, packed_header(Job(choice.portable(), memory, choice.outputs, {})), memory)
    wire.seek(0)
    job = receive_job(wire)
    there = job.parcel.choice(ENGINE.compiler(jitla.config.current()))
    assert there.key == choice.key and there.space().knobs == choice.space().knobs
    mine = job.memory.operands()
    block, launch = there.make(UNTUNED)
    launch(block, *mine)
    assert mine[-1].tobytes() == wanted.tobytes()
    assert not any(np.may_share_memory(a, b) for a in mine for b in operands
                   if isinstance(a, np.ndarray) and isinstance(b, np.ndarray))


def test_memory_that_arrays_share_is_copied_once_and_lies_as_it_did():
    out = np.ones((59, 40))
    memory = OperandMemory.copy_of((X[1:], X[:-1], X[::-1, ::2].T, 2.5, out), 1)
    a, b, c, number, result = memory.operands()
    assert len(memory.parts) == 2 and number == 2.5 and not result.any()
    assert a.ctypes.data - b.ctypes.data == X.strides[0]
    assert c.strides == X[::-1, ::2].T.strides
    assert (a == X[1:]).all() and (b == X[:-1]).all() and (c == X[::-1, ::2].T).all()
    assert a.ctypes.data % 4096 == X[1:].ctypes.data % 4096


def test_what_cannot_be_sent_is_refused():
    with pytest.raises(Unsendable, match="a result overlaps an operand"):
        OperandMemory.copy_of((X[1:], X[:-1]), 1)
    with pytest.raises(Unsendable, match="object of type Listening"):
        OperandMemory.copy_of((Listening(), X), 1)
    with pytest.raises(Unsendable, match="cannot be pickled"):
        pack(lambda: 1)


def test_long_chains_of_hops_are_sent():
    from jitla.hops import Meta, leaf, make, topo
    x = leaf(0, Meta((4,), np.dtype(float)))
    for _ in range(3000):
        x = make("sqrt", (x,))
    assert unpack(pack({"x": x, "n": 1}))["x"] is x and len(topo((x,))) == 3001
