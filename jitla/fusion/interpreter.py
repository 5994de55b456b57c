"""Reference semantics of kernels: bodies evaluated by NumPy, and a backend that runs kernels this way."""

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
    """Return the outputs of `kernel`, given the `values` of all inputs that are no constants."""
    results = _with_constants(kernel, values)
    for hop in kernel.body:
        results[hop] = hop.op.ref(*[results[i] for i in hop.inputs], **dict(hop.attrs))
    return {h: results[h] for h in kernel.outputs}


def _with_constants(kernel: Kernel, values: Mapping[Hop, Any]) -> dict[Hop, Any]:
    bound = dict(values)
    for hop in kernel.inputs:
        if hop.op.name == "const":
            bound[hop] = const_value(hop)
    return bound


class _Block(bytes):
    """An argument block that refers to the kernel it is for."""

    run: Callable[..., None]


class InterpretedKernel:
    """A kernel of one form, run by NumPy over the merged dimensions, as machine code would."""

    def __init__(self, kernel: Kernel, form: Form) -> None:
        self.kernel = kernel
        self.form = form
        self.text = f"interpreted {form}"

    def template(self, geometry: Geometry, more: bool = False) -> bytes:
        """Return the argument block for operands with this `geometry`."""
        assert not more, "blocks of rows are for kernels over rows"
        block = _Block(b"")
        block.run = lambda *operands: self._run(geometry, operands)
        return block

    def scratch(self, geometry: Geometry) -> int:
        """Return 0: NumPy's temporaries do not count."""
        return 0

    def _run(self, geometry: Geometry, operands: Sequence[Any]) -> None:
        strides = iter(geometry.strides)
        remaining = iter(operands)
        values: dict[Hop, Any] = {}
        for hop in self.kernel.inputs:
            if hop.op.name == "const":
                continue
            operand = next(remaining)
            if hop.meta.shape == ():
                _check_scalar(hop, operand)
                values[hop] = hop.meta.dtype.type(operand)
            elif hop in gather_tables(self.kernel.body):
                values[hop], _ = operand, next(strides)
            else:
                values[hop] = _strided_view(hop, operand, geometry.dims, next(strides))
        values = _with_constants(self.kernel, values)
        is_strided = self.form.mode != "tally"
        targets = [(h, _strided_view(h, o, geometry.dims, s) if is_strided else o) for h, o, s in zip(
            self.kernel.outputs, remaining, strides, strict=True)]
        bins = dict(targets)
        for hop in self.kernel.body:
            if hop.op.kind is Kind.TALLY:
                values[hop] = hop.op.ref(*[values[i] for i in hop.inputs], shape=bins[hop].shape)
            else:
                self._evaluate(hop, values, geometry.dims)
        for hop, target in targets:
            target[...] = values[hop]

    def _evaluate(self, hop: Hop, values: dict[Hop, Any], dims: tuple[int, ...]) -> None:
        arguments = [values[i] for i in hop.inputs]
        if hop.op.kind is Kind.AGG:
            (value,) = arguments
            broadcast = np.empty(dims, value.dtype)
            broadcast[...] = value
            every = tuple(range(len(dims)))
            axis = {"full": every, "rows": every[-1:], "cols": every[:1]}[self.form.mode]
            values[hop] = hop.op.ref(broadcast, axis=axis, keepdims=True)
        elif hop.op.kind is Kind.TAKE:
            table, indices = arguments
            values[hop] = table[indices]  # with merged dimensions: its layout is given by the strides
        else:
            values[hop] = hop.op.ref(*arguments, **dict(hop.attrs))


def _check_scalar(hop: Hop, operand: Any) -> None:
    """Check the type of a scalar: machine code reads its value at byte 16, where only these types have it."""
    exact = {float: np.float64, complex: np.complex128}.get(type(operand)) is hop.meta.dtype.type
    assert exact or type(operand) is hop.meta.dtype.type, (hop, type(operand))


def _strided_view(hop: Hop, array: Any, dims: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """Return a view of the memory of `array` with the loop's dimensions and strides."""
    assert type(array) is np.ndarray and array.dtype == hop.meta.dtype, (hop, type(array))
    base = as_strided(array, (1,), (0,))
    return as_strided(base, dims, strides)


class InterpretedBackend:
    """A backend without machine code: the reference that others are compared with."""

    name = "interpreted"
    templates: tuple[str, ...] = ("Cell", "MAgg")

    def __init__(self, refuse: Callable[[Hop], str | None] = lambda hop: None) -> None:
        self._refuse = refuse

    def supports(self, hop: Hop) -> str | None:
        """Return the reason why `hop` cannot be in a kernel, or None."""
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
        """Return an empty text: there is no assembly language."""
        return ""

    def compile(self, kernel: Kernel, form: Form, schedule: Schedule) -> InterpretedKernel:
        """Return an executable that evaluates `kernel`."""
        return InterpretedKernel(kernel, form)

    @property
    def launch(self) -> Callable[..., int]:
        """Run a kernel on its operands; returns the floating-point flags it raised."""
        return _launch


def _launch(block: Any, *operands: Any) -> int:
    before = start_recording()
    try:
        block.run(*operands)
    finally:
        stop_recording(before)
    return take_flags()
