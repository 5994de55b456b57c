"""Row V9 of the semantics sheet: decorated functions that travel by pickle and cloudpickle."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

import jitla

ROOT = Path(__file__).parents[2]


@jitla.jit
def doubled(x):
    return x * 2 + 1


class Model:
    def __init__(self, w):
        self.w = w

    @jitla.jit
    def run(self, x):
        return x * self.w


def test_v9_by_reference() -> None:
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert pickle.loads(pickle.dumps(Model(3.0).run))(np.ones(2)).tolist() == [3.0, 3.0]


def test_v9_by_value_into_another_process() -> None:
    k = 5.0

    @jitla.jit
    def scaled(x):
        return x * k + x.sum()

    scaled(np.ones(3))  # what it has learnt stays here
    text = cloudpickle.dumps((scaled, Model))
    code = (
        "import sys, pickle, numpy as np\n"
        "f, Model = pickle.loads(sys.stdin.buffer.read())\n"
        "print(f(np.ones(3)).tolist(), Model(2.0).run(np.ones(2)).tolist(), f.stats()['calls'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=text, capture_output=True, cwd=ROOT, check=False, timeout=120)
    assert done.stdout.decode().strip() == "[8.0, 8.0, 8.0] [2.0, 2.0] 1", done.stderr.decode()[-500:]


def _child(connection, x) -> None:
    connection.send((doubled(x), Model(2.0).run(x)))
    connection.close()


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_v9_children_of_every_kind(method: str) -> None:
    doubled(np.ones(100_000))  # kernels and threads are there when the child begins
    context = multiprocessing.get_context(method)
    mine, theirs = context.Pipe()
    child = context.Process(target=_child, args=(theirs, np.arange(100_000.0)))
    child.start()
    assert mine.poll(60)
    first, second = mine.recv()
    child.join(30)
    assert child.exitcode == 0
    assert (first == np.arange(100_000) * 2 + 1).all() and (second == np.arange(100_000) * 2).all()


@jitla.jit
def forks(x, read, write):
    y = x * 2 + 1
    child = os.fork()
    if not child:
        x += 5  # the child's own
        os.write(write, np.array([(y + x).sum()]).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    return (y + x).sum(), np.frombuffer(os.read(read, 8))[0]


def test_a_fork_between_operations() -> None:
    x = np.arange(50_000.0)
    found = forks(x, *os.pipe()), forks(x, *os.pipe())
    assert found[0] == found[1] == forks.__wrapped__(x, *os.pipe())
