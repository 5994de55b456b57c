"""Functions of floats on bytes: calibrated, rewritten block by block, and compared with what they were."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import update_wrapper
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from jitla import packages
from jitla.config import current, options
from jitla.engine import ENGINE
from jitla.errors import TraceError
from jitla.tracing import INSTRUMENTED, Replay, Site, run_traced

__all__ = ["QuantizedFunction", "Report", "quantized"]


class Report(NamedTuple):
    """How results on the calibration data differ from those of floats.

    `largest` and `mean` are absolute differences, `range` the largest magnitude of float results; `agreement`
    is the share of rows whose largest element is in the same place, NaN if results are no matrices.
    """

    largest: float
    mean: float
    range: float
    agreement: float
    products: int
    scales: tuple[tuple[float, Any], ...]

    def __str__(self) -> str:
        lines = [f"{self.products} products on bytes; results to {self.range:.4g}: "
                 f"off by {self.mean:.3g} on average, {self.largest:.3g} at most"]
        if self.agreement == self.agreement:
            lines.append(f"largest element of a row in the same place: {self.agreement:.2%}")
        for i, (pixels, weights) in enumerate(self.scales, 1):
            columns = np.asarray(weights)
            text = f"{columns.min():.4g}" + f" to {columns.max():.4g} by column" * bool(columns.ndim)
            lines.append(f"  ({i}) left operand {pixels:.4g} a step, right operand {text}")
        return "\n".join(lines)


class QuantizedFunction:
    """A function whose products of floats are done on bytes; call it as the function itself.

    `report` says how far its results on the calibration data are from those of floats.
    """

    report: Report

    def __init__(self, function: Callable[..., Any], per_channel: bool) -> None:
        update_wrapper(self, function)
        self.function = function
        self.per_channel = per_channel
        self.scales: list[tuple[float, Any]] = []
        self._seen: dict[Any, Any] = {}
        self._sites: dict[Any, Any] = {}
        instrumented = None
        if isinstance(function, FunctionType):
            instrumented = INSTRUMENTED.get(function, decorated=True)
        if instrumented is None:
            raise TraceError("quantize needs a function whose source can be read")
        self._instrumented: Callable[..., Any] = instrumented

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute with integers."""
        config = current()
        site = self._sites.get(config.epoch)
        if site is None:
            site = self._sites[config.epoch] = self._site(config, self._compile_quantized)
        return run_traced(site, self._instrumented, args, kwargs)

    def programs(self) -> list[Any]:
        """Return the programs that the options in force have led to."""
        site = self._sites.get(current().epoch)
        return list(site.runs()) if site is not None else []

    def calibrate(self, args: tuple[Any, ...]) -> Any:
        """Return the float results for arguments; how large operands of products are is noted."""
        site = self._site(current(), self._observe_block)
        return run_traced(site, self._instrumented, args, {})

    def _site(self, config: Any, compiled: Any) -> Site:
        def compile_block(key: Any, sizes: Any, layouts: Any, make: Any, note: Any) -> Any:
            return compiled(config, key, sizes, layouts, make)

        name = getattr(self.function, "__qualname__", "")
        site = Site(name, compile_block, False, lambda: ENGINE.index_loops(config))
        site.unroll_limit = ENGINE.unroll_limit(config, always=True)
        return site

    def _observe_block(self, config: Any, key: Any, sizes: Any, layouts: Any, make: Any) -> Any:
        quant = packages.accel
        return _ObservingReplay(make(), self._seen.setdefault(key, quant.ValueRanges()), quant.observe)

    def _compile_quantized(self, config: Any, key: Any, sizes: Any, layouts: Any, make: Any) -> Any:
        seen = self._seen.get(key)
        if seen is None or not seen.whole:
            return ENGINE.bind(config, key, sizes, layouts, make)[0]
        request = make()
        slots = [h for r in request.roots for h in packages.hops.topo((r,)) if h.op.name == "leaf"]
        first = max((h.attr("slot") for h in slots), default=-1) + 1
        made = packages.accel.QuantisedDag(request.roots, seen, self.per_channel, first)
        self.scales = made.scales
        extra = {first + i: (x.shape, x.strides) for i, x in enumerate(made.extras)}
        request = request._replace(roots=made.roots, layouts={**request.layouts, **extra})
        bound, _ = ENGINE.bind(config, (key, self), sizes, {**layouts, **extra}, lambda: request)
        return _WithExtraOperands(bound, first, made.extras)


class _ObservingReplay(Replay):
    """A block that is evaluated by NumPy while its operands are looked at."""

    def __init__(self, request: Any, seen: Any, observe: Any) -> None:
        super().__init__(request)
        self._seen, self._observe = seen, observe

    def run(self, leaves: list[Any]) -> tuple[Any, ...]:
        """Return the values of the roots."""
        self._observe(self.request.roots, leaves, self._seen)
        return super().run(leaves)


class _WithExtraOperands:
    """A bound program that takes arrays of its own behind those of the block."""

    frozen = False

    def __init__(self, bound: Any, first: int, extras: list[np.ndarray]) -> None:
        self._of, self._first, self._extras = bound, first, extras
        self.effects: Any = None

    @property
    def program(self) -> Any:
        return self._of.program

    @property
    def count(self) -> int:
        made: int = self._of.count
        return made

    def run(self, leaves: list[Any]) -> tuple[Any, ...]:
        """Return the values of the roots."""
        given = [*leaves[:self._first], *[None] * (self._first - len(leaves)), *self._extras]
        found: tuple[Any, ...] = self._of.run(given)
        return found


def quantized(function: Callable[..., Any], data: Iterable[Any], per_channel: bool) -> QuantizedFunction:
    """Return `function` on bytes, calibrated with `data`, and compared with floats on it."""
    plain = getattr(function, "__wrapped__", function)
    made = QuantizedFunction(plain, per_channel)
    every = [args if isinstance(args, tuple) else (args,) for args in data]
    if not every:
        raise TraceError("quantize needs arguments to calibrate with")
    wanted = [np.asarray(made.calibrate(args)) for args in every]
    with options(accelerator=""):
        found = [np.asarray(made(*args)) for args in every]
    made.report = _compare(found, wanted, made.scales)
    return made


def _compare(found: list[Any], wanted: list[Any], scales: list[tuple[float, Any]]) -> Report:
    apart = [np.abs(a.astype(float) - b) for a, b in zip(found, wanted, strict=True)]
    every = np.concatenate([a.reshape(-1) for a in apart])
    rows = [(a.argmax(-1) == b.argmax(-1)) for a, b in zip(found, wanted, strict=True) if b.ndim == 2]
    agreement = float(np.concatenate(rows).mean()) if rows else float("nan")
    most = max(float(np.abs(w).max(initial=0)) for w in wanted)
    return Report(float(every.max(initial=0)), float(every.mean()) if every.size else 0.0, most, agreement,
                  len(scales), tuple(scales))
