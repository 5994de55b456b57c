"""What a kernel means: its body evaluated by NumPy, and a backend that runs kernels this way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from jitla.fusion.kernel import (
    Form,
    Geometry,
    Kernel,
    Schedule,
    gather_tables,
)
from jitla.hops import Hop, Kind, const_value, start_recording, stop_recording, take_flags


def run_kernel(kernel: Kernel, values: Mapping[Hop, Any]) -> dict[Hop, Any]:
    """Return the outputs of `kernel`; `values` are those of its inputs that are no constants."""
    known = _with_constants(kernel, values)
    for hop in kernel.body:
        known[hop] = hop.op.ref(*[known[i] for i in hop.inputs], **dict(hop.attrs))
    return {h: known[h] for h in kernel.outputs}


def _with_constants(kernel: Kernel, values: Mapping[Hop, Any]) -> dict[Hop, Any]:
    known = dict(values)
    for hop in kernel.inputs:
        if hop.op.name == "const":
            known[hop] = const_value(hop)
    return known


class _Block(bytes):
    """An argument block that remembers which kernel it is for."""

    run: Callable[..., None]


class Interpreted:
    """A kernel of one form, run by NumPy over the merged dimensions, like machine code would."""

    def __init__(self, kernel: Kernel, form: Form) -> None:
        self.kernel = kernel
        self.form = form
        self.text = f"interpreted {form}"

    def template(self, geometry: Geometry, more: bool = False) -> bytes:
        """Return the argument block for operands that lie as `geometry` says."""
        assert not more, "blocks of rows are for kernels over rows"
        block = _Block(b"")
        block.run = lambda *operands: self._run(geometry, operands)
        return block

    def scratch(self, geometry: Geometry) -> int:
        """Return 0: what NumPy takes does not count."""
        return 0

    def _run(self, geometry: Geometry, operands: Sequence[Any]) -> None:
        strides = iter(geometry.strides)
        given = iter(operands)
        known: dict[Hop, Any] = {}
        for hop in self.kernel.inputs:
            if hop.op.name == "const":
                continue
            operand = next(given)
            if hop.meta.shape == ():
                _expect_scalar(hop, operand)
                known[hop] = hop.meta.dtype.type(operand)
            elif hop in gather_tables(self.kernel.body):
                known[hop], _ = operand, next(strides)
            else:
                known[hop] = _walked(hop, operand, geometry.dims, next(strides))
        known = _with_constants(self.kernel, known)
        walked = self.form.mode != "tally"
        targets = [(h, _walked(h, o, geometry.dims, s) if walked else o) for h, o, s in zip(
            self.kernel.outputs, given, strides, strict=True)]
        bins = dict(targets)
        for hop in self.kernel.body:
            if hop.op.kind is Kind.TALLY:
                known[hop] = hop.op.ref(*[known[i] for i in hop.inputs], shape=bins[hop].shape)
            else:
                self._evaluate(hop, known, geometry.dims)
        for hop, target in targets:
            target[...] = known[hop]

    def _evaluate(self, hop: Hop, known: dict[Hop, Any], dims: tuple[int, ...]) -> None:
        values = [known[i] for i in hop.inputs]
        if hop.op.kind is Kind.AGG:
            (value,) = values
            whole = np.empty(dims, value.dtype)
            whole[...] = value
            every = tuple(range(len(dims)))
            axis = {"full": every, "rows": every[-1:], "cols": every[:1]}[self.form.mode]
            known[hop] = hop.op.ref(whole, axis=axis, keepdims=True)
        elif hop.op.kind is Kind.TAKE:
            table, places = values
            known[hop] = table[places]  # dimensions are merged: how the result lies is told by its strides
        else:
            known[hop] = hop.op.ref(*values, **dict(hop.attrs))


def _expect_scalar(hop: Hop, operand: Any) -> None:
    """A scalar's bits are read at byte 16 of the object: only these two kinds have them there."""
    exact = {float: np.float64, complex: np.complex128}.get(type(operand)) is hop.meta.dtype.type
    assert exact or type(operand) is hop.meta.dtype.type, (hop, type(operand))


def _walked(hop: Hop, array: Any, dims: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """View the memory of `array` as the loop does."""
    assert type(array) is np.ndarray and array.dtype == hop.meta.dtype, (hop, type(array))
    base = as_strided(array, (1,), (0,))
    return as_strided(base, dims, strides)


class InterpretedBackend:
    """A backend without machine code: the truth that others are compared with."""

    name = "interpreted"
    templates: tuple[str, ...] = ("Cell", "MAgg")

    def __init__(self, refuse: Callable[[Hop], str | None] = lambda hop: None) -> None:
        self._refuse = refuse

    def supports(self, hop: Hop) -> str | None:
        """Return why `hop` cannot be in a kernel, or None."""
        if hop.op.kind is Kind.CALL:
            return "not element-wise"
        if any(h.meta.dtype.kind not in "biufc" for h in (hop, *hop.inputs)):
            return f"dtype {hop.meta.dtype}"
        if hop.op.name == "prod" and hop.meta.dtype.kind in "fc":
            return "order of multiplication"
        if hop.op.name in ("min", "max") and hop.meta.dtype.kind == "c":
            return "order of comparison"
        return self._refuse(hop)

    def assembly(self, text: str) -> str:
        """Return nothing: what is interpreted is compiled to no assembly language."""
        return ""

    def compile(self, kernel: Kernel, form: Form, schedule: Schedule) -> Interpreted:
        """Return an executable that evaluates `kernel`."""
        return Interpreted(kernel, form)

    @property
    def launch(self) -> Callable[..., int]:
        """Run a kernel on its operands; the floating-point flags it raised."""
        return _launch


def _launch(block: Any, *operands: Any) -> int:
    before = start_recording()
    try:
        block.run(*operands)
    finally:
        stop_recording(before)
    return take_flags()
