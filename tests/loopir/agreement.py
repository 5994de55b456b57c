"""Machine code of loop programs held against the interpreter: exits, flags, results and memory."""

from __future__ import annotations

import numpy as np

from jitla.codegen.loop_programs import compile_program
from jitla.loopir.program_interpreter import run_program
from jitla.loopir.program_state import pack_state, unpack_state
from jitla.loopir.program_verifier import verify_program

ARENA_BYTES = 1 << 16


def copied(values):
    """Return values with arrays copied; views of one array remain views of one copy."""
    bases = {}

    def base_of(array):
        while isinstance(array.base, np.ndarray):
            array = array.base
        return array

    def copy(array):
        base = base_of(array)
        if id(base) not in bases:
            bases[id(base)] = base, base.copy(order="A")
        other = bases[id(base)][1]
        offset = array.ctypes.data - base.ctypes.data
        flat = other.reshape(-1, order="A").view(np.uint8) if other.size else other
        return np.ndarray(array.shape, array.dtype, flat, offset, array.strides) if other.size else array

    return {n: copy(v) if isinstance(v, np.ndarray) else v for n, v in values.items()}


def same(x, y):
    """Return whether arrays or scalars have the same bits; NaNs are equal, as their bits follow no rule."""
    x, y = np.asarray(x), np.asarray(y)
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if x.dtype.kind == "c":
        return same(x.real, y.real) and same(x.imag, y.imag)
    if x.dtype.kind == "f":
        both = np.isnan(x) & np.isnan(y)
        return bool(np.all(both | (x == y) & (np.signbit(x) == np.signbit(y))))
    return np.array_equal(x, y)


def interpreted(program, values):
    """Return the outcome, results and values after a run of the interpreter."""
    verify_program(program)
    arena = np.full(ARENA_BYTES, 0xA5, np.uint8)
    values = copied(values)
    state = pack_state(program, values, arena)
    outcome = run_program(program, state)
    return outcome, unpack_state(program, state), values


def compiled(jit, program, values, level=1):
    """Return the outcome, results and values after a run of machine code."""
    arena = np.full(ARENA_BYTES, 0xA5, np.uint8)
    values = copied(values)
    state = pack_state(program, values, arena)
    outcome = compile_program(program, jit, level).run(state)
    return outcome, unpack_state(program, state), values


def assert_agrees(jit, program, levels=(0, 1), flags=True, **values):
    """Run a program both ways; return the outcome, the results, and the values afterwards."""
    expected = interpreted(program, values)
    for level in levels:
        outcome, results, after = compiled(jit, program, values, level)
        assert outcome.exit == expected[0].exit, (level, outcome, expected[0])
        if flags:
            assert outcome == expected[0], (level, outcome, expected[0])
        for found, wanted in ((results, expected[1]), (after, expected[2])):
            for name, value in wanted.items():
                assert same(found[name], value), (level, name, found[name], value)
    return expected
