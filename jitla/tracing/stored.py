"""The proxy of a sparse matrix whose entries are pending.

Knows: when it has to become the matrix of SciPy that it stands for. Must not know: which operations make
one. Receives a pattern of positions and a vector of entries on the tape.

Whatever it is asked for that is not recorded, it becomes what SciPy would have made, and answers as
that. What is in memory stays SciPy's own object.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.clocks import stored
from jitla.tracing.array import LazyArray
from jitla.tracing.pattern import Pattern

Session = Any  # the session that the arguments belong to
Recorder = Callable[[Session, Any, tuple, dict], Any]

#: What records calls on sparse matrices, or says NotImplemented. Filled when there is one.
RECORDERS: dict[str, Recorder] = {}  # by the file that has one
IN_MEMORY = object()
CROWD = 64  # references to pending matrices, from which on those that are gone are looked for


class Product(NamedTuple):
    """Two sparse matrices whose product was asked for: patterns and entries of both."""

    left: Any
    right: Any

    def reads(self, target: np.ndarray) -> bool:
        """Whether positions or entries, those in memory, are in `target`."""
        arrays = [part for each in self for part in each.pattern.arrays]
        arrays += [each.values._v for each in self if each.values._v is not None]
        return any(np.may_share_memory(target, part) for part in arrays)

    def made(self, session: Session) -> Any:
        """Return SciPy's product."""
        left, right = (each.pattern.made(session.value(each.values)) for each in self)
        return left @ right


class LazySparse:
    """What SciPy would have made with the entries `values` at the positions of `pattern`.

    Where the vector `kept` is 0 nothing is stored, and entries are 0. A view of a pending matrix `whole`
    is what the method `seen` of that one returns; that of a matrix `IN_MEMORY` shares its arrays. Where
    entries of a `Product` are is known once it is made: of its pattern only class and shape are true, of its
    entries the dtype. `seen` says whether it was multiplied already.
    """

    _session: Any
    _pattern: Pattern
    _values: Any
    _kept: Any
    _whole: Any
    _seen: str
    _summed: bool
    _made: Any

    __slots__ = ("_session", "_pattern", "_values", "_kept", "_whole", "_seen", "_summed", "_made",
                 "__weakref__")

    __array_priority__ = 1e6

    def __init__(
        self, session: Session, pattern: Pattern, values: LazyArray, kept: LazyArray | None = None,
        whole: Any = None, seen: str = "",
    ) -> None:
        put = object.__setattr__  # other attributes are SciPy's
        put(self, "_session", session)
        put(self, "_pattern", pattern)
        put(self, "_values", values)
        put(self, "_kept", kept)
        put(self, "_whole", whole)
        put(self, "_seen", seen)
        put(self, "_summed", False)  # SciPy adds up duplicates, in the matrix itself, before it sums
        put(self, "_made", None)
        stored = session.stored
        if len(stored) >= CROWD:
            stored[:] = [each for each in stored if each() is not None]
        stored.append(ref(self))

    @property
    def __class__(self) -> type:
        kind: type = self._pattern.kind
        return kind

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, known without computing."""
        return self._pattern.shape if self._made is None else self._made.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return 2

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the entries, known without computing."""
        return self._values.dtype if self._made is None else self._made.dtype

    @property
    def format(self) -> str:
        """SciPy's name of the format."""
        return self._pattern.format

    @property
    def nnz(self) -> int:
        """Number of entries, known without computing if all are kept."""
        known = self._made is None and self._kept is None and not self._summed \
            and type(self._whole) is not Product
        return self._values.size if known else settled(self).nnz

    @property
    def T(self) -> Any:
        """The transposed matrix, with the same entries."""
        return self.transpose()

    def __getattr__(self, name: str) -> Any:
        return getattr(settled(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in LazySparse.__slots__:
            object.__setattr__(self, name, value)
        else:
            setattr(settled(self), name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return settled(self).__reduce_ex__(protocol)


def settled(lazy: LazySparse) -> Any:
    """Return the object of SciPy that `lazy` stands for."""
    if lazy._made is None:
        lazy._made = _made(lazy)
        if lazy._whole is None:
            stored(lazy._made, len(lazy._values))
        for each in [given() for given in lazy._session.stored]:  # they share its memory as it is now
            if each is not None and each._whole is lazy:
                settled(each)
    return lazy._made


def _made(lazy: LazySparse) -> Any:
    if type(lazy._whole) is Product:
        return lazy._whole.made(lazy._session)
    session = lazy._session
    if type(lazy._whole) is LazySparse:
        made = getattr(settled(lazy._whole), lazy._seen)()
    elif lazy._kept is not None:
        return lazy._pattern.picked(session.value(lazy._values), session.value(lazy._kept))
    else:
        made = lazy._pattern.made(session.value(lazy._values))
    if lazy._summed:
        made.sum_duplicates()
    return made


def settle_stored(session: Session, target: np.ndarray | None) -> None:
    """Make what pending matrices stand for, if their positions are in `target` (None: anywhere)."""
    alive = [each for given in session.stored if (each := given()) is not None and each._made is None]
    for each in alive:
        if each._made is None and (target is None or _is_in(each, target)):
            settled(each)
    session.stored[:] = [ref(each) for each in alive if each._made is None]


def _is_in(lazy: LazySparse, target: np.ndarray) -> bool:
    """Tell whether what `lazy` is made of, but for entries on the tape, is in memory of `target`."""
    if type(lazy._whole) is Product:
        return lazy._whole.reads(target)
    return any(np.may_share_memory(target, part) for part in lazy._pattern.arrays)


def forget_known(known: dict[int, Any], target: np.ndarray | None) -> None:
    """Forget what was found of arrays that share memory with `target`, which is written (None: anywhere)."""
    for key, found in list(known.items()):
        if target is None or any(np.may_share_memory(target, part) for part in found.arrays):
            del known[key]


def _operator(function: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    def method(self: LazySparse, *args: Any) -> Any:
        given = (*args, self) if reflected else (self, *args)
        made = _recorded(self, function, given, {})
        return self._session.outside(function, given, {}) if made is NotImplemented else made

    return method


def _method(name: str) -> Callable[..., Any]:
    def method(self: LazySparse, *args: Any, **kwargs: Any) -> Any:
        made = _recorded(self, name, (self, *args), kwargs)
        return self._session.outside(getattr(settled(self), name), args, kwargs) \
            if made is NotImplemented else made

    method.__name__ = name
    return method


def _recorded(lazy: LazySparse, function: Any, args: tuple, kwargs: dict) -> Any:
    for recorder in RECORDERS.values():
        made = recorder(lazy._session, function, args, kwargs)
        if made is not NotImplemented:
            return made
    return NotImplemented


def install(names: Iterable[str]) -> None:
    """Give proxies these methods, which are recorded where that is possible."""
    for name in names:
        setattr(LazySparse, name, _method(name))


def _install() -> None:
    for name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow"):
        function = getattr(operator, name)
        setattr(LazySparse, f"__{name}__", _operator(function))
        setattr(LazySparse, f"__r{name}__", _operator(function, True))
    for name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "getitem", "setitem", "contains", "abs"):
        setattr(LazySparse, f"__{name}__", _operator(getattr(operator, name)))
    asked: dict[str, Callable[..., Any]] = {
        "bool": bool, "len": len, "iter": iter, "repr": repr, "str": str, "hash": hash, "round": round,
        "float": float, "int": int, "complex": complex, "copy": copy.copy, "deepcopy": copy.deepcopy,
    }
    for name, function in asked.items():
        setattr(LazySparse, f"__{name}__", _operator(function))


_install()
