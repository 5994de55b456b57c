"""What instrumented code calls at run time, and the batching of loop iterations into one block."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from sys import _getframe, getrefcount
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from jitla.hops import FLAGS_BY_THREAD, start_recording, stop_recording, take_flags
from jitla.instrument import NUMBERS, loops_in_python
from jitla.tracing import frames
from jitla.tracing.callees import (
    SAFE_ITERABLES,
    Adder,
    Consumer,
    Contained,
    Creator,
    Foreign,
    Guarded,
    Managed,
    Numba,
    TwinTable,
    is_tame,
)
from jitla.tracing.force import COMPREHENSION_REFS, BlockCloser
from jitla.tracing.fp_warnings import calm
from jitla.tracing.frames import bridge, call_at, call_here, place_of
from jitla.tracing.indexing import CARRIERS, Bound
from jitla.tracing.lazy import LAZY, LazyArray, LazyScalar
from jitla.tracing.numba_ufuncs import is_numba
from jitla.tracing.numpy_api.functions import MUTATING
from jitla.tracing.recorder import METHODS
from jitla.tracing.session import MAX_PENDING_OPERATIONS
from jitla.tracing.session import Session as HooksSession
from jitla.tracing.session import Session as LiftingSession
from jitla.tracing.sparse.lazy_sparse import LazySparse, scipy_matrix
from jitla.tracing.sparse.products import record_sparse_call
from jitla.tracing.sparse.sparsify import Sparsified
from jitla.tracing.tape import CELLS, LEAF, NBYTES, OP_ID, SCALAR, TRACED, Entry, split_entry
from jitla.tracing.thread_state import LOCAL
from jitla.tracing.user_types import (
    CONTAINERS,
    STEPPING,
    TAME,
    deletes_plainly,
    getter_of,
    is_wild,
    runs_code,
    setter_of,
    still,
    stores_plainly,
    wild,
)

Session = Any  # the session whose block it is

MOST_TURNS = 4  # that are one block: with more, what is computed anew at the edges grows
LEAST_BYTES = 8 << 20  # of an array: smaller ones stay in a cache from turn to turn
LEAST_SLICES = 2
# The same of cells; entries that a block of such turns has at most: what is longer compiles longer, and is
# bound by arithmetic rather than by memory.
LEAST_OF_CELLS, MOST_OF_CELLS = 1 << 20, 48
PATIENCE = 2  # first turns in a row that nothing went on from; the last turn of a loop is one now and then
_GETITEM = OP_ID["getitem"]


def goes_on(session: Session) -> bool:
    """Tell whether the next turn of a loop belongs to the open block, too."""
    node = session.nodes[-1]
    if type(node) is not LazyArray or NBYTES[node._m] < LEAST_OF_CELLS:
        return False
    ops = session.ops
    known, turns, begin = session.last_iteration
    if known is not ops:
        turns = begin = 0
    if turns + 1 >= MOST_TURNS or len(ops) == begin or node._v is not None or \
            not _pays(session, begin, turns > 0, NBYTES[node._m]):
        return False
    place, apart = frames.path(), session.site.failed_unrolls
    if place is None:
        return False
    if turns:
        apart.pop(place, None)
    elif apart.get(place, 0) >= PATIENCE:
        return False
    else:
        apart[place] = apart.get(place, 0) + 1  # until a second turn reads what the first has made
    session.last_iteration = ops, turns + 1, len(ops)
    return True


def _pays(session: Session, begin: int, again: bool, size: int) -> bool:
    """Tell whether a turn that makes `size` bytes had better not be a block of its own."""
    return size >= LEAST_BYTES and _is_stencil(session, begin, again) or _is_chain(session.ops, begin, again)


def _is_chain(ops: list[Entry], begin: int, again: bool) -> bool:
    """Tell whether a turn is a few cells; `again`: of what is pending."""
    cells = [entry for entry in ops[begin:] if entry[0] not in (LEAF, SCALAR)]
    made = {at for at, entry in enumerate(ops[:begin]) if entry[0] not in (LEAF, SCALAR)}
    return (2 * len(ops) - begin <= MOST_OF_CELLS and all(CELLS[entry[0]] for entry in cells)
            and (not again or any(not made.isdisjoint(split_entry(entry)[0]) for entry in cells)))


def _is_stencil(session: Session, begin: int, again: bool) -> bool:
    """Tell whether all that a turn recorded is cells over slices; `again`: of what is pending."""
    slices, leaf = 0, 0
    for at, entry in enumerate(session.ops):
        op = entry[0]
        if op == LEAF:
            slices += at >= begin and not again and session.leaves[leaf].base is not None
            leaf += 1
        elif at >= begin and op == _GETITEM:
            slices += 1
        elif at >= begin and op != SCALAR and not CELLS[op]:
            return False
    return slices >= LEAST_SLICES


_ARRAYS = LAZY | {np.ndarray}
_STANDING = LAZY | {LazySparse}  # these may stand for objects that are somewhere
_SEQUENCES = frozenset({tuple, list, LazyArray, np.ndarray, str})


class Lifting:
    """The part of the hooks that makes values ready for their uses."""

    def call(self, f: Any) -> Any:
        """Return what is called instead of `f`."""
        raise NotImplementedError

    def keep(self, value: Any) -> Any:
        """Return what is stored in a global or closure variable: never a proxy."""
        session = LOCAL.session
        return settle_value(value) if session is None else session.plain(value)

    def item(self, value: Any) -> Any:
        """Return an element of a comprehension: never a proxy."""
        session = LOCAL.session
        return settle_value(value) if session is None else session.plain(value)

    def term(self, value: Any) -> Any:
        """Return an element of a comprehension that is added to others at once: arrays may be proxies."""
        return value if type(value) is LazyArray else self.item(value)

    def hashed(self, value: Any) -> Any:
        """Return an element of a set or a key, which is hashed and compared: that may run code."""
        return self.calm(self.item(value))

    def same(self, a: Any, b: Any) -> bool:
        """Do ``a is b``: a proxy of an array in memory is that array."""
        if a is b:
            return True
        kinds = type(a), type(b)
        if _STANDING.isdisjoint(kinds):
            return False
        return _object(a, kinds[0]) is _object(b, kinds[1])

    def iterate(self, iterable: Any) -> Any:
        """Return the iterable of a loop; unknown ones may run any code at each step."""
        return self._steps(iterable, _stepped)

    def opened(self, iterable: Any) -> Any:
        """Return the iterable of a loop that unpacks its elements: those of users run code then."""
        session = LOCAL.session
        if session is None or type(iterable) not in (list, tuple) or _SEQUENCES.issuperset(
            map(type, iterable)
        ):
            return iterable
        return map(self.calm, iterable)

    def foreign(self, function: Any) -> Any:
        """Return what is called instead of `function`, which runs code jitla does not see."""
        session = LOCAL.session
        return function if session is None else Foreign(function, session)

    def tame(self, *values: Any) -> bool:
        """Say whether operators of these parameters run no code of users."""
        return TAME.issuperset(map(type, values)) or all(
            type(v) in TAME or type(v) is np.ndarray and not v.dtype.hasobject for v in values)

    def still(self, value: Any, uses: tuple[str, ...]) -> bool:
        """Say whether a parameter runs no code when it is asked for attributes, or subscripted (``[``)."""
        kind = type(value)
        if kind in CONTAINERS:
            return uses == ("[",)
        return kind in TAME or kind is np.ndarray or "[" not in uses and still(kind, uses)

    def lift(self, value: Any, ways: str) -> Any:
        """Return an operand: as a proxy if it is an array, as `Wild` if it may run code of users.

        `ways` says how it is used: see where the twins are made.
        """
        kind = type(value)
        if kind in TAME:
            return value
        session = LOCAL.session
        if session is None:
            return value
        if kind is np.ndarray:
            if value.dtype.hasobject:
                return wild(value, ways, self)
            return value if ways[0] == "e" else session.argument(value)
        if kind in CONTAINERS:
            way = ways[0]
            if ways == "[" or way in "aen." or (
                way == "k" and (kind not in (list, tuple) or not is_wild(value))
            ):
                return value
            return value if way not in "[c" and not is_wild(value) else wild(value, ways, self)
        if kind in STEPPING and ways[0] in "ae":
            session.materialise_escapes()
            return value  # NumPy asks whether it is a sequence
        return wild(value, ways, self) if is_wild(value) else value

    @bridge
    def attribute(self, obj: Any, name: str, ways: str = "") -> Any:
        """Return ``obj.name``, ready for its uses."""
        if type(obj) is LazyArray:
            return getattr(obj, name)
        session = LOCAL.session
        if session is None:
            return getattr(obj, name)
        kind = type(obj)
        if kind is np.ndarray:
            value = getattr(session.argument(obj), name)
        elif name == "T" and (
                turned := record_sparse_call(session, "transpose", (obj,), {})) is not NotImplemented:
            value = turned
        elif kind is LazySparse or kind is Sparsified or not runs_code(obj, kind, name):
            value = getattr(obj, name)
        else:
            getter = getter_of(kind, name)
            if type(getter) is FunctionType:
                value = self.call(getter)(obj)
            else:
                value = Foreign(getattr, session)(obj, name)
        return self.lift(value, ways) if ways else value

    @bridge
    def _get(self, obj: Any, name: str, *default: Any) -> Any:
        try:
            session = LOCAL.session
            if session is not None and type(obj) in _ARRAYS and str(name).startswith("__"):
                return getattr(session.plain(obj), name)  # not what proxies have for Python
            return self.attribute(obj, name)
        except AttributeError:
            if not default:
                raise
            return default[0]

    @bridge
    def _has(self, obj: Any, name: str) -> bool:
        return self._get(obj, name, LOCAL) is not LOCAL

    def calm(self, value: Any) -> Any:
        """Return what Python asks for its truth, or to be compared: nothing is pending if that runs code."""
        if type(value) not in TAME:
            session = LOCAL.session
            if session is not None and type(value) not in CONTAINERS and is_wild(value):
                session.materialise_escapes()
        return value

    def asked(self, value: Any) -> Any:
        """Return the class, or classes, that Python asks about an object: metaclasses may answer."""
        if type(value) is not type and is_wild(value):
            session = LOCAL.session
            if session is not None:
                session.materialise_escapes()
        return value

    def spread(self, value: Any) -> Any:
        """Return what is unpacked as arguments or elements beside others."""
        return self._steps(value, lambda given, session: Foreign(list, session)(given))

    def alone(self, value: Any) -> Any:
        """Return what is unpacked as all arguments: since Python 3.14 no length is asked for then."""
        return self._steps(value, lambda given, session: Foreign(tuple, session)(given))

    def _steps(self, value: Any, foreign: Callable[[Any, LiftingSession], Any]) -> Any:
        """Return what is iterated over: what `foreign` makes of `value` if its steps may run any code."""
        session = LOCAL.session
        if session is None or type(value) in SAFE_ITERABLES:
            return value
        if is_tame(value):
            return value if type(value) is not LazyScalar else session.plain(value)
        if not hasattr(type(value), "__iter__") and not hasattr(type(value), "__getitem__"):
            return value
        return foreign(value, session)

    def mapping(self, value: Any) -> Any:
        """Return what is unpacked as keywords or items."""
        session = LOCAL.session
        if session is None or type(value) is dict or not hasattr(type(value), "keys"):
            return value
        return Foreign(dict, session)(value)


def _stepped(iterable: Iterable[Any], session: LiftingSession) -> Iterator[Any]:
    # Asked for its iterator now, as a loop does: an error is one of the line that the loop is at.
    return _steps_of(Foreign(iter, session)(iterable), session)


def _steps_of(steps: Iterator[Any], session: LiftingSession) -> Iterator[Any]:
    while True:
        session.materialise_escapes()
        LOCAL.session = None
        try:
            value = next(steps)
        except StopIteration:
            return
        finally:
            LOCAL.session = session
            session.update_error_state()
        yield value


def settle_value(value: Any) -> Any:
    """Return what a value stands for where no session is under way: suspended frames may hold proxies."""
    return value._s.value(value) if type(value) in LAZY else value


def _object(value: Any, kind: type) -> Any:
    """Return the object that `value` stands for, if it stands for one that is somewhere."""
    if kind is LazySparse:
        return value if value._matrix is None else value._matrix
    if kind in LAZY:
        if value._v is not None:
            return value._v
        if kind is LazyScalar and value.dtype == bool:  # there are only two of them
            return value._s.value(value)
    return value


_ArrayFunction = type(np.sum)
# References to a pending temporary at a hook's call: its parameter, the tape, and where arguments are counted
# (as one is among those that LISTED counts) those of two calls.
_OWN = 2 + 2 * (COMPREHENSION_REFS - 2)
_CREATORS: frozenset[Any] = frozenset({
    np.zeros, np.empty, np.ones, np.full, np.eye, np.identity, np.arange, np.linspace, np.array,
    np.copy, np.diag, np.tri, np.logspace, np.geomspace, np.meshgrid, np.asarray, np.asanyarray,
    np.ascontiguousarray, np.atleast_1d, np.atleast_2d,
})
# They neither write arrays nor keep what they are given.
SAFE = frozenset({
    len, range, isinstance, issubclass, enumerate, zip, float, int, bool, str, repr, type, id, abs,
    min, max, sum, any, all, tuple, reversed, divmod, round, format, iter, next, slice, hasattr,
    callable, complex, super, object, property, vars, ord, chr, pow, hash, globals,
    *(getattr(math, n) for n in dir(math) if callable(getattr(math, n)) and not n.startswith("_")),
})
_EXCEPTIONS = BaseException
_PURE_CONTAINERS = (list, dict, set, str, tuple, bytes, frozenset)
PROXIES = LAZY | {LazySparse, Sparsified}
_COMPARING = frozenset({"index", "count", "remove"})
_INPLACE_UFUNC = {
    operator.iadd: np.add, operator.isub: np.subtract, operator.imul: np.multiply,
    operator.itruediv: np.divide, operator.ifloordiv: np.floor_divide, operator.imod: np.remainder,
    operator.iand: np.bitwise_and, operator.ior: np.bitwise_or, operator.ixor: np.bitwise_xor,
    operator.ilshift: np.left_shift, operator.irshift: np.right_shift, operator.ipow: np.power,
    operator.imatmul: np.matmul,
}
_ASKING_NOTHING = frozenset({isinstance, issubclass, callable, globals, ord, chr})
# Python's numbers, and NumPy's but those that warn in arithmetic.
_SAYING_NOTHING = LAZY | {int, float, bool, complex, str}


class Hooks(Lifting):
    """The object whose methods are called by twins; without a session it changes nothing."""

    def call(self, f: Any) -> Any:
        """Return what is called instead of `f`."""
        session = LOCAL.session
        if session is None:
            return f
        if len(session.ops) > MAX_PENDING_OPERATIONS:
            session.close_long_block()
        kind = type(f)
        if kind is MethodType:
            if type(f.__self__) in PROXIES:
                return f
            twin = TWINS.of(f.__func__) if type(f.__func__) is FunctionType else None
            return Foreign(f, session) if twin is None else MethodType(twin, f.__self__)
        if kind is Bound:
            return f
        if kind is FunctionType:
            twin = TWINS.of(f)
            if twin is not None:
                return twin
            return Creator(f, session) if f in _CREATORS else Foreign(f, session)
        if kind is np.ufunc or kind is _ArrayFunction:
            if kind is np.ufunc and loops_in_python(f):
                return Foreign(f, session)
            if f in _CREATORS:
                return Creator(f, session)
            return Foreign(f, session) if f in MUTATING else Guarded(f, session)
        return self._other(f, kind, session)

    def _other(self, f: Any, kind: type, session: HooksSession) -> Any:
        if kind is BuiltinFunctionType:
            owner = f.__self__
            if owner is np.add and f.__name__ == "at":
                return Adder(f, session)
            if type(owner) is np.ndarray and f.__name__ in METHODS and owner.dtype in TRACED:
                proxy = session.argument(owner)
                if type(proxy) is LazyArray:
                    return getattr(proxy, f.__name__)
            if isinstance(owner, _PURE_CONTAINERS):
                if f.__name__ in _COMPARING:
                    session.plain(owner)  # what is the same object is equal
                return Contained(f, session)
            if f in _CREATORS:
                return Creator(f, session)
            if f is getattr or f is hasattr:
                return self._get if f is getattr else self._has
            if f is id:
                return _identity
            if f in SAFE:
                return f if f in _ASKING_NOTHING else Consumer(f, session)
        elif kind is type and (f in SAFE or issubclass(f, (_EXCEPTIONS, np.generic, np.dtype))):
            if issubclass(f, _EXCEPTIONS):
                return Contained(f, session)
            if f is type:
                return _class_of
            return Consumer(f, session) if f in SAFE and f is not object else f
        elif kind in LAZY:
            return session.plain(f)  # an error, in the right words
        return (Numba if is_numba(f) else Foreign)(f, session)

    def inplace(self, op: Any, target: Any, value: Any) -> Any:
        """Do an in-place operation."""
        session = LOCAL.session
        if session is None:
            if not isinstance(target, (np.ndarray, np.generic)):
                return op(target, value)
            return call_at(place_of(_getframe(1)), op, (target, value), {})
        kind = type(target)
        if kind is LazyArray:
            ufunc = _INPLACE_UFUNC.get(op)
            if target._s is session and ufunc is not None:
                return session.inplace(target, ufunc, value, getrefcount(value) - _OWN)
            return op(target, value)
        if kind is np.ndarray:
            if session.ended and (type(value) is np.ndarray or type(value) in NUMBERS) and session.is_quiet():
                return call_at(place_of(_getframe(1)), op, (target, value), {})
            proxy = session.argument(target)
            if type(proxy) is LazyArray and op in _INPLACE_UFUNC:
                made = session.inplace(proxy, _INPLACE_UFUNC[op], value, getrefcount(value) - _OWN)
                return target if made is proxy else made
            value = session.plain(value)
            if is_wild(value):
                return Foreign(op, session)(target, value)
            session.before_write(target)
            return call_at(place_of(_getframe(1)), op, (target, value), {})
        if kind in LAZY or kind in NUMBERS:
            value = self.lift(value, "r")
            if type(value) in LAZY or kind in _SAYING_NOTHING:
                return op(target, value)
            if type(value) in NUMBERS and calm():  # then it can be done again
                token = start_recording()
                try:
                    made = op(target, value)
                finally:
                    stop_recording(token)
                if not FLAGS_BY_THREAD or not take_flags():
                    return made
            return call_at(place_of(_getframe(1)), op, (target, value), {})
        value = session.plain(value)
        if kind in CONTAINERS and not is_wild(value):
            if kind is list and op is operator.imul:  # it repeats what the list holds
                session.plain(target)
            return op(target, value)
        return Foreign(op, session)(target, value)

    @bridge
    def setitem(self, value: Any, obj: Any, key: Any) -> None:
        """Do ``obj[key] = value``."""
        session = LOCAL.session
        if session is None:
            if isinstance(obj, np.ndarray):
                call_at(place_of(_getframe(1)), operator.setitem, (obj, key, value), {})
            else:
                obj[key] = settle_value(value)
            return
        kind = type(obj)
        if kind is LazyArray:
            obj._s.setitem(obj, key, value, getrefcount(value) - _OWN)
        elif kind is np.ndarray:
            if session.ended and session.writes(obj, key, value):
                return
            proxy = session.argument(obj)
            if type(proxy) is LazyArray:
                session.setitem(proxy, key, value, getrefcount(value) - _OWN)
            else:
                given = obj, session.plain(key), session.plain(value)
                if is_wild(given[2]):
                    Foreign(operator.setitem, session)(*given)
                    return
                session.before_write(obj)
                call_at(place_of(_getframe(1)), operator.setitem, given, {})
        elif kind is dict or kind is list:
            key = session.plain(key)
            if type(value) in CARRIERS or is_wild(key):
                value = session.plain(value)
            if type(value) in LAZY and type(key) is not slice:
                _note_item(session, obj, key)
            obj[key] = value
        else:
            method = getattr(kind, "__setitem__", None)
            if type(method) is FunctionType and kind not in PROXIES:
                self.call(method)(obj, key, value)
            else:
                key, value = session.plain(key), session.plain(value)
                Foreign(operator.setitem, session)(obj, key, value)

    def delitem(self, obj: Any, key: Any) -> None:
        """Do ``del obj[key]``."""
        session = LOCAL.session
        if session is None:
            del obj[key]
        elif type(obj) in CONTAINERS or type(obj) in LAZY:
            del obj[session.plain(key)]
        else:
            Foreign(operator.delitem, session)(obj, key)

    @bridge
    def setattr(self, value: Any, obj: Any, name: str) -> None:
        """Do ``obj.name = value``."""
        session = LOCAL.session
        if session is None:
            setattr(obj, name, settle_value(value))
            return
        if type(obj) is np.ndarray or type(obj) is LazyArray:
            array = session.settle(obj) if type(obj) is LazyArray else obj
            session.materialise_escapes()
            session.foreigners.pop(id(array), None)
            call_here(setattr, array, name, session.plain(value))
            if type(obj) is LazyArray:
                session.refresh_layout(obj)
            return
        if type(obj) in LAZY:
            setattr(session.plain(obj), name, session.plain(value))  # an error, in the right words
            return
        if not stores_plainly(type(obj), name):
            setter = setter_of(type(obj), name)
            if type(setter) is FunctionType:
                self.call(setter)(obj, value)
            else:
                value = session.plain(value)  # a frame that failed must not hold a proxy
                Foreign(setattr, session)(obj, name, value)
            return
        if type(value) in CARRIERS:
            value = session.plain(value)
        if type(value) in LAZY:
            session.slots[id(obj), ".", name] = (
                None, lambda: _attribute(obj, name), lambda v: setattr(obj, name, v))
        setattr(obj, name, value)

    def delattr(self, obj: Any, name: str) -> None:
        """Do ``del obj.name``."""
        session = LOCAL.session
        if session is not None and type(obj) in LAZY:
            obj = session.plain(obj)
        plain = session is None or deletes_plainly(type(obj), name)
        (delattr if plain else self.foreign(delattr))(obj, name)

    def edge(self) -> None:
        """End of a loop's body: the block ends here, so that every iteration has one plan."""
        session = LOCAL.session
        if session is None:
            return
        if session.updates:
            session.updates.clear()
        if len(session.nodes) <= len(session.entered):
            return
        if len(session.ops) >= session.site.unroll_limit and not goes_on(session):
            BlockCloser.close(session)

    def pause(self) -> None:
        """End of a stretch of statements without a loop: the block ends here if it has become long."""
        session = LOCAL.session
        if session is not None and len(session.ops) > MAX_PENDING_OPERATIONS:
            session.close_long_block()

    def yields(self, value: Any) -> Any:
        """Hand a value to whoever drives the generator."""
        session = LOCAL.session
        if session is None:
            return settle_value(value)
        value = session.plain(value)
        session.materialise_escapes()
        return value

    awaits = yields

    def enter(self, manager: Any) -> Any:
        """Return the context manager of a with statement; it may run any code."""
        session = LOCAL.session
        if session is None:
            return manager
        kind = type(manager)
        if kind in LAZY:
            return session.plain(manager)  # an error, in the right words
        if not hasattr(kind, "__enter__") or not hasattr(kind, "__exit__"):
            return manager
        return Managed(manager, session)

    def bare(self, part: Any) -> Any:
        """Return what ``__code__`` or ``__closure__`` of a function is where nothing is traced."""
        return TWINS.bare(part)


def _class_of(*args: Any, **kwargs: Any) -> Any:
    """Do what ``type`` does: of a proxy, the class of what it stands for."""
    if len(args) == 1 and not kwargs and type(args[0]) in PROXIES:
        return args[0].__class__
    return type(*args, **kwargs)


def _identity(*args: Any, **kwargs: Any) -> int:
    """Do what ``id`` does: of a proxy, the identity of what it stands for, which is not replaced any more."""
    if len(args) == 1 and not kwargs:
        proxy = args[0]
        kind = type(proxy)
        if kind is LazyArray:
            memory = proxy._s.settle(proxy)
            proxy._s.foreigners.setdefault(id(memory), proxy)  # as if it had come from outside
            return id(memory)
        if kind in LAZY:
            return id(proxy._s.value(proxy))
        if kind is LazySparse:
            return id(scipy_matrix(proxy))
    return id(*args, **kwargs)


def _attribute(obj: Any, name: str) -> Any:
    """Return an attribute of an object without running code of its class."""
    try:
        return object.__getattribute__(obj, name)
    except AttributeError:
        return None


def _note_item(session: HooksSession, obj: Any, key: Any) -> None:
    """Note that an item of a list or dictionary is about to hold a proxy.

    It is noted before it is stored: an interrupt between both leaves nothing unfilled.
    """
    if type(obj) is list and isinstance(key, (int, np.integer)) and key < 0:
        key += len(obj)
    place = id(obj), "[]", key
    if place in session.slots and type(_read(obj, key)) not in LAZY:
        session.plain(obj)  # what was stored there has moved inside of the list
    session.slots[place] = obj, lambda: _read(obj, key), lambda v: obj.__setitem__(key, v)


def _read(obj: Any, key: Any) -> Any:
    try:
        return obj[key]
    except (KeyError, IndexError):
        return None


HOOKS = Hooks()
TWINS = TwinTable(HOOKS, LazyArray)
