"""Noise: NumPy with every inexact function wrong by as much as is allowed to a compiled one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.special

from tests.fuzz import sparse_noise, undefined

TRANSCENDENTAL = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan arctan2 sinh cosh tanh arcsinh "
    "arccosh arctanh hypot logaddexp logaddexp2 cbrt power float_power".split()
)
# Where these are 0, they are so in every digit, and so are compiled ones.
EXACT_ZEROS = frozenset(
    "log log2 log10 log1p expm1 sin tan arcsin arccos arctan sinh tanh arcsinh arccosh arctanh".split()
)
# Functions of scipy.special, which programs call `special`.
SPECIAL = frozenset("erf erfc ndtr expit log_expit logit xlogy xlog1py".split())
# Logarithms of sums cancel below these; tails of the others lose digits in SciPy, and end too soon.
CANCELLING = {"logaddexp": 0.25, "logaddexp2": 0.5}
TAILS = {"erfc": 2.0, "ndtr": 2.0, "expit": 0.0}
# Sums keep NumPy's bits, but a sum of sums or of a product may be reordered as a whole.
SUMS = frozenset(("sum", "mean"))
PRODUCTS = frozenset(("matmul", "dot", "outer"))
EXACT_POWERS = (2, 0.5, -1, 1, 0)
SIGNED_ZEROS = frozenset(("maximum", "minimum", "fmax", "fmin"))
# Of complex scalars these are rounded as the operators round; of complex64 with negative strides, too.
COMPLEX_SCALARS = frozenset(("abs", "absolute", "multiply", "square"))
# They show the sign of a NaN, which is anybody's.
SIGNS = frozenset(("copysign", "signbit"))
# What NumPy itself works on; other objects answer operators and methods as they like.
OWN = (np.ndarray, np.generic, list, tuple, bool, int, float, complex)
METHODS = ("at", "reduce", "accumulate", "reduceat", "outer")
ULPS = 3


def _like(result: Any, cells: Any) -> np.ndarray:
    """Return cells with the dtype and layout of a result."""
    moved = np.empty_like(result)
    np.copyto(moved, cells, casting="same_kind")
    return moved


def _allowed(name: str, result: Any, operands: tuple[Any, ...]) -> Any:
    """Say how far from NumPy's or SciPy's result that of another inexact function may be."""
    kind = np.finfo(np.asarray(result).dtype)
    with np.errstate(all="ignore"):
        bound = ULPS * np.spacing(np.maximum(np.abs(result), CANCELLING.get(name, 0.0), dtype=kind.dtype))
        if name in TAILS:
            square = np.square(np.where(np.isfinite(operands[0]), operands[0], 0.0))
            bound = bound * (4 + TAILS[name] * square) + kind.tiny
        vague = np.isfinite(result) & ((result != 0) | (name not in EXACT_ZEROS))
        return np.where(vague, bound, 0)


def _is_own(x: Any) -> bool:
    return isinstance(x, OWN) and (type(x) is np.ndarray or not isinstance(x, np.ndarray))


def _dot(left: Any, right: Any) -> Any:
    return left.dot(right)


def _is_reversed(operand: Any) -> bool:
    """Say whether NumPy may walk complex64 backwards, which it rounds otherwise."""
    return isinstance(operand, np.ndarray) and operand.dtype == np.complex64 and min(operand.strides) < 0


def _with_methods(found: Any, function: Any) -> Any:
    """Give a function the methods of the ufunc it stands for: those keep NumPy's bits."""
    if found is not function and isinstance(function, np.ufunc):
        for method in METHODS:
            setattr(found, method, getattr(function, method))
    return found


