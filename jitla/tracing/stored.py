"""The proxy of a sparse matrix whose entries are pending.

Knows: how SciPy makes such a matrix of positions and entries. Must not know: which operations make one.
Receives a matrix in memory, whose positions it has, and a vector of entries on the tape.

Whatever it is asked for that is not recorded, it becomes what SciPy would have made, and answers as
that. What is in memory stays SciPy's own object.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np

from jitla.tracing.array import LazyArray

Session = Any  # the session that the arguments belong to


class LazySparse:
    """What SciPy would have made of the matrix `base`, with the entries `values` in their order."""

    __slots__ = ("_session", "_base", "_structure", "_values", "_summed", "_made", "__weakref__")

    __array_priority__ = 1e6

    def __init__(self, session: Session, base: Any, values: LazyArray) -> None:
        self._session = session
        self._base = base
        self._structure = base.indptr, base.indices
        self._values: Any = values
        self._summed = False  # SciPy adds up duplicates, in the matrix itself, before it sums
        self._made: Any = None
        session.stored.append(ref(self))

    @property
    def __class__(self) -> type:
        made: type = self._base._coo_container
        return made

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, known without computing."""
        return tuple(self._base.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return 2

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the entries, known without computing."""
        return self._values.dtype

    @property
    def format(self) -> str:
        """SciPy's name of the format."""
        return "coo"

    def __getattr__(self, name: str) -> Any:
        return getattr(settled(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in LazySparse.__slots__:
            object.__setattr__(self, name, value)
        else:
            setattr(settled(self), name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return settled(self).__reduce_ex__(protocol)

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        """Add up entries: all of them in one pass with what computes them."""
        if self._made is None and axis is None and dtype is None and out is None:
            self._summed = True
            return self._values.sum()
        return self._session.outside(settled(self).sum, (axis, dtype, out), {})


def settled(lazy: LazySparse) -> Any:
    """Return the object of SciPy that `lazy` stands for."""
    if lazy._made is None:
        made = lazy._base.tocoo()
        made.data = lazy._session.value(lazy._values).ravel()  # a view, as SciPy's
        if lazy._summed:
            made.sum_duplicates()
        lazy._made = made
    return lazy._made


def settle_stored(session: Session, target: np.ndarray | None) -> None:
    """Make what pending matrices stand for, if their positions are in `target` (None: anywhere)."""
    alive = [each for given in session.stored if (each := given()) is not None and each._made is None]
    session.stored.clear()
    for each in alive:
        if target is None or any(np.may_share_memory(target, part) for part in each._structure):
            settled(each)
        else:
            session.stored.append(ref(each))


def _forwarded(function: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    def method(self: LazySparse, *args: Any) -> Any:
        return self._session.outside(function, (*args, self) if reflected else (self, *args), {})

    return method


def _install() -> None:
    for name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow"):
        function = getattr(operator, name)
        setattr(LazySparse, f"__{name}__", _forwarded(function))
        setattr(LazySparse, f"__r{name}__", _forwarded(function, True))
    for name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "getitem", "setitem", "contains", "abs"):
        setattr(LazySparse, f"__{name}__", _forwarded(getattr(operator, name)))
    asked: dict[str, Callable[..., Any]] = {
        "bool": bool, "len": len, "iter": iter, "repr": repr, "str": str, "hash": hash, "round": round,
        "float": float, "int": int, "complex": complex, "copy": copy.copy, "deepcopy": copy.deepcopy,
    }
    for name, function in asked.items():
        setattr(LazySparse, f"__{name}__", _forwarded(function))


_install()
