"""Warnings of every function that is recorded: signalling NaNs, overflow, zeros, what is invalid."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.tracing.numpy_api.functions import FUNCTIONS
from tests.semantics.oracle import module

SIZE = 60
#: Ufuncs of floats that have no signature.
UFUNCS = sorted(n for n in dir(np) if isinstance(u := getattr(np, n), np.ufunc) and not u.signature
                and any(set(types[: u.nin]) == {"d"} for types in u.types))
#: Calls of NumPy's functions; `m` is `x` in rows of five, `i` are indices.
CALLS = """
np.sum(x) np.sum(m,axis=0) np.sum(m,axis=1) np.sum(x*2) np.prod(x) np.prod(m,axis=0) np.min(x)
np.min(m,axis=1) np.min(x*1.0) np.max(x) np.max(m,axis=0) np.amin(x) np.amax(x*1) np.any(x)
np.any(m,axis=0) np.any(m,axis=1) np.all(x) np.all(m,axis=1) np.all(x+0) np.mean(x) np.mean(m,axis=0)
np.mean(m,axis=1) np.var(x) np.var(m,axis=1) np.std(x) np.std(m,axis=0) np.argmin(x) np.argmin(m,axis=1)
np.argmin(x*1.0) np.argmax(x) np.argmax(x/1) np.where(x>0,x,y) np.where(x,x,y)
np.where(np.isnan(x),0,x)+1 np.clip(x,-1,1) np.clip(x,y,2) np.dot(x,y) np.dot(m.T,x[:12]) x@y m.T@m
np.vdot(x,y) np.vdot(x+1,y*2)+1 np.concatenate([x,y]) np.transpose(m) np.reshape(x,(5,-1)) np.shape(x)
np.astype(x,np.float32) np.real(x) np.imag(x) np.angle(x) np.conj(x) np.conjugate(x*1) np.iscomplexobj(x)
np.isrealobj(x) np.count_nonzero(x) np.linalg.norm(x) np.linalg.norm(m,axis=1) np.einsum('i,i->',x,y)
np.einsum('i,j->ij',x,y) np.einsum('ij,kj->ik',m,m) np.cumsum(x) np.cumprod(x) np.expand_dims(x,0)+1
np.swapaxes(m,0,1) np.moveaxis(m,0,1) np.ptp(x) np.diff(x) np.round(x) np.round(x,2) np.around(x)
np.inner(x,y) np.outer(x,y) np.ravel(m) np.trace(m) np.diagonal(m) np.diag(x[:5]) np.column_stack([x,y])
np.pad(x,2) np.roll(x,3) np.hstack([x,y]) np.vstack([x,y]) np.stack([x,y]) np.stack([x,y]).sum(axis=0)
np.stack([x,y]).max(axis=0) np.dstack([x,y]) np.tril(m) np.triu(m) np.tensordot(x,y,1)
np.lib.stride_tricks.sliding_window_view(x,3).sum(axis=1) np.take(x,i) np.bincount(i,weights=x)
np.repeat(x,2) np.tile(x,2) np.average(x) np.average(x,weights=y) np.cov(x,y) np.cov(m[:3])
np.corrcoef(x,y) np.polyval([1.,2.,3.],x) np.trapezoid(x) np.trapezoid(x,y) np.select([x>0,y>0],[x,y])
np.zeros_like(x) np.ones_like(x)+x np.empty_like(x).shape np.full_like(x,y[0]) np.squeeze(m[:1])
np.flip(x)+1 np.fliplr(m) np.flipud(m) np.split(x,2)[1]+1 np.cross(x.reshape(-1,3),y.reshape(-1,3))
np.sinc(x) np.nansum(x) np.nansum(m,axis=0) np.nanmean(x) np.nanvar(x) np.nanstd(m,axis=1) np.nanmin(x)
np.nanmin(x*1.0) np.nanmax(m,axis=0) np.nan_to_num(x) np.isclose(x,y) np.isclose(x,0.5) np.allclose(x,y)
np.array_equal(x,y) np.array_equiv(x,y) np.histogram(np.clip(np.nan_to_num(x),0,1),5)[0]
""".split()
#: Operators, methods, casts, what is moved, and what changes nothing but a signalling NaN.
OPERATIONS = """
x<y x==y x!=y x>=0 -x +x abs(x) x%y x//y divmod(x,y)[0] x+y x-y x*y x/y x**3 x**2 x**-1 x**0.5 x**1
x**2.5 np.power(x,1) x*1 1*x x*-1 x/1 x/-1 x-0 x+0 x+-0.0 -0.0-x 0-x 0*x 2*x x.copy() x[::-1] x[i]
x[3]+y[4] x[3]*1 float(x[0]) x.astype('f4') x.astype('f8') x.astype('f4').astype('f8')
x.astype('f8').astype('f4') x.astype(bool) x.astype('D') x.astype('f8')>0 x.astype('f4').sum()
np.isnan(x.astype('f8')) np.isfinite(x*1) np.isnan(x*1.0) np.isinf(x-0.0) np.isinf(x/1)
np.signbit(-0.0-x) np.abs(x*-1) np.isfinite(x*-1) np.signbit(x+-0.0) np.modf(x*1)[0] x[::2]*1 m.T*1+0
m.T+1 m.T.copy() np.where(x>0,x*1,y) np.where(x*1>0,1,2) (x>0)&(y>0) (x*y).sum() (x-y).max()
((x-x.mean())**2).sum() np.exp(x).sum() x.sum()*2 x.mean()+1 x[:5]*x[:5,None] np.maximum(x,0)
np.minimum(x,y)+1 np.floor(x).sum() np.floor(x*y) np.rint(x+1) np.logical_not(x)&(y>0)
np.logical_and(x,y) np.logical_or(x,0.5)
""".split()
_WARNING = [*CALLS, *OPERATIONS]
for _name in UFUNCS:
    if getattr(np, _name).nin == 1:
        _first = "[0]" if getattr(np, _name).nout > 1 else ""
        _WARNING += [f"np.{_name}(x)", f"np.{_name}(x*1){_first}+1"]
    elif getattr(np, _name).nin == 2:
        _WARNING += [f"np.{_name}(x,y)", f"np.{_name}(y,x)", f"np.{_name}(x,0.5)"]


def signalling(dtype: str) -> np.ndarray:
    """Return a signalling NaN, as an array of one number."""
    bits = {"f": (np.uint32, 0x7F800001), "d": (np.uint64, 0x7FF0000000000001)}[dtype]
    return np.array([bits[1]], bits[0]).view(dtype)


def operands(dtype: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return pairs of vectors, by what is special about them."""
    large, small = (1e300, 1e-300) if dtype == "d" else (1e38, 1e-38)
    special = {
        "ordinary": ([], []), "nan": ([np.nan], []),
        "overflow": ([large, large, -large], [large, -large, large]),
        "infinite": ([np.inf, -np.inf, np.inf, 0, 0], [np.inf, np.inf, 0, np.inf, 0]),
        "zero": ([1, 0, 0], [0, 0, 1]), "negative": ([-1, -2], [-0.5]), "tiny": ([small] * 3, [small] * 3),
        "several": ([np.inf, large, -1, 0], [0, large, 0, 0]), "signal": ([], []), "other signal": ([], []),
    }
    found = {}
    for name, numbers in special.items():
        pair = np.linspace(0.1, 1, SIZE).astype(dtype), np.linspace(1, 0.1, SIZE).astype(dtype)
        for values, given in zip(pair, numbers, strict=True):
            values[5 : 5 + len(given)] = given
        found[name] = pair
    found["signal"][0][7:8] = found["other signal"][1][7:8] = signalling(dtype)
    return found


def warned(function: Any, x: np.ndarray, y: np.ndarray) -> list[str]:
    """Return the warnings of a call, and its exception."""
    x, y = x.copy(), y.copy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            function(x, y, x.reshape(-1, 5), np.arange(SIZE)[::-1] % 7)
        except (TypeError, ValueError) as error:
            return [type(error).__name__]
    return [f"{w.category.__name__}: {w.message}" for w in caught]


@pytest.mark.parametrize("text", _WARNING)
def test_warnings_are_numpys(text: str) -> None:
    source = f"import numpy as np\ndef f(x, y, m, i):\n    return {text}\n"
    plain = module(source, f"signals {text}", jitla.jit)["f"]
    for dtype in "df":
        fast = jitla.jit(plain, compile="sync")
        for name, (x, y) in operands(dtype).items():
            wanted = warned(plain, x, y)
            for _ in range(2):
                assert warned(fast, x, y) == wanted, f"{name}, {dtype}"
        assert fast.stats()["calls"] and not fast.stats()["failures"]


def test_every_function_is_called() -> None:
    missing = {f.__name__ for f in FUNCTIONS if not any(f"{f.__name__}(" in text for text in CALLS)}
    assert not missing
