"""Functions of NumPy as Python functions, which loops inline like those of the user.

Each computes what NumPy's function computes, operation by operation, for the operands that it is written for.
An assertion that fails leaves the call to NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jitla.loopjit.values import Abstract, Arr, Elementwise, Num

SMALL_KERNEL = 11  # elements, up to which `np.correlate` adds products one after the other
NEAR = 8  # elements around a guess that `np.interp` looks at first


def cross(a: Any, b: Any) -> Any:
    """Return the cross product of vectors of three elements, or of rows of them."""
    assert a.shape[a.ndim - 1] == 3
    assert b.shape[b.ndim - 1] == 3
    if a.ndim == 1 and b.ndim == 1:
        return np.array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])
    x = column(a, 1) * column(b, 2) - column(a, 2) * column(b, 1)
    y = column(a, 2) * column(b, 0) - column(a, 0) * column(b, 2)
    z = column(a, 0) * column(b, 1) - column(a, 1) * column(b, 0)
    return np.stack((x, y, z), -1)


def column(a: Any, k: Any) -> Any:
    """Return an element of a vector, or the elements with an index on the last axis."""
    if a.ndim == 1:
        return a[k]
    return a[..., k]


def signed_zeros(a: Any) -> Any:
    """Return whether an array of floats has a negative zero: equal elements are then not the same."""
    return np.any(np.signbit(a) & (a == 0))


def median(a: Any) -> Any:
    """Return the median of all elements."""
    s = np.sort(a.ravel())
    n = len(s)
    assert n > 0
    assert s[n - 1] == s[n - 1]
    k = n // 2
    low = k - 1 + n % 2
    if s[low] == 0 or s[k] == 0:
        assert not signed_zeros(s)
    return np.mean(s[low:k + 1])


def quantile(a: Any, q: Any) -> Any:
    """Return a quantile of all elements, between two of them by linear interpolation."""
    assert a.dtype.itemsize == 8
    assert 0 <= q <= 1
    s = np.sort(a.ravel())
    n = len(s)
    assert n > 0
    assert s[n - 1] == s[n - 1]
    at = np.float64((n - 1) * q)
    low = int(np.floor(at))
    high = low + 1
    part = at - low
    if at >= n - 1:
        low = n - 1
        high = n - 1
        part = at + 1.0
    x = s[low]
    y = s[high]
    if x == 0 or y == 0:
        assert not signed_zeros(s)
    step = y - x
    if part >= 0.5:
        return np.float64(y - step * (1 - part))
    return np.float64(x + step * part)


def percentile(a: Any, q: Any) -> Any:
    """Return a percentile of all elements."""
    return quantile(a, np.float64(q) / 100)


def unique(ar: Any) -> Any:
    """Return the elements of a vector in order, each once."""
    assert ar.ndim == 1
    s = np.sort(ar)
    n = len(s)
    if n == 0:
        return s
    assert s[n - 1] == s[n - 1]
    assert not signed_zeros(s)
    return np.concatenate((s[:1], s[1:][s[1:] != s[:-1]]))


def interval(x: Any, points: Any, guess: Any) -> Any:
    """Return the index of the last point that is not above `x`: the search of `np.interp`."""
    n = len(points)
    if x > points[n - 1]:
        return n
    if x < points[0]:
        return -1
    if n <= 4:
        k = 1
        while k < n and x >= points[k]:
            k += 1
        return k - 1
    at = min(guess, n - 3)
    at = max(at, 1)
    low = 0
    high = n
    if x < points[at]:
        if x >= points[at - 1]:
            return at - 1
        high = at - 1
        if at > NEAR and x >= points[at - NEAR]:
            low = at - NEAR
    else:
        if x < points[at + 1]:
            return at
        if x < points[at + 2]:
            return at + 1
        low = at + 2
        if at < n - NEAR - 1 and x < points[at + NEAR]:
            high = at + NEAR
    while low < high:
        middle = low + ((high - low) >> 1)
        if x >= points[middle]:
            low = middle + 1
        else:
            high = middle
    return low - 1


def interpolated(x: Any, j: Any, xp: Any, fp: Any) -> Any:
    """Return the value at `x`, which is behind the point `j`."""
    if x != x:
        return x
    n = len(xp)
    if j == -1:
        return fp[0]
    if j >= n - 1:
        return fp[n - 1]
    if xp[j] == x:
        return fp[j]
    slope = (fp[j + 1] - fp[j]) / (xp[j + 1] - xp[j])
    y = slope * (x - xp[j]) + fp[j]
    assert y == y
    return y


def interp(x: Any, xp: Any, fp: Any) -> Any:
    """Return the values of a function that is linear between points."""
    assert xp.ndim == 1
    assert len(xp) == len(fp)
    assert len(xp) > 1
    assert fp.dtype.itemsize == 8
    points = xp.astype(np.float64)
    values = fp.astype(np.float64)
    if np.ndim(x) == 0:
        at = np.float64(x)
        return interpolated(at, interval(at, points, 0), points, values)
    assert x.ndim == 1
    y = np.empty(len(x))
    j = 0
    for i in range(len(x)):
        at = np.float64(x[i])
        if at == at:
            j = interval(at, points, j)
        y[i] = interpolated(at, j, points, values)
    return y


def digitize(x: Any, bins: Any, right: Any = False) -> Any:
    """Return the numbers of the bins of numbers."""
    assert (bins[1:] >= bins[:-1]).all()
    if right:
        return np.searchsorted(bins, x, side="left")
    return np.searchsorted(bins, x, side="right")


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0) -> Any:
    """Return the integral of a vector by the trapezoidal rule."""
    assert y.ndim == 1
    if x is None:
        return (dx * (y[1:] + y[:-1]) / 2.0).sum()
    return (np.diff(x) * (y[1:] + y[:-1]) / 2.0).sum()


def polyval(p: Any, x: Any) -> Any:
    """Return the value of a polynomial of float64."""
    assert p.dtype.itemsize == 8
    assert np.result_type(x).kind == "f"
    if np.ndim(x) == 0:
        y = np.float64(0.0)
        for k in range(len(p)):
            y = y * x + p[k]
        return y
    values = np.zeros_like(x)
    for k in range(len(p)):
        values = values * x + p[k]
    return values


def average(a: Any, axis: Any = None, weights: Any = None) -> Any:
    """Return the mean of all elements, with weights or without."""
    assert axis is None
    if weights is None:
        return np.mean(a)
    assert a.ndim == 1
    assert weights.ndim == 1
    assert a.dtype.itemsize == 8
    assert len(a) == len(weights)
    scale = np.sum(weights)
    assert scale != 0
    return np.sum(a * weights) / scale


def nansum(a: Any, axis: Any = None) -> Any:
    """Return the sum of the elements that are numbers."""
    return np.sum(np.where(np.isnan(a), 0, a), axis=axis)


def nanmean(a: Any) -> Any:
    """Return the mean of the elements that are numbers."""
    assert a.dtype.itemsize == 8
    count = np.sum(~np.isnan(a))
    assert count > 0
    return np.sum(np.where(np.isnan(a), 0, a)) / count


def ptp(a: Any, axis: Any = None) -> Any:
    """Return the difference of the largest and the smallest element."""
    return np.max(a, axis=axis) - np.min(a, axis=axis)


def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08) -> Any:
    """Return whether elements are nearly equal."""
    if np.ndim(b) == 0:
        assert np.result_type(b).itemsize == 8
        y = float(b)
        return (abs(a - y) <= atol + rtol * abs(y)) & np.isfinite(y) | (a == y)
    y = b if np.result_type(b).kind == "f" else b.astype(np.float64)
    return (np.abs(a - y) <= atol + rtol * np.abs(y)) & np.isfinite(y) | (a == y)


def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08) -> Any:
    """Return whether all elements are nearly equal."""
    return bool(np.all(isclose(a, b, rtol, atol)))


def array_equal(a1: Any, a2: Any) -> Any:
    """Return whether two arrays are of one shape, with equal elements."""
    if a1.ndim != a2.ndim:
        return False
    assert a1.ndim < 3
    if len(a1) != len(a2) or a1.shape[a1.ndim - 1] != a2.shape[a2.ndim - 1]:
        return False
    return bool((a1 == a2).all())


def rounded(a: Any, decimals: Any = 0) -> Any:
    """Return floats rounded to a number of decimals."""
    assert np.result_type(a).kind == "f"
    assert 0 <= decimals <= 8
    if decimals == 0:
        return np.rint(a)
    factor = 10.0 ** decimals
    return np.rint(a * factor) / factor


def gradient(f: Any, dx: Any = 1.0) -> Any:
    """Return the differences of the neighbours of each element of a vector."""
    assert f.ndim == 1
    assert np.ndim(dx) == 0
    assert f.dtype.itemsize == 8
    n = len(f)
    assert n > 1
    values = f.astype(np.float64)
    out = np.empty(n)
    out[1:-1] = (values[2:] - values[:-2]) / (2.0 * dx)
    out[0] = (values[1] - values[0]) / dx
    out[n - 1] = (values[n - 1] - values[n - 2]) / dx
    return out


def tile(a: Any, reps: Any) -> Any:
    """Return a vector repeated, along one axis or two."""
    assert a.ndim == 1
    n = len(a)
    if np.ndim(reps) == 0:
        line = np.empty(n * reps, a.dtype)
        for k in range(reps):
            line[k * n:(k + 1) * n] = a
        return line
    assert len(reps) == 2
    table = np.empty((reps[0], n * reps[1]), a.dtype)
    for k in range(reps[1]):
        table[:, k * n:(k + 1) * n] = a
    return table


def meshgrid(x: Any, y: Any, indexing: Any = "xy") -> Any:
    """Return the coordinates of the points of a grid."""
    assert x.ndim == 1
    assert y.ndim == 1
    if indexing == "ij":
        first = np.empty((len(x), len(y)), x.dtype)
        second = np.empty((len(x), len(y)), y.dtype)
        first[:] = x[:, None]
        second[:] = y
    else:
        assert indexing == "xy"
        first = np.empty((len(y), len(x)), x.dtype)
        second = np.empty((len(y), len(x)), y.dtype)
        first[:] = x
        second[:] = y[:, None]
    return first, second


def append(arr: Any, values: Any) -> Any:
    """Return the elements of two arrays, or of an array and a number, as one vector."""
    if np.ndim(values) == 0:
        return np.concatenate((arr.ravel(), np.array([values])))
    return np.concatenate((arr.ravel(), values.ravel()))


def insert(arr: Any, obj: Any, values: Any) -> Any:
    """Return a vector with a number before the element `obj`."""
    assert arr.ndim == 1
    assert np.ndim(obj) == 0
    assert np.ndim(values) == 0
    n = len(arr)
    k = obj + n if obj < 0 else obj
    assert 0 <= k <= n
    made = np.empty(n + 1, arr.dtype)
    made[:k] = arr[:k]
    made[k] = values
    made[k + 1:] = arr[k:]
    return made


def delete(arr: Any, obj: Any) -> Any:
    """Return a vector without the element `obj`."""
    assert arr.ndim == 1
    assert np.ndim(obj) == 0
    n = len(arr)
    k = obj + n if obj < 0 else obj
    assert 0 <= k < n
    made = np.empty(n - 1, arr.dtype)
    made[:k] = arr[:k]
    made[k:] = arr[k + 1:]
    return made


def slid(x: Any, k: Any, left: Any, right: Any) -> Any:
    """Return the products of `k` with the parts of `x` that it is slid over, as `np.correlate` adds them.

    `left` and `right` are the numbers of positions where it is not all over `x`.
    """
    n = len(x)
    size = len(k)
    whole = n - size + 1
    out = np.empty(left + whole + right)
    for i in range(left):
        m = size - left + i
        out[i] = x[:m] @ k[left - i:left - i + m]
    if size <= SMALL_KERNEL:
        for i in range(whole):
            total = x[i] * k[0]
            for j in range(1, size):
                total += x[i + j] * k[j]
            out[left + i] = total
    else:
        for i in range(whole):
            out[left + i] = x[i:i + size] @ k
    for i in range(right):
        m = size - 1 - i
        out[left + whole + i] = x[whole + i:whole + i + m] @ k[:m]
    return out


def correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    """Return the correlation of a vector with one that is not longer."""
    assert a.ndim == 1
    assert v.ndim == 1
    assert a.dtype.kind == "f"
    assert v.dtype.kind == "f"
    assert a.dtype.itemsize == 8
    assert v.dtype.itemsize == 8
    size = len(v)
    assert 0 < size <= len(a)
    if mode == "valid":
        return slid(a.copy(), v.copy(), 0, 0)
    if mode == "same":
        return slid(a.copy(), v.copy(), size // 2, size - 1 - size // 2)
    assert mode == "full"
    return slid(a.copy(), v.copy(), size - 1, size - 1)


def convolve(a: Any, v: Any, mode: Any = "full") -> Any:
    """Return the convolution of two vectors."""
    if len(v) > len(a):
        return correlate(v, a[::-1], mode)
    return correlate(a, v[::-1], mode)


def pinv(a: Any) -> Any:
    """Return the pseudo-inverse of a matrix."""
    u, s, vt = np.linalg.svd(a, full_matrices=False)
    limit = 1e-15 * np.max(s)
    for k in range(len(s)):
        s[k] = 1 / s[k] if s[k] > limit else 0.0
    return vt.T @ (u * s).T


def angle(z: Any) -> Any:
    """Return the angles of complex numbers."""
    return np.arctan2(z.imag, z.real)


def take(a: Any, indices: Any) -> Any:
    """Return elements of a vector."""
    assert a.ndim == 1
    if np.ndim(indices) == 0:
        return a[indices]
    return a[np.asarray(indices)]


def fliplr(m: Any) -> Any:
    """Return a view with the order of columns reversed."""
    return m[:, ::-1]


def flipud(m: Any) -> Any:
    """Return a view with the order of rows reversed."""
    return m[::-1]


def flip(m: Any, axis: Any = None) -> Any:
    """Return a view with the order along an axis, or all, reversed."""
    if axis is None:
        if m.ndim == 1:
            return m[::-1]
        assert m.ndim == 2
        return m[::-1, ::-1]
    if axis == 0 or axis == -m.ndim:
        return m[::-1]
    assert axis == 1 or axis == -1
    if m.ndim == 1:
        return m[::-1]
    assert m.ndim == 2
    return m[:, ::-1]


def full_like(a: Any, fill_value: Any) -> Any:
    """Return an array like another, filled with a number."""
    made = np.empty_like(a)
    made[:] = fill_value
    return made


def matrix_power(a: Any, n: Any) -> Any:
    """Return the second or third power of a matrix."""
    if n == 2:
        return a @ a
    assert n == 3
    return (a @ a) @ a


def function_for(function: Any, args: Sequence[Abstract]) -> Any:
    """Return the Python function that stands for one of NumPy, or None."""
    if function is round and len(args) == 2 and isinstance(args[0], Num) and args[0].kinds == {"f8"}:
        return rounded
    return FUNCTIONS.get(function) if type(function).__hash__ is not None else None


def method_for(value: Abstract, name: str, args: Sequence[Abstract]) -> Any:
    """Return the Python function that stands for a method of arrays with arguments, or None."""
    return METHODS.get(name) if args and isinstance(value, (Arr, Elementwise)) else None


METHODS: dict[str, Any] = {"take": take, "round": rounded}
#: The functions by those of NumPy that they stand for.
FUNCTIONS: dict[Any, Any] = {
    np.cross: cross, np.median: median, np.quantile: quantile,
    np.percentile: percentile, np.unique: unique,
    np.interp: interp, np.digitize: digitize, np.trapezoid: trapezoid, np.polyval: polyval,
    np.average: average, np.nansum: nansum, np.nanmean: nanmean, np.ptp: ptp, np.isclose: isclose,
    np.allclose: allclose, np.array_equal: array_equal, np.round: rounded, np.around: rounded,
    np.gradient: gradient, np.tile: tile, np.meshgrid: meshgrid, np.append: append, np.insert: insert,
    np.delete: delete, np.angle: angle, np.take: take, np.fliplr: fliplr, np.flipud: flipud, np.flip: flip,
    np.correlate: correlate, np.convolve: convolve, np.linalg.pinv: pinv,
    np.full_like: full_like, np.linalg.matrix_power: matrix_power,
}