class Noisy:
    """What a program sees as `np` in a run with noise."""

    def __init__(self, seed: int, sums: bool = False, drops: bool = False) -> None:
        """Shake every sum, if `sums`; `drops`: of sparse matrices zeros may have been dropped before."""
        self._rng = np.random.default_rng(seed)
        self._apart = seed % 2 == 0
        self._sums, self._drops = sums, drops
        self._outer: Any = None, (), ()  # the outer product made last, and its factors

    @property
    def linalg(self) -> SimpleNamespace:
        """Return `np.linalg`, whose norm adds up as is best."""
        return SimpleNamespace(**{**vars(np.linalg), "norm": self._norm})

    @property
    def special(self) -> _Functions:
        """Return what a program sees as `special`."""
        return _Functions(self)

    def _norm(self, x: Any, *given: Any, **options: Any) -> Any:
        result = np.linalg.norm(x, *given, **options)
        if given or options or np.asarray(result).dtype.kind != "f":
            return result
        with np.errstate(all="ignore"):
            bound = np.abs(result) * (2 * np.log2(np.size(x) + 16) * np.finfo(result.dtype).eps)
            return type(result)(result + np.where(np.isfinite(bound), bound, 0) * self._amount(()))

    def times(self, left: Any, right: Any) -> Any:
        """Do ``left * right``."""
        if sparse_noise.is_sparse(left, right):
            return sparse_noise.times(left, right, self._amount)
        result = left * right
        if isinstance(result, np.ndarray) and (
                result.size == 1 or any(map(_is_reversed, (left, right)))):
            return self._complex_nudged(result, any(map(_is_reversed, (left, right))))
        return result

    def timed(self, target: Any) -> None:
        """Shake what ``target *= …`` has left."""
        if np.iscomplexobj(target) and isinstance(target, np.ndarray) and target.flags.writeable:
            target[...] = self._complex_nudged(target, _is_reversed(target))

    def entrywise(self, name: str, x: Any, *given: Any) -> Any:
        """Do ``x.name(...)``, a method of sparse matrices."""
        if sparse_noise.is_sparse(x):
            return sparse_noise.entrywise(name, x, given, self._amount)
        return getattr(x, name)(*given)

    storable, astype = staticmethod(undefined.storable), staticmethod(undefined.astype)

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name)
        return _with_methods(self._noisy(name, function), function)

    def _noisy(self, name: str, function: Any) -> Any:
        if name in TRANSCENDENTAL:
            return self._shaken(name, function)
        if name in PRODUCTS:
            return self._product(function)
        if name == "einsum":
            return self._einsum
        if name in SUMS:
            return self._summed(function)
        if name in SIGNED_ZEROS:
            return self._either_zero(function)
        if name in COMPLEX_SCALARS:
            return self._of_complex_scalars(function)
        if name in SIGNS:
            return self._either_sign(function)
        return function

    def _amount(self, shape: tuple[int, ...]) -> Any:
        """Draw what part of the noise allowed is made: equal operands are wrong by the same amount."""
        return self._rng.uniform(-1, 1, shape if self._apart else ())

    def _shaken(self, name: str, function: Any) -> Any:
        def call(*operands: Any, **options: Any) -> Any:
            if sparse_noise.is_sparse(*operands):
                return self._of_sparse(name, function, operands)
            if name == "power" and np.ndim(operands[1]) == 0 and operands[1] in EXACT_POWERS:
                return operands[0] ** operands[1]
            if name == "power" and not any(isinstance(o, (np.ndarray, np.generic)) for o in operands):
                return operands[0] ** operands[1]
            before = [np.copy(o) if "out" in options else o for o in operands]
            result = function(*operands, **options)
            return self._nudged(result, options.get("out"), options.get("where", True), name, (*before,))

        return call

    def _of_sparse(self, name: str, function: Any, operands: tuple[Any, ...]) -> Any:
        if name == "power":
            return sparse_noise.power(*operands, self._amount)
        if name in sparse_noise.SMOOTH and sp.issparse(operands[0]):
            return sparse_noise.entrywise(name, operands[0], (), self._amount)
        return function(*operands)

    def _nudged(
        self, result: Any, out: Any, where: Any = True, name: str = "", operands: tuple[Any, ...] = ()
    ) -> Any:
        if np.asarray(result).dtype.kind != "f" or np.size(result) == 0:
            return result
        part = self._rng.integers(-ULPS, ULPS + 1, np.shape(result) if self._apart else ()) / ULPS
        with np.errstate(all="ignore"):
            moved = _like(result, result + part * _allowed(name, result, operands))
        if out is not None:
            np.copyto(out, moved, where=where)
            return out
        return moved if isinstance(result, np.ndarray) else moved[()]

    def at(self, left: Any, right: Any) -> Any:
        """Do ``left @ right``."""
        return self._product(operator.matmul)(left, right)

    def _product(self, function: Any) -> Any:
        def call(left: Any, right: Any, **options: Any) -> Any:
            if sparse_noise.is_sparse(left, right) and function is not np.outer and not options:
                if function is np.matmul:  # takes no matrix of SciPy
                    return function(left, right)
                times = _dot if function is np.dot else function
                return sparse_noise.product(left, right, self._amount, times)
            if not _is_own(left) or not _is_own(right):
                return (left.dot if function is np.dot else partial(function, left))(right, **options)
            result = function(*self._reordered(function, left, right), **options)
            kind = np.asarray(result).dtype
            if function is np.outer:
                self._outer = result, np.ravel(left), np.ravel(right)
            if kind.kind not in "fc" or function is np.outer:
                return result
            with np.errstate(all="ignore"):
                length = np.shape(left)[-1] if np.ndim(left) else 1
                # as floats: the least integer has no opposite
                sizes = function(*(np.abs(np.multiply(x, 1.0)) for x in (left, right)))
                # BLAS leaves out factors that are zero, or does not
                sizes = np.where(self._strange(function, left, right), np.inf, sizes)
                bound = sizes * (2 * length * np.finfo(kind).eps)
                nudge = np.where(np.isfinite(bound), bound, 0) * self._amount(np.shape(result))
                nudge = np.copysign(1, result.real) * nudge
                if kind.kind == "c":
                    turned = nudge * self._rng.choice((-1, 1), np.shape(nudge))
                    moved = _like(result, result + nudge + 1j * turned)
                else:
                    moved = np.where(result == 0, np.copysign(0.0, nudge), result) + nudge
                    # What may be 0 is 0 now and then: whether it is one may be asked.
                    gone = (np.abs(result) <= bound) & self._rng.choice((True, False), np.shape(result))
                    moved = _like(result, np.where(gone, np.copysign(0.0, nudge), moved))
                # Factors that are not finite, sums that overflow on the way: what comes out is open.
                for part in (moved.real, moved.imag) if kind.kind == "c" else (moved,):
                    strange = self._rng.choice((0.0, np.inf, -np.inf, np.nan), np.shape(result))
                    np.copyto(part, strange, where=~np.isfinite(sizes) & (strange != 0))
            return _like(result, moved) if isinstance(result, np.ndarray) else moved[()]

        return call

    def _strange(self, function: Any, left: Any, right: Any) -> Any:
        """Say where a product has factors that are not finite."""
        left, right = ((~np.isfinite(x)).astype(float) for x in (left, right))
        return function(left, np.ones_like(right)) + function(np.ones_like(left), right) > 0

    def _reordered(self, function: Any, left: Any, right: Any) -> tuple[Any, Any]:
        """Put what is added up in another order, which may raise other flags."""
        operands = np.asarray(left), np.asarray(right)
        floats = all(o.ndim and o.dtype.kind in "fc" for o in operands)
        along = max(-operands[1].ndim, -2)
        if not floats or function is np.outer or operands[0].shape[-1] != operands[1].shape[along]:
            return left, right
        order = self._rng.permutation(operands[0].shape[-1])
        return np.take(operands[0], order, -1), np.take(operands[1], order, along)

    def _einsum(self, subscripts: str, *operands: Any, **options: Any) -> Any:
        result = np.einsum(subscripts, *operands, **options)
        if np.asarray(result).dtype.kind != "f" or "out" in options:
            return result
        with np.errstate(all="ignore"):
            sizes = np.einsum(subscripts, *map(np.abs, operands), **options)
            terms = 2 + max(np.size(o) for o in operands)
            bound = sizes * (2 * terms * np.finfo(np.asarray(result).dtype).eps)
            nudge = np.where(np.isfinite(bound), bound, 0) * self._amount(np.shape(result))
            moved = _like(result, result + nudge)
        return moved if isinstance(result, np.ndarray) else moved[()]

    def _summed(self, function: Any) -> Any:
        def call(cells: Any, *given: Any, **options: Any) -> Any:
            name = function.__name__
            if sparse_noise.is_sparse(cells) and (
                    self._sums or self._drops or not sparse_noise.keeps_order(cells, name, given, options)):
                return sparse_noise.total(cells, name, given, options, self._amount)
            if not self._sums:
                return function(cells, *given, **options)
            if not _is_own(cells):
                return getattr(cells, name)(*given, **options)
            result = function(cells, *given, **options)
            kind = np.asarray(result).dtype
            if kind.kind not in "fc" or "out" in options:
                return result
            product, left, right = self._outer
            axis = given[0] if given else options.get("axis")
            if cells is product and axis in (0, 1) and "keepdims" not in options:
                with np.errstate(all="ignore"):  # of the factor, which it is then as good as
                    sums = left * function(right) if axis else function(left) * right
                    result = _like(result, sums)
            with np.errstate(all="ignore"):
                bound = function(np.abs(cells), *given, **options) * (
                    2 * np.log2(np.size(cells) + 16) * np.finfo(kind).eps
                )
                nudge = np.where(np.isfinite(bound), bound, 0) * self._amount(np.shape(result))
                if kind.kind == "c":
                    nudge = nudge + 1j * nudge * self._amount(np.shape(result))
                moved = _like(result, result + nudge)
            return moved if isinstance(result, np.ndarray) else moved[()]

        return call

    def _of_complex_scalars(self, function: Any) -> Any:
        def call(*operands: Any, **options: Any) -> Any:
            result = function(*operands, **options)
            if not any(np.iscomplexobj(o) for o in operands):
                return result
            if "out" in options:  # may overlap an operand: NumPy then rounds otherwise
                self.timed(result)
                return result
            if np.ndim(result) and not any(map(_is_reversed, operands)):
                return result
            return self._complex_nudged(result) if np.iscomplexobj(result) else self._nudged(result, None)

        return call

    def _complex_nudged(self, result: Any, otherwise: bool = False) -> Any:
        """Shake both parts; rounded otherwise, a part that overflows is infinite or NaN."""
        if not np.iscomplexobj(result):
            return result
        moved = np.asarray(self._nudged(result.real, None) + 1j * self._nudged(result.imag, None))
        if otherwise:
            for part in (moved.real, moved.imag):
                strange = self._rng.choice((np.inf, -np.inf, np.nan), np.shape(part))
                np.copyto(part, strange, where=~np.isfinite(part))
        return _like(result, moved) if np.ndim(result) else type(result)(moved)

    def _either_sign(self, function: Any) -> Any:
        def call(*operands: Any, **options: Any) -> Any:
            last = np.asarray(operands[-1])
            if last.dtype.kind == "f":
                flipped = np.isnan(last) & (self._rng.random(last.shape) < 0.5)
                changed = _like(last, np.where(flipped, -last, last))
                operands = (*operands[:-1], changed if isinstance(operands[-1], np.ndarray) else changed[()])
            return function(*operands, **options)

        return call

    def _either_zero(self, function: Any) -> Any:
        def call(*operands: Any, **options: Any) -> Any:
            result = function(*operands, **options)
            if np.asarray(result).dtype.kind != "f" or "out" in options:
                return result
            signs = np.where(self._rng.random(np.shape(result)) < 0.5, -1.0, 1.0)
            moved = _like(result, np.where(result == 0, signs * 0.0, result))
            return moved if isinstance(result, np.ndarray) else moved[()]

        return call


