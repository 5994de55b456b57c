"""Hooks that instrumented code calls at run time, and the batching of loop iterations into one block.

`Hooks` has one method for each kind of operation where an array can enter, leave or be seen by code that is
not traced; `jitla.instrument` calls them by name. Without a session in the thread they change nothing.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from sys import _getframe, getrefcount
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from jitla.hops import FLAGS_BY_THREAD, start_recording, stop_recording, take_flags
from jitla.instrument import SCALAR_TYPES, loops_in_python
from jitla.introspection import hide_module
from jitla.tracing.boundary import PROXY_CARRIERS, ProxyMethod
from jitla.tracing.callees import (
    SAFE_ITERABLES,
    AddAtCall,
    BuiltinCall,
    ContainerCall,
    CreationCall,
    ForeignCall,
    InstrumentedTable,
    ManagedContext,
    NumbaCall,
    NumpyCall,
    is_safe_iterable,
)
from jitla.tracing.force import COMPREHENSION_REFS
from jitla.tracing.fp_warnings import can_defer_warnings
from jitla.tracing.frames import LOCAL, bridge, call_at, call_here, hide_function, place_of
from jitla.tracing.lazy import LAZY, LazyArray, LazyScalar
from jitla.tracing.numba_ufuncs import is_numba
from jitla.tracing.numpy_api.functions import MUTATING
from jitla.tracing.numpy_dispatch import METHODS
from jitla.tracing.session import Session
from jitla.tracing.sparse.lazy_sparse import LazySparse, scipy_matrix
from jitla.tracing.sparse.operations import record_sparse_call
from jitla.tracing.sparse.sparsify import Sparsified
from jitla.tracing.tape import TRACED
from jitla.tracing.user_types import (
    CONTAINER_TYPES,
    LAZY_ITERATORS,
    SAFE_TYPES,
    are_loads_plain,
    getter_of,
    is_delete_plain,
    is_store_plain,
    load_runs_user_code,
    may_run_user_code,
    setter_of,
    wrap_operand,
)

_ARRAYS = LAZY | {np.ndarray}
_REPRESENTING = LAZY | {LazySparse}  # proxies that may represent existing objects
_SEQUENCES = frozenset({tuple, list, LazyArray, np.ndarray, str})


class OperandHooks:
    """Hooks that prepare values for their uses: lift arrays to proxies, materialise proxies, end blocks."""

    def call(self, f: Any) -> Any:
        """Return the replacement of the callee `f`."""
        raise NotImplementedError

    def materialise(self, value: Any) -> Any:
        """Return the value to store in a global or closure variable: never a proxy."""
        session = LOCAL.session
        return settle_value(value) if session is None else session.boundary.plain(value)

    def element(self, value: Any) -> Any:
        """Return an element of a comprehension: never a proxy."""
        session = LOCAL.session
        return settle_value(value) if session is None else session.boundary.plain(value)

    def summand(self, value: Any) -> Any:
        """Return an element of a comprehension that `sum` adds up: arrays may be proxies."""
        return value if type(value) is LazyArray else self.element(value)

    def hashed_element(self, value: Any) -> Any:
        """Return an element of a set or a key, never a proxy; hashing and comparing it may run user code."""
        return self.flush_unless_safe(self.element(value))

    def is_same(self, a: Any, b: Any) -> bool:
        """Evaluate ``a is b``; a proxy of an array in memory is identical to that array."""
        if a is b:
            return True
        kinds = type(a), type(b)
        if _REPRESENTING.isdisjoint(kinds):
            return False
        return _existing_object(a, kinds[0]) is _existing_object(b, kinds[1])

    def iterate(self, iterable: Any) -> Any:
        """Return the iterable of a loop, wrapped if its steps may run user code."""
        return self._safe_iterable(iterable, _iterate_foreign)

    def unpacked_elements(self, iterable: Any) -> Any:
        """Return the iterable of a loop that unpacks its elements, which may run user code."""
        session = LOCAL.session
        if session is None or type(iterable) not in (list, tuple) or _SEQUENCES.issuperset(
            map(type, iterable)
        ):
            return iterable
        return map(self.flush_unless_safe, iterable)

    def foreign(self, function: Any) -> Any:
        """Return the replacement of `function`, which runs code that is not traced."""
        session = LOCAL.session
        return function if session is None else ForeignCall(function, session)

    def are_safe(self, *values: Any) -> bool:
        """Return whether operators of these parameters run no user code."""
        return SAFE_TYPES.issuperset(map(type, values)) or all(
            type(v) in SAFE_TYPES or type(v) is np.ndarray and not v.dtype.hasobject for v in values)

    def has_safe_uses(self, value: Any, uses: tuple[str, ...]) -> bool:
        """Return whether these attributes of a parameter, or its subscripts (``[``), run no user code."""
        kind = type(value)
        if kind in CONTAINER_TYPES:
            return uses == ("[",)
        return kind in SAFE_TYPES or kind is np.ndarray or "[" not in uses and are_loads_plain(kind, uses)

    def lift(self, value: Any, usage: str) -> Any:
        """Return an operand: as a proxy if it is an array, as `UserOperand` if it may run user code.

        `usage` is its usage: see `jitla.instrument.expressions`.
        """
        kind = type(value)
        if kind in SAFE_TYPES:
            return value
        session = LOCAL.session
        if session is None:
            return value
        if kind is np.ndarray:
            if value.dtype.hasobject:
                return wrap_operand(value, usage, self)
            return value if usage[0] == "e" else session.boundary.argument(value)
        if kind in CONTAINER_TYPES:
            use = usage[0]
            if usage == "[" or use in "aen." or (
                use == "k" and (kind not in (list, tuple) or not may_run_user_code(value))
            ):
                return value
            if use not in "[c" and not may_run_user_code(value):
                return value
            return wrap_operand(value, usage, self)
        if kind in LAZY_ITERATORS and usage[0] in "ae":
            session.boundary.materialise_escapes()
            return value  # NumPy tests whether it is a sequence
        return wrap_operand(value, usage, self) if may_run_user_code(value) else value

    @bridge
    def attribute(self, obj: Any, name: str, usage: str = "") -> Any:
        """Return ``obj.name``, lifted for the usage `usage`."""
        if type(obj) is LazyArray:
            return getattr(obj, name)
        session = LOCAL.session
        if session is None:
            return getattr(obj, name)
        kind = type(obj)
        if kind is np.ndarray:
            value = getattr(session.boundary.argument(obj), name)
        elif name == "T" and (
                transposed := record_sparse_call(session, "transpose", (obj,), {})) is not NotImplemented:
            value = transposed
        elif kind is LazySparse or kind is Sparsified or not load_runs_user_code(obj, kind, name):
            value = getattr(obj, name)
        else:
            getter = getter_of(kind, name)
            if type(getter) is FunctionType:
                value = self.call(getter)(obj)
            else:
                value = ForeignCall(getattr, session)(obj, name)
        return self.lift(value, usage) if usage else value

    @bridge
    def _getattr(self, obj: Any, name: str, *default: Any) -> Any:
        try:
            session = LOCAL.session
            if session is not None and type(obj) in _ARRAYS and str(name).startswith("__"):
                return getattr(session.boundary.plain(obj), name)  # not the special methods of proxies
            return self.attribute(obj, name)
        except AttributeError:
            if not default:
                raise
            return default[0]

    @bridge
    def _hasattr(self, obj: Any, name: str) -> bool:
        return self._getattr(obj, name, LOCAL) is not LOCAL

    def flush_unless_safe(self, value: Any) -> Any:
        """Return `value`, which Python tests, hashes or compares; end the block if that may run user code."""
        if type(value) not in SAFE_TYPES:
            session = LOCAL.session
            if session is not None and type(value) not in CONTAINER_TYPES and may_run_user_code(value):
                session.boundary.materialise_escapes()
        return value

    def class_argument(self, value: Any) -> Any:
        """Return the second argument of `isinstance`; end the block if metaclasses of users may run code."""
        if type(value) is not type and may_run_user_code(value):
            session = LOCAL.session
            if session is not None:
                session.boundary.materialise_escapes()
        return value

    def star_elements(self, value: Any) -> Any:
        """Return the iterable that ``*`` unpacks beside other arguments or elements."""
        return self._safe_iterable(value, lambda iterable, session: ForeignCall(list, session)(iterable))

    def star_arguments(self, value: Any) -> Any:
        """Return the iterable that ``*`` unpacks as the only argument: CPython makes a tuple of it.

        Since Python 3.14 that requests no length, other than the list that several arguments need.
        """
        return self._safe_iterable(value, lambda iterable, session: ForeignCall(tuple, session)(iterable))

    def _safe_iterable(self, value: Any, foreign: Callable[[Any, Session], Any]) -> Any:
        """Return the iterable `value`; if its steps may run user code, the result of `foreign` for it."""
        session = LOCAL.session
        if session is None or type(value) in SAFE_ITERABLES:
            return value
        if is_safe_iterable(value):
            return value if type(value) is not LazyScalar else session.boundary.plain(value)
        if not hasattr(type(value), "__iter__") and not hasattr(type(value), "__getitem__"):
            return value
        return foreign(value, session)

    def star_mapping(self, value: Any) -> Any:
        """Return the mapping that ``**`` unpacks."""
        session = LOCAL.session
        if session is None or type(value) is dict or not hasattr(type(value), "keys"):
            return value
        return ForeignCall(dict, session)(value)


def _iterate_foreign(iterable: Iterable[Any], session: Session) -> Iterator[Any]:
    # The iterator is created now, as by a loop, so that an error has the line of the loop.
    return _advance_foreign(ForeignCall(iter, session)(iterable), session)


def _advance_foreign(steps: Iterator[Any], session: Session) -> Iterator[Any]:
    while True:
        session.boundary.materialise_escapes()
        LOCAL.session = None
        try:
            value = next(steps)
        except StopIteration:
            return
        finally:
            LOCAL.session = session
            session.closer.update_error_state()
        yield value


def settle_value(value: Any) -> Any:
    """Return the value of a proxy outside of sessions: suspended frames may hold proxies."""
    return value._s.closer.value(value) if type(value) in LAZY else value


def _existing_object(value: Any, kind: type) -> Any:
    """Return the object that the proxy `value` represents if it exists already, else `value`."""
    if kind is LazySparse:
        return value if value._matrix is None else value._matrix
    if kind in LAZY:
        if value._v is not None:
            return value._v
        if kind is LazyScalar and value.dtype == bool:  # NumPy has only two objects of this type
            return value._s.closer.value(value)
    return value


_ArrayFunction = type(np.sum)
# References to a pending temporary in a hook: the parameter and the tape, and where the interpreter counts
# those of arguments, which COMPREHENSION_REFS includes, one for each of two calls.
_OWN_REFERENCES = 2 + 2 * (COMPREHENSION_REFS - 2)
_CREATORS: frozenset[Any] = frozenset({
    np.zeros, np.empty, np.ones, np.full, np.eye, np.identity, np.arange, np.linspace, np.array,
    np.copy, np.diag, np.tri, np.logspace, np.geomspace, np.meshgrid, np.asarray, np.asanyarray,
    np.ascontiguousarray, np.atleast_1d, np.atleast_2d,
})
# Builtins that neither write arrays nor retain their arguments.
SAFE_BUILTINS = frozenset({
    len, range, isinstance, issubclass, enumerate, zip, float, int, bool, str, repr, type, id, abs,
    min, max, sum, any, all, tuple, reversed, divmod, round, format, iter, next, slice, hasattr,
    callable, complex, super, object, property, vars, ord, chr, pow, hash, globals,
    *(getattr(math, n) for n in dir(math) if callable(getattr(math, n)) and not n.startswith("_")),
})
_EXCEPTIONS = BaseException
_PURE_CONTAINERS = (list, dict, set, str, tuple, bytes, frozenset)
PROXY_TYPES = LAZY | {LazySparse, Sparsified}
_COMPARING_METHODS = frozenset({"index", "count", "remove"})
_INPLACE_UFUNC = {
    operator.iadd: np.add, operator.isub: np.subtract, operator.imul: np.multiply,
    operator.itruediv: np.divide, operator.ifloordiv: np.floor_divide, operator.imod: np.remainder,
    operator.iand: np.bitwise_and, operator.ior: np.bitwise_or, operator.ixor: np.bitwise_xor,
    operator.ilshift: np.left_shift, operator.irshift: np.right_shift, operator.ipow: np.power,
    operator.imatmul: np.matmul,
}
_BUILTINS_WITHOUT_PROTOCOL = frozenset({isinstance, issubclass, callable, globals, ord, chr})
# Operands whose arithmetic does not warn: proxies and Python's numbers, but not NumPy's scalars.
_SILENT_OPERANDS = LAZY | {int, float, bool, complex, str}


class Hooks(OperandHooks):
    """The hooks of instrumented functions; without a session in the thread they change nothing."""

    def call(self, f: Any) -> Any:
        """Return the replacement of the callee `f`."""
        session = LOCAL.session
        if session is None:
            return f
        if len(session.tape.ops) > session.site.thresholds.max_pending_operations:
            session.closer.close_long_block()
        kind = type(f)
        if kind is MethodType:
            if type(f.__self__) in PROXY_TYPES:
                return f
            instrumented = INSTRUMENTED.get(f.__func__) if type(f.__func__) is FunctionType else None
            return ForeignCall(f, session) if instrumented is None else MethodType(instrumented, f.__self__)
        if kind is ProxyMethod:
            return f
        if kind is FunctionType:
            instrumented = INSTRUMENTED.get(f)
            if instrumented is not None:
                return instrumented
            return CreationCall(f, session) if f in _CREATORS else ForeignCall(f, session)
        if kind is np.ufunc or kind is _ArrayFunction:
            if kind is np.ufunc and loops_in_python(f):
                return ForeignCall(f, session)
            if f in _CREATORS:
                return CreationCall(f, session)
            return ForeignCall(f, session) if f in MUTATING else NumpyCall(f, session)
        return self._other_callee(f, kind, session)

    def _other_callee(self, f: Any, kind: type, session: Session) -> Any:
        if kind is BuiltinFunctionType:
            owner = f.__self__
            if owner is np.add and f.__name__ == "at":
                return AddAtCall(f, session)
            if type(owner) is np.ndarray and f.__name__ in METHODS and owner.dtype in TRACED:
                proxy = session.boundary.argument(owner)
                if type(proxy) is LazyArray:
                    return getattr(proxy, f.__name__)
            if isinstance(owner, _PURE_CONTAINERS):
                if f.__name__ in _COMPARING_METHODS:
                    session.boundary.plain(owner)  # elements are compared by identity first
                return ContainerCall(f, session)
            if f in _CREATORS:
                return CreationCall(f, session)
            if f is getattr or f is hasattr:
                return self._getattr if f is getattr else self._hasattr
            if f is id:
                return _identity
            if f in SAFE_BUILTINS:
                return f if f in _BUILTINS_WITHOUT_PROTOCOL else BuiltinCall(f, session)
        elif kind is type and (f in SAFE_BUILTINS or issubclass(f, (_EXCEPTIONS, np.generic, np.dtype))):
            if issubclass(f, _EXCEPTIONS):
                return ContainerCall(f, session)
            if f is type:
                return _class_of
            return BuiltinCall(f, session) if f in SAFE_BUILTINS and f is not object else f
        elif kind in LAZY:
            return session.boundary.plain(f)  # an error, with NumPy's message
        return (NumbaCall if is_numba(f) else ForeignCall)(f, session)

    def inplace(self, op: Any, target: Any, value: Any) -> Any:
        """Perform the in-place operation `op`, such as `operator.iadd`."""
        session = LOCAL.session
        if session is None:
            if not isinstance(target, (np.ndarray, np.generic)):
                return op(target, value)
            return call_at(place_of(_getframe(1)), op, (target, value), {})
        kind = type(target)
        if kind is LazyArray:
            ufunc = _INPLACE_UFUNC.get(op)
            if target._s is session and ufunc is not None:
                return session.writer.inplace(target, ufunc, value, getrefcount(value) - _OWN_REFERENCES)
            return op(target, value)
        if kind is np.ndarray:
            if session.ended and (type(value) is np.ndarray or type(value) in SCALAR_TYPES) \
                    and session.memory.has_no_dependents():
                return call_at(place_of(_getframe(1)), op, (target, value), {})
            proxy = session.boundary.argument(target)
            if type(proxy) is LazyArray and op in _INPLACE_UFUNC:
                result = session.writer.inplace(
                    proxy, _INPLACE_UFUNC[op], value, getrefcount(value) - _OWN_REFERENCES)
                return target if result is proxy else result
            value = session.boundary.plain(value)
            if may_run_user_code(value):
                return ForeignCall(op, session)(target, value)
            session.memory.before_write(target)
            return call_at(place_of(_getframe(1)), op, (target, value), {})
        if kind in LAZY or kind in SCALAR_TYPES:
            value = self.lift(value, "r")
            if type(value) in LAZY or kind in _SILENT_OPERANDS:
                return op(target, value)
            if type(value) in SCALAR_TYPES and can_defer_warnings():  # then it can be repeated
                token = start_recording()
                try:
                    result = op(target, value)
                finally:
                    stop_recording(token)
                if not FLAGS_BY_THREAD or not take_flags():
                    return result
            return call_at(place_of(_getframe(1)), op, (target, value), {})
        value = session.boundary.plain(value)
        if kind in CONTAINER_TYPES and not may_run_user_code(value):
            if kind is list and op is operator.imul:  # it repeats what the list holds
                session.boundary.plain(target)
            return op(target, value)
        return ForeignCall(op, session)(target, value)

    @bridge
    def setitem(self, value: Any, obj: Any, key: Any) -> None:
        """Perform ``obj[key] = value``."""
        session = LOCAL.session
        if session is None:
            if isinstance(obj, np.ndarray):
                call_at(place_of(_getframe(1)), operator.setitem, (obj, key, value), {})
            else:
                obj[key] = settle_value(value)
            return
        kind = type(obj)
        if kind is LazyArray:
            obj._s.writer.setitem(obj, key, value, getrefcount(value) - _OWN_REFERENCES)
        elif kind is np.ndarray:
            if session.ended and session.writer.try_plain_store(obj, key, value):
                return
            proxy = session.boundary.argument(obj)
            if type(proxy) is LazyArray:
                session.writer.setitem(proxy, key, value, getrefcount(value) - _OWN_REFERENCES)
            else:
                operands = obj, session.boundary.plain(key), session.boundary.plain(value)
                if may_run_user_code(operands[2]):
                    ForeignCall(operator.setitem, session)(*operands)
                    return
                session.memory.before_write(obj)
                call_at(place_of(_getframe(1)), operator.setitem, operands, {})
        elif kind is dict or kind is list:
            key = session.boundary.plain(key)
            if type(value) in PROXY_CARRIERS or may_run_user_code(key):
                value = session.boundary.plain(value)
            if type(value) in LAZY and type(key) is not slice:
                _record_item(session, obj, key)
            obj[key] = value
        else:
            method = getattr(kind, "__setitem__", None)
            if type(method) is FunctionType and kind not in PROXY_TYPES:
                self.call(method)(obj, key, value)
            else:
                key, value = session.boundary.plain(key), session.boundary.plain(value)
                ForeignCall(operator.setitem, session)(obj, key, value)

    def delitem(self, obj: Any, key: Any) -> None:
        """Perform ``del obj[key]``."""
        session = LOCAL.session
        if session is None:
            del obj[key]
        elif type(obj) in CONTAINER_TYPES or type(obj) in LAZY:
            del obj[session.boundary.plain(key)]
        else:
            ForeignCall(operator.delitem, session)(obj, key)

    @bridge
    def setattr(self, value: Any, obj: Any, name: str) -> None:
        """Perform ``obj.name = value``."""
        session = LOCAL.session
        if session is None:
            setattr(obj, name, settle_value(value))
            return
        if type(obj) is np.ndarray or type(obj) is LazyArray:
            array = session.closer.settle(obj) if type(obj) is LazyArray else obj
            session.boundary.materialise_escapes()
            session.boundary.foreigners.pop(id(array), None)
            call_here(setattr, array, name, session.boundary.plain(value))
            if type(obj) is LazyArray:
                session.boundary.refresh_layout(obj)
            return
        if type(obj) in LAZY:
            plain = session.boundary.plain
            setattr(plain(obj), name, plain(value))  # an error, with NumPy's message
            return
        if not is_store_plain(type(obj), name):
            setter = setter_of(type(obj), name)
            if type(setter) is FunctionType:
                self.call(setter)(obj, value)
            else:
                value = session.boundary.plain(value)  # the frame of a failed call must not hold a proxy
                ForeignCall(setattr, session)(obj, name, value)
            return
        if type(value) in PROXY_CARRIERS:
            value = session.boundary.plain(value)
        if type(value) in LAZY:
            session.boundary.slots[id(obj), ".", name] = (
                None, lambda: _read_attribute(obj, name), lambda v: setattr(obj, name, v))
        setattr(obj, name, value)

    def delattr(self, obj: Any, name: str) -> None:
        """Perform ``del obj.name``."""
        session = LOCAL.session
        if session is not None and type(obj) in LAZY:
            obj = session.boundary.plain(obj)
        plain = session is None or is_delete_plain(type(obj), name)
        (delattr if plain else self.foreign(delattr))(obj, name)

    def end_iteration(self) -> None:
        """End a loop iteration and the block, so that iterations share a plan; batched iterations go on."""
        session = LOCAL.session
        if session is None:
            return
        updates, tape = session.writer.updates, session.tape
        if updates:
            updates.clear()
        if len(tape.nodes) <= len(tape.entered):
            return
        if len(tape.ops) >= session.site.unroll_limit and not session.iterations.continues_block():
            session.closer.close()

    def split_point(self) -> None:
        """Pass a split point of straight-line code: the block ends here if it has become long."""
        session = LOCAL.session
        if session is not None and len(session.tape.ops) > session.site.thresholds.max_pending_operations:
            session.closer.close_long_block()

    def yield_value(self, value: Any) -> Any:
        """Return a value that leaves a suspendable frame: never a proxy; nothing stays pending."""
        session = LOCAL.session
        if session is None:
            return settle_value(value)
        value = session.boundary.plain(value)
        session.boundary.materialise_escapes()
        return value

    await_value = yield_value

    def enter_context(self, manager: Any) -> Any:
        """Return the context manager of a with statement, wrapped because it may run user code."""
        session = LOCAL.session
        if session is None:
            return manager
        kind = type(manager)
        if kind in LAZY:
            return session.boundary.plain(manager)  # an error, with NumPy's message
        if not hasattr(kind, "__enter__") or not hasattr(kind, "__exit__"):
            return manager
        return ManagedContext(manager, session)

    def uninstrumented(self, part: Any) -> Any:
        """Return the original of `part`, the ``__code__`` or ``__closure__`` of a function."""
        return INSTRUMENTED.uninstrumented(part)


def _class_of(*args: Any, **kwargs: Any) -> Any:
    """Replace the builtin ``type``: the class of a proxy is that of the object it represents."""
    if len(args) == 1 and not kwargs and type(args[0]) in PROXY_TYPES:
        return args[0].__class__
    return type(*args, **kwargs)


def _identity(*args: Any, **kwargs: Any) -> int:
    """Replace the builtin ``id``: materialises a proxy, whose object is never replaced from then on."""
    if len(args) == 1 and not kwargs:
        proxy = args[0]
        kind = type(proxy)
        if kind is LazyArray:
            memory = proxy._s.closer.settle(proxy)
            proxy._s.boundary.foreigners.setdefault(id(memory), proxy)  # like an array from outside
            return id(memory)
        if kind in LAZY:
            return id(proxy._s.closer.value(proxy))
        if kind is LazySparse:
            return id(scipy_matrix(proxy))
    return id(*args, **kwargs)


def _read_attribute(obj: Any, name: str) -> Any:
    """Return an attribute of an object, None if it is missing, without running code of its class."""
    try:
        return object.__getattribute__(obj, name)
    except AttributeError:
        return None


def _record_item(session: Session, obj: Any, key: Any) -> None:
    """Record that an item of a list or dictionary is about to hold a proxy.

    It is recorded before the store, so that an interrupt between the two loses no proxy.
    """
    if type(obj) is list and isinstance(key, (int, np.integer)) and key < 0:
        key += len(obj)
    slot = id(obj), "[]", key
    if slot in session.boundary.slots and type(_read_item(obj, key)) not in LAZY:
        session.boundary.plain(obj)  # the proxy that was stored there has moved inside the list
    session.boundary.slots[slot] = obj, lambda: _read_item(obj, key), lambda v: obj.__setitem__(key, v)


def _read_item(obj: Any, key: Any) -> Any:
    try:
        return obj[key]
    except (KeyError, IndexError):
        return None


HOOKS = Hooks()
INSTRUMENTED = InstrumentedTable(HOOKS, LazyArray)


hide_module(__name__, hide_function)
