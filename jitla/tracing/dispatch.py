"""Calls of NumPy on proxies: which become entries of the tape, and how the rest is handed to NumPy.

Knows: NumPy's calling conventions. Must not know: blocks, frames, hooks.
Receives NumPy callables with their arguments; returns proxies or what NumPy returns.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

from jitla.hops import Shape, broadcast
from jitla.tracing.array import LAZY, UFUNCS, Gone, Lazy, LazyArray, LazyScalar, in_memory
from jitla.tracing.closing import BASE, NOTHING
from jitla.tracing.functions import FUNCTIONS, METHOD_NAME, reduction, written
from jitla.tracing.indexing import Bound, fits, lone_complex
from jitla.tracing.kinds import TAME, is_wild
from jitla.tracing.narrowing import conversion
from jitla.tracing.operators import meet
from jitla.tracing.places import call_here
from jitla.tracing.powers import is_paired
from jitla.tracing.recording import Recording
from jitla.tracing.signature import METAS, TRACED, layout_id, owns_memory
from jitla.tracing.tape import OP_ID
from jitla.tracing.thread_state import LOCAL

# Bytes of arrays that wait for nobody but a block, which is closed when there are more.
MOST_HELD = 1 << 28
# Types of arguments that NumPy does not call.
_NOT_CALLED = TAME | {np.ndarray, list, tuple}
LARGE = 1 << 20  # smaller arrays are not counted at all: looking takes as long as making them
_REDUCE_UFUNC = {np.add: "sum", np.maximum: "max", np.minimum: "min", np.logical_and: "all",
                 np.logical_or: "any"}
_MUTATING_METHODS = frozenset({"sort", "partition", "fill", "resize", "put", "itemset", "setflags",
                               "byteswap", "setfield"})


class Dispatch(Recording):
    """The part of a session that understands calls of NumPy."""

    __slots__ = ()

    def hand_over(self) -> None:
        """Make the world fit for code that jitla does not see."""
        raise NotImplementedError

    def called(self, function: Any, *args: Any) -> Any:
        """Call `function`, which may warn, from the user's line."""
        return call_here(function, *args)

    # ------------------------------------------------------------------ protocols

    def ufuncs(self, ufunc: Any, x: Any, y: Any) -> Any:
        """Record or run ``ufunc(x, y)``; a power as the operator does it."""
        if ufunc is np.power:
            return self.power(x, y)
        record = UFUNCS.get(ufunc)
        return record(x, y) if record is not None else self.eager(ufunc, (x, y), {})

    def ufunc(self, ufunc: Any, method: str, inputs: tuple, kwargs: dict) -> Any:
        """Serve ``__array_ufunc__`` where the call is not plain, or of a ufunc not met before."""
        if ufunc not in UFUNCS and meet(ufunc) and not kwargs and method == "__call__":
            return UFUNCS[ufunc](*inputs)
        if method == "__call__" and len(kwargs) == 1 and ufunc in UFUNCS and ufunc.nout == 1:
            out = kwargs.get("out")
            if out is not None and out[0] is not None:
                return self._into(ufunc, inputs, out[0])
        if method == "reduce" and ufunc in _REDUCE_UFUNC and set(kwargs) <= {"axis", "keepdims"}:
            made = reduction(self, _REDUCE_UFUNC[ufunc], inputs[0], kwargs.get("axis", 0),
                             keepdims=kwargs.get("keepdims", False))
            if made is not NotImplemented:
                return made
        if ufunc is np.matmul and method == "__call__" and set(kwargs) <= {"dtype"}:
            made = self._product_as(kwargs["dtype"], *inputs) if kwargs else self.matmul(*inputs, slow=ufunc)
            if made is not NotImplemented:
                return made
        return self.eager(ufunc if method == "__call__" else getattr(ufunc, method), inputs, kwargs)

    def _product_as(self, dtype: Any, x: Any, y: Any) -> Any:
        """Do ``matmul(x, y, dtype=dtype)`` for matrices of integers: they are cast before."""
        known = [self.operand(a) for a in (x, y)]
        wanted = np.dtype(dtype)
        if wanted.kind != "i" or any(type(a) is not LazyArray or a.ndim != 2 or a.dtype.kind != "i" or
                                     a.dtype.itemsize >= wanted.itemsize for a in known):
            return NotImplemented
        return self.matmul(*(a.astype(wanted) for a in known), slow=np.matmul)

    def _into(self, ufunc: Any, inputs: tuple, out: Any) -> Any:
        """Do ``ufunc(*inputs, out=out)``."""
        if self.site.unrolls and type(out) is LazyArray and len(inputs) == 2 and inputs[0] is out and \
                out._v is None and not self.viewed(out) and self._rebind(out, ufunc, inputs[1]):
            return out
        memory = self.settle(out) if type(out) is LazyArray else out
        if self.attentive and isinstance(memory, np.ndarray):
            self.before_write(memory)
            call_here(ufunc, *self.plain(inputs), out=memory)
            return out
        if type(memory) is np.ndarray and memory.flags.writeable \
                and (type(out) is LazyArray or memory.dtype in TRACED and owns_memory(memory)):
            known = [self.operand(x) for x in inputs]
            if any(x is None for x in known) or not _fills(memory, known) \
                    or _halved(ufunc, known) or ufunc is np.power and not is_paired(*inputs):
                return self.eager(ufunc, inputs, {"out": out})
            made = UFUNCS[ufunc](*known)
            if type(made) is LazyArray and made._v is None:
                n, meta = made._n, METAS[made._m]
                attrs = conversion(ufunc, meta.dtype, memory.dtype)
                if meta.shape == memory.shape and attrs is not None:
                    mine = not any(made is x for x in known)
                    if mine:  # nobody else has it
                        self.nodes[n] = Gone(made._m)
                        made._n = -1
                    self.store(memory, self._conformed(n, made._m, memory, attrs, not mine), NOTHING)
                    return out
            del made  # nobody wants it: it is not computed
        return self.eager(ufunc, inputs, {"out": out})

    def function(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Serve ``__array_function__`` and methods: a handler of the table, else NumPy."""
        handler = FUNCTIONS.get(func)
        if handler is not None:
            try:
                made = handler(self, *args, **kwargs)
            except TypeError:
                made = NotImplemented
            if made is not NotImplemented:
                return made
        return self.eager(func, args, kwargs)

    def eager(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Run `func` with NumPy on what the proxies mean, and count it."""
        out = kwargs.get("out")
        plain = self.plain(args)
        options = {k: self.plain(v) for k, v in kwargs.items()}
        for target in written(func, plain, options):
            self.before_write(target)
        wild = any(map(is_wild, plain))
        if wild or not _NOT_CALLED.issuperset(map(type, plain)) and any(map(callable, plain)) or \
                any(map(callable, options.values())):
            self.hand_over()
        session = LOCAL.session
        if not wild:  # else what stands for operands of users' classes goes on in the session
            LOCAL.session = None  # NumPy may call handlers of errors, or its arguments
        try:
            result = self.site.fallback(func, plain, options)
        finally:
            LOCAL.session = session
        if out is None:
            return self.result(result, args, plain, fresh=True)
        if type(out) is not tuple:
            return out if result is options["out"] else self.wrap(result)
        given = options["out"]
        if type(result) is not tuple or len(result) != len(out):
            # what another type answers may be anything
            return out[0] if result is given[0] else self.wrap(result)
        return tuple([o if r is g else self.wrap(r) for o, g, r in zip(out, given, result, strict=True)])

    def result(self, result: Any, args: tuple, plain: tuple, fresh: bool = False) -> Any:
        """Wrap what was returned; an argument returned as it is keeps its identity.

        A list is wrapped only if it is `fresh`: nobody else may find proxies in it.
        """
        kind = type(result)
        if issubclass(kind, np.ndarray):
            for proxy, value in zip(args, plain, strict=True):
                if value is result:
                    return proxy
            if result.nbytes >= LARGE:
                self.weigh()
            return self.wrap(result) if owns_memory(result) else result
        if kind is tuple:
            made = self._wrapped(result, args, plain)
            return result if all(map(operator.is_, made, result)) else tuple(made)
        if kind is list and fresh:
            result[:] = self._wrapped(result, args, plain)
        return result

    def weigh(self) -> None:
        """Close a block that keeps too much memory from being freed: arrays that nobody else refers to."""
        if len(self.entered) > 1:
            counts = list(map(getrefcount, self.entered))  # before anybody holds one to look at
            kept = (p._v for p, count in zip(self.entered, counts, strict=True) if count == BASE)
            if sum(value.nbytes for value in kept if value is not None) > MOST_HELD:
                self.close()

    def _wrapped(self, results: Any, args: tuple, plain: tuple) -> list[Any]:
        """Wrap every array of a sequence; what is one object stays one."""
        known = {id(value): proxy for proxy, value in zip(args, plain, strict=True)}
        return [known.setdefault(id(v), self.wrap(v)) if type(v) is np.ndarray and owns_memory(v) else v
                for v in results]

    # ------------------------------------------------------------------ methods and attributes

    def relabel(self, array: LazyArray) -> None:
        """Read the layout of an array in memory anew."""
        raise NotImplementedError

    def attribute(self, proxy: LazyArray, name: str) -> Any:
        """Return attribute `name` of what `proxy` means."""
        func = METHODS.get(name)
        if func is not None:
            return Bound(func, self, proxy, name)
        if name == "real" or name == "imag":
            return self.part(proxy, name)
        if callable(getattr(np.ndarray, name)):
            return Bound(Dispatch._plain_method, self, proxy, name)
        value = self.value(proxy)
        made = getattr(value, name)
        return proxy if made is value else self.wrap(made)

    def part(self, array: LazyArray, name: str) -> Any:
        """Return the real or the imaginary part: a view of complex numbers."""
        if METAS[array._m].dtype.kind == "c":
            return self.view(array, "__getattribute__", (name,), OP_ID[name])
        return array if name == "real" else self.wrap(self.value(array).imag)

    def reduced(self, proxy: LazyArray, name: str, args: tuple, kwargs: dict) -> Any:
        """Call the reduction `name` of an array: recorded where that is possible."""
        return METHODS[name](self, proxy, name, *args, **kwargs)

    def _plain_method(self, proxy: LazyArray, name: str, *args: Any, **kwargs: Any) -> Any:
        viewed = name == "resize" and self.viewed(proxy)
        memory = self.settle(proxy)
        if name in _MUTATING_METHODS:
            self.before_write(memory)
        plain = self.plain(args)
        options = {k: self.plain(v) for k, v in kwargs.items()}
        if name == "resize" and options.get("refcheck", True) in (True,):
            # NumPy would count the references of proxy and session, too.
            alone = _ALONE[bool(kwargs)]
            held = getrefcount(proxy) > alone[0] or getrefcount(memory) > alone[1]
            options["refcheck"] = held or viewed
        for target in (*plain[1:], options.get("out")):
            if isinstance(target, np.ndarray):  # it may be the place for the result
                self.before_write(target)
        result = self.site.fallback(getattr(memory, name), plain, options)
        result = self.result(
            result, (proxy, *args, kwargs.get("out")), (memory, *plain, options.get("out")))
        if name in _MUTATING_METHODS and proxy._l != layout_id(memory):
            self.relabel(proxy)
        return result

    def method(self, proxy: Lazy, name: str, args: tuple, kwargs: dict) -> Any:
        """Call method `name` with NumPy."""
        if type(proxy) is LazyScalar:
            return getattr(self.value(proxy), name)(*args, **kwargs)
        assert type(proxy) is LazyArray
        return self._plain_method(proxy, name, *args, **kwargs)


def _fills(memory: np.ndarray, operands: list[Any]) -> bool:
    """Say whether what comes of `operands`, proxies and scalars, may be written into all of `memory`."""
    if lone_complex(memory):
        return False
    shape = memory.shape
    shapes: list[Shape] = []
    lazy = False
    for x in operands:
        if type(x) in LAZY:
            lazy = True
            shapes.append(METAS[x._m].shape)
            if not fits(shapes[-1], shape):
                return False
    return lazy and (shape in shapes or broadcast(tuple(shapes)) == shape)


def _halved(ufunc: Any, operands: list[Any]) -> bool:
    """Say whether NumPy may compute in half precision: not recorded, it would run twice, and warn."""
    sizes = [METAS[x._m].dtype.itemsize for x in operands if type(x) in LAZY]
    return max(sizes) == 1 and ufunc.types[0][0] == "e"


def _alone(**kwargs: Any) -> tuple[int, int]:
    """Count the references to a proxy and to its memory where one variable is all that holds them."""
    array = in_memory(None, np.empty(1), layout_id(np.empty(1)))
    counted: tuple[int, int] = Bound(_counted, None, array, "resize")(1, **kwargs)
    return counted


def _counted(session: Any, proxy: LazyArray, name: str, *args: Any, **kwargs: Any) -> Any:
    memory = proxy._v
    return getrefcount(proxy), getrefcount(memory)


# Without and with keywords.
_ALONE = _alone(), _alone(refcheck=True)


def _method(func: Any) -> Callable[..., Any]:
    """Make a method of arrays that calls the NumPy function `func`."""
    def call(
        session: Dispatch, proxy: LazyArray, name: str, *args: Any, **kwargs: Any
    ) -> Any:
        handler = FUNCTIONS[func]
        try:
            made = handler(session, proxy, *args, **kwargs)
        except TypeError:
            made = NotImplemented
        if made is not NotImplemented:
            return made
        return session._plain_method(proxy, name, *args, **kwargs)
    return call


METHODS: dict[str, Callable[..., Any]] = {name: _method(f) for f, name in METHOD_NAME.items()}
