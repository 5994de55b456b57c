"""Sparse matrices of SciPy in every class and state: what programs of the sparse fuzzer get."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse import _compressed

from tests.fuzz.arrays import window


class _Cleared:
    """NumPy as SciPy's compressed matrices see it, with 0 in new memory.

    Where two matrices of the older classes meet, SciPy asks whether indices fit into four bytes before it
    cuts off what it has not filled: without this, chance decides the dtype of indices.
    """

    empty = staticmethod(np.zeros)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


_compressed.np = _Cleared()

# What is unusual about the positions or the entries of a matrix.
TRAITS = ("unsorted", "duplicates", "zeros", "holes", "skewed", "readonly")


def matrix(
    kind: str, shape: tuple[int, int], dtype: str = "f8", index: str = "i4", values: str = "nice",
    density: float = 0.2, traits: str = "", seed: int = 0,
) -> Any:
    """Make a matrix of a class of SciPy; equal arguments give equal ones, in memory of their own."""
    made, given = getattr(sp, kind), traits.split()
    turned = kind.startswith("csc")
    rows, columns = _positions(shape[::-1] if turned else shape, density, traits, seed)
    data = window((len(rows),), dtype, "C", values, seed)
    if "zeros" in given:
        some = data[seed % 3 :: 4]
        some[:] = np.copysign(0, some) if data.dtype.kind == "f" else 0  # of either sign
    if kind.startswith("coo"):
        found = made((data, (rows.astype(index), columns.astype(index))), shape=shape)
        if "zeros" not in given and "duplicates" not in given and "unsorted" not in given:
            found.sum_duplicates()
    else:
        starts = np.searchsorted(rows, np.arange((shape[1] if turned else shape[0]) + 1))
        plain = made if kind[:3] in ("csr", "csc") else sp.csr_array
        found = plain((data, columns, starts), shape=shape)
        found.indices, found.indptr = found.indices.astype(index), found.indptr.astype(index)
        found = found if plain is made else made(found)
    if "readonly" in given and isinstance(getattr(found, "data", None), np.ndarray):
        found.data.flags.writeable = False
    return found


def alike(other: Any, values: str = "nice", seed: int = 0) -> Any:
    """Make a matrix whose index arrays are those of another, in the same memory."""
    found = other.copy()
    if isinstance(found, (sp.csr_array, sp.csr_matrix, sp.csc_array, sp.csc_matrix)):
        found.indices, found.indptr = other.indices, other.indptr
        found.data = window(other.data.shape, other.dtype.str[1:], "C", values, seed)
    return found


@lru_cache(256)
def _positions(
    shape: tuple[int, int], density: float, traits: str, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw where entries are: row after row, in order unless something unusual is asked for."""
    rng, given = np.random.default_rng([seed, *shape]), traits.split()
    chances = np.full((shape[0], 1), density)
    if "skewed" in given:
        chances = np.minimum(3 * density / (1 + rng.permutation(shape[0])[:, None] % 7), 1)
    taken = rng.random(shape) < chances
    if "holes" in given:
        taken &= (rng.random((shape[0], 1)) < 0.6) & (rng.random((1, shape[1])) < 0.8)
    rows, columns = np.nonzero(taken)
    if "duplicates" in given and len(rows):
        more = rng.integers(0, len(rows), 1 + len(rows) // 4)
        rows, columns = np.concatenate((rows, rows[more])), np.concatenate((columns, columns[more]))
    order = np.lexsort((rng.random(len(rows)) if "unsorted" in given else columns, rows))
    return rows[order], columns[order]


def parts(held: Any) -> list[tuple[str, Any]]:
    """Return all that can be seen of a sparse matrix, arrays as they are; of a broken one, what it says."""
    try:
        return _parts(held)
    except Exception as error:  # a program may have stored what SciPy cannot read
        return [("broken", repr(error))]


def _parts(held: Any) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = [("kind", (held.format, held.shape, str(held.dtype), held.nnz))]
    if held.format in ("lil", "dok"):
        return [*found, ("cells", held.toarray())]
    names = {"coo": (), "dia": ("offsets",)}.get(held.format, ("indices", "indptr"))
    found += [(name, getattr(held, name)) for name in ("data", *names)]
    if held.format == "coo":
        found += [(f"coords[{axis}]", each) for axis, each in enumerate(held.coords)]
    flags = {"coo": ("has_canonical_format",), "dia": ()}.get(
        held.format, ("has_canonical_format", "has_sorted_indices"))
    return [*found, *((name, bool(getattr(held, name))) for name in flags)]
