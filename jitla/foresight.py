"""What a block will take, foreseen by its operations: with NumPy, with a program, and to compile.

Knows: what operations cost on the machine of round numbers, and their compilation. Must not know: plans.
Receives requests; returns seconds and bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitla.gate import GATE

if TYPE_CHECKING:
    from jitla.tracing import Request

__all__ = ["expected", "least", "loading", "numpy_seconds", "temporaries"]

# Seconds of a traced call, and of each of its operations.
TRACED, OPERATION_TRACED = 3e-6, 0.4e-6
# Seconds that compiling is thought to take until some was done: for a block, and for each operation.
BLOCK, OPERATION = 0.02, 0.002
LOADING = 0.3  # the compiler itself
# The same where an earlier process has left plan and machine code.
FOUND, OPERATION_FOUND, LOADING_FOUND = 0.003, 2e-4, 0.08


def numpy_seconds(request: Request) -> float:
    """Return what NumPy is predicted to take for a block."""
    hops = GATE.room("hops")
    order = [h for h in hops.topo(request.roots) if h.inputs]
    seconds: float = len(order) * hops.NUMPY_CALL + hops.numpy_work(order)
    return seconds


def least(request: Request) -> float:
    """Return the seconds that a traced call takes at least for a block, whatever is compiled for it."""
    hops = GATE.room("hops")
    order, machine = list(hops.topo(request.roots)), hops.REFERENCE
    made = [h for h in order if h.inputs]
    held = sum(h.meta.nbytes for h in {*request.roots, *order} if not h.inputs or h in request.roots)
    cells = sum(hops.flops(h) for h in made if h.op.kind is not hops.Kind.CALL)
    products = sum(hops.flops(h) for h in made if h.op.kind is hops.Kind.CALL)
    work: float = min(
        cost + max(machine.reading(held, held, threads), cells * machine.unit / threads
                   + products / machine.product)
        for threads, cost in ((1, 0.0), (machine.threads, machine.wake)))
    return TRACED + OPERATION_TRACED * len(made) + work


def temporaries(request: Request) -> float:
    """Return the bytes that NumPy's intermediates take at most, by when they are read last."""
    order = [h for h in GATE.room("hops").topo(request.roots) if h.inputs]
    last = {i: at for at, h in enumerate(order) for i in h.inputs if i.inputs}
    results, alive, most = set(request.roots), 0.0, 0.0
    for at, hop in enumerate(order):
        if hop not in results:
            alive += hop.meta.size * hop.meta.dtype.itemsize
        most = max(most, alive)
        done = {i for i in hop.inputs if last.get(i) == at and i not in results}
        alive -= sum(i.meta.size * i.meta.dtype.itemsize for i in done)
    return most


def expected(request: Request, found: bool = False) -> float:
    """Return the seconds that compiling a block is thought to take, before there is any experience.

    `found`: an earlier process has done it.
    """
    block, operation = (FOUND, OPERATION_FOUND) if found else (BLOCK, OPERATION)
    return block + operation * len(GATE.room("hops").topo(request.roots))


def loading(found: bool = False) -> float:
    """Return the seconds until the first program of a process can be made, if there was none."""
    return 0.0 if GATE.compiles else LOADING_FOUND if found else LOADING
