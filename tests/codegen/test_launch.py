"""`launch`: operands, scratch, big blocks, refusals, the GIL."""

import struct
import sys
import threading
import time

import numpy as np
import pytest

from jitla.codegen.kernel_abi import RELEASE_GIL
from tests.runtime.kernels import addresses, launch, template


def axpi(n: int, grain: int) -> bytes:
    return template("axpi", n, grain, "asa")


@pytest.mark.parametrize("scalar", [2.5, np.float64(2.5)])
@pytest.mark.parametrize("grain", [1, 7, 999, 1000, 5000])
def test_operands_reach_the_kernel(grain: int, scalar: float) -> None:
    x, out = np.linspace(-1, 1, 1000), np.zeros(1000)
    assert launch(axpi(1000, grain), x, scalar, out) == 0
    assert (out == x * 2.5 + np.arange(1000)).all()


def test_no_units_runs_only_the_last_step() -> None:
    out = np.full(3, 7.0)
    launch(axpi(0, 1), out, 1.0, out)
    assert (out == 7.0).all()


@pytest.mark.parametrize("units", [1, 300, 512, 513, 100_000])
def test_chunks_are_the_same_whoever_runs_them_and_scratch_holds_them(units: int) -> None:
    out = np.zeros(units, np.int64)
    launch(template("mark", units, 7, "a", last="mark_last", scratch=8 * units), out)
    want = np.full(units, 7)
    want[units // 7 * 7:] = units % 7
    assert (out == want).all()


def test_more_chunks_than_the_word_can_count_widen_the_grain() -> None:
    units = (1 << 20) + 5
    out = np.zeros(units, np.int64)
    launch(template("mark", units, 1, "a", last="mark_last", scratch=8 * units), out)
    assert set(np.unique(out[:-1])) == {2}


@pytest.mark.parametrize("words", [0, 100, 486, 487, 5000])
def test_blocks_of_any_size(words: int) -> None:
    out = np.zeros(10)
    launch(template("axpi", 10, 3, "asa", geometry=(5,) * words), np.ones(10), 1.0, out)
    assert (out == 1.0 + np.arange(10)).all()


def test_none_is_not_leaked_or_lost() -> None:
    out, block = np.zeros(4), template("nothing", 4, 4, "a")
    before = sys.getrefcount(None), sys.getrefcount(out), sys.getrefcount(block)
    for _ in range(10_000):
        launch(block, out)
    assert abs(sys.getrefcount(None) - before[0]) < 1000
    assert (sys.getrefcount(out), sys.getrefcount(block)) == before[1:]


class Sub(np.ndarray):
    """A subclass, whose memory may mean something else."""


@pytest.mark.parametrize("operands", [
    (), (np.ones(3),), (np.ones(3), 1.0), (np.ones(3), 1.0, np.ones(3), np.ones(3)),
    (1.0, 1.0, np.ones(3)), ([1.0], 1.0, np.ones(3)), (None, 1.0, np.ones(3)),
    (np.ones(3), np.ones(3), np.ones(3)), (np.ones(3), object(), np.ones(3)),
    (np.ones(3), None, np.ones(3)), (np.ones(3).view(Sub), 1.0, np.ones(3)),
    (b"x" * 100, 1.0, np.ones(3)),
])
def test_wrong_operands_are_refused(operands: tuple[object, ...]) -> None:
    with pytest.raises(TypeError):
        launch(axpi(3, 3), *operands)


@pytest.mark.parametrize("block", [
    None, 5, "text", bytearray(200), b"", b"short", bytes(63), bytes(64), bytes(200),
    axpi(3, 3)[:-8], axpi(3, 3) + bytes(8), memoryview(axpi(3, 3)),
    struct.pack("8Q", addresses["nothing"], 8, 1, 1, 0, 0, 0, 5),
    struct.pack("8Q", addresses["nothing"], 8, 1, 1, 0, 0, 0, 2**32 - 1),
    struct.pack("8Q", addresses["nothing"], 2**61 + 8, 1, 1, 0, 0, 0, 0),
], ids=lambda block: type(block).__name__)
def test_wrong_templates_are_refused(block: object) -> None:
    with pytest.raises(TypeError):
        launch(block, np.ones(3), 1.0, np.ones(3))
    with pytest.raises(TypeError):
        launch()


def test_impossible_scratch_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        launch(template("nothing", 1, 1, "a", scratch=1 << 60), np.ones(3))


@pytest.mark.parametrize("microseconds", [0, 1, 99, 100, 5000])
def test_an_estimate_in_the_block_changes_nothing_but_who_works(microseconds: int) -> None:
    block = template("slow", 50, 1, "as", flags=microseconds << 33)
    for pause in (0, 0, 0.001, 0.001, 0):
        time.sleep(pause)
        out = np.zeros(1, np.int64)
        launch(block, out, np.int64(10))
        assert out[0] == 50


def test_no_keywords() -> None:
    with pytest.raises(TypeError):
        launch(template=axpi(3, 3))  # type: ignore[call-arg]


@pytest.mark.parametrize("flags", [0, RELEASE_GIL])
def test_python_runs_meanwhile_only_if_the_gil_is_released(flags: int) -> None:
    out, turns = np.zeros(1, np.int64), np.int64(20_000_000)
    steps, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            steps[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        while not steps[0]:
            time.sleep(0.001)
        ran = False
        for _ in range(10):
            block, before = template("slow", 1, 1, "as", flags=flags), steps[0]
            launch(block, out, turns)
            many = steps[0] - before > 20
            if ran := many is (flags != 0):
                break
    finally:
        stop.set()
        thread.join()
    assert ran