class _Functions:
    """What a program sees as `special` in a run with noise."""

    def __init__(self, noise: Noisy) -> None:
        self._noise = noise

    def __getattr__(self, name: str) -> Any:
        function = getattr(scipy.special, name)
        return _with_methods(self._noise._shaken(name, function), function) if name in SPECIAL else function


class Exactly(Noisy):
    """What a program sees as `np` where inexact functions are as wrong as compiled ones, each by itself.

    Decisions by their last bits then fall alike: noise would have to meet just these. What is further
    from NumPy's than is allowed stays NumPy's.
    """

    def __init__(self, jit: Callable[..., Any]) -> None:
        super().__init__(1)
        self._jit = jit
        self._compiled: dict[str, Callable[..., Any]] = {}

    def _noisy(self, name: str, function: Any) -> Any:
        if name in PRODUCTS:
            return self._product(function)
        return self._shaken(name, function) if name in TRANSCENDENTAL else function

    def _product(self, function: Any) -> Any:
        def call(left: Any, right: Any, **options: Any) -> Any:
            if not sparse_noise.is_sparse(left, right):
                return function(left, right, **options)
            return left.dot(right) if function is np.dot else function(left, right)

        return call

    def times(self, left: Any, right: Any) -> Any:
        """Do ``left * right``."""
        return left * right

    def entrywise(self, name: str, x: Any, *given: Any) -> Any:
        """Do ``x.name(...)``."""
        return getattr(x, name)(*given)

    def timed(self, target: Any) -> None:
        """Leave what ``target *= …`` has left."""

    def _shaken(self, name: str, function: Any) -> Any:
        def call(*operands: Any, **options: Any) -> Any:
            plain = operands[0] ** operands[1] if name == "power" else function(*operands, **options)
            floats = isinstance(plain, np.ndarray) and plain.dtype.kind == "f"
            if options or not floats or not all(map(_is_own, operands)):
                return plain
            with np.errstate(all="ignore"):
                made = self._alone(name, function)(*operands)
                near = np.abs(made - plain) <= _allowed(name, plain, operands)
            return _like(plain, np.where(near, made, plain))

        return call

    def _alone(self, name: str, function: Any) -> Callable[..., Any]:
        """Return the function compiled, for itself."""
        if name not in self._compiled:
            alone = operator.pow if name == "power" else function
            self._compiled[name] = self._jit(lambda *operands: alone(*operands))
        return self._compiled[name]
