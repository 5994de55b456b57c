"""Random statements over a matrix and its rows: what is computed row by row, products, norms."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draft import Draft
from tests.fuzz.expressions import number

# {X}: a matrix, {v}: a vector as long as its rows, {w}: one as long as its columns, {o}: a new array.
# Products of one matrix with vectors, and what lies between: one pass over its rows.
PASSES = (
    "{o} = {X}.T @ ({w} * ({X} @ {v}))",
    "{o} = {X}.T @ (1 / (1 + np.exp(-({X} @ {v}))) - {w})",
    "{o} = {X} @ {v}\n{p} = {X}.T @ {o}",
    "{o} = {X} @ {v} - {w}\n{p} = {X}.T @ {o} / {X}.shape[0]\n{s} = ({o} * {o}).sum()",
    "{o} = np.maximum(0, 1 - {w} * ({X} @ {v}))\n{s} = {o}.sum()\n{p} = {X}.T @ ({o} * {w})",
    "{o} = {v} * {n}\nfor i in range(3):\n    {p} = {X} @ {o} - {w}\n    {o} = {o} - 0.01 * ({X}.T @ {p})",
    "{o} = ({X} * {w}[:, None]).T @ ({X} @ {v})",
    "{o} = {X}[::2].T @ ({X}[::2] @ {v})",
    "{X} -= {X}.mean(axis=0)\n{o} = {X}.T @ ({X} @ {v})",
    "{o} = np.tanh({X} @ {v})\n{p} = {X}.T @ ({o} * (1 - {o} * {o}))",
    "{o} = {X} @ {v}\n{p} = np.maximum({o}, 0) * {w}\n{s} = {p}.sum()\n{o} = ({p} @ {X}) + {n} * {v}",
    "{o} = {X} @ {v}\n{p} = {X} @ ({v} * 2)\n{s} = ({o} - {p}).max()",
    "{o} = {X}.T @ np.where({X} @ {v} > {n}, {w}, 0)",
    "{o} = {X}.T @ (({X} @ {v}) ** 2 - {w} * {w})\n{s} = np.abs({o}).max()",
    "{o} = ({X} @ {v})[:, None] * {X}\n{p} = {o}.sum(axis=0)",
)
ROWS = (
    "{o} = np.exp({X} - {X}.max(axis=1, keepdims=True))\n{o} = {o} / {o}.sum(axis=1, keepdims=True)",
    "{o} = np.exp({X})\n{o} /= {o}.sum(axis=1)[:, None]",
    "{o} = {X} - {X}.mean(0)",
    "{o} = ({X} - {X}.mean(axis=0)) / ({X}.std(axis=0) + 1)",
    "{o} = {X} - {X}.mean(axis=1, keepdims=True)\n{p} = ({o} * {o}).sum(axis=1)",
    "{o} = ({X} @ {v}) * {w}\n{s} = {o}.sum()",
    "{o} = {X}.sum(axis=1) * {w}\n{p} = {X}.sum(axis=0) * {v}",
    "{o} = {X} * {v}\n{p} = {o}.sum(axis=1) - {w}",
    "{o} = {X} * {w}[:, None]\n{p} = {o}.sum(axis=0) + {v}",
    "{o} = {X}.argmax(axis=1)\n{p} = {X}.max(axis=1) - {X}.min(axis=1)",
    "{o} = np.log(np.exp({X} - {X}.max(axis=1)[:, None]).sum(axis=1)) + {X}.max(axis=1)",
    "{o} = ({X} > {X}.mean(axis=0)).sum(axis=1)",
    "{o} = {X}[1:] @ {v} - {X}[:-1] @ {v}",
    "{X} *= {v}\n{o} = {X} @ {v}",
    "{X} /= np.abs({X}).sum(axis=1, keepdims=True) + 1",
    "{o} = {X}.T @ {X}\n{p} = {o} @ {v}",
    "{o} = ({X} @ {v}).argmax()\n{p} = {X}[{o}] * 2",
    "{o} = {w} @ {X}\n{p} = ({w} * {w}) @ ({X} * {v})",
    "{o} = np.where({X} > 0, {X}, {n} * {X}) @ {v}",
    "{o} = {X} @ np.stack([{v}, {v} * 2, {v} - 1]).T\n{p} = {o}.max(axis=1)",
    "{o} = np.abs({X}).max(axis=1)\n{p} = {X} / ({o}[:, None] + 1)",
    "{o} = np.var({X}, axis=1) + {w}\n{p} = np.std({X}, axis=0, ddof=1)",
    "{o} = (({X}[:, None, :] - {X}[None, :3, :]) ** 2).sum(axis=2).argmin(axis=1)",
)
# The place of the least or greatest element of each row, of what is computed with the row.
PLACES = (
    "{o} = (({X} * {X}).sum(axis=1)[:, None] - 2 * ({X} @ {X}[:{k4}].T)).argmin(axis=1)",
    "{o} = ({X} @ {X}[:{k4}].T).argmax(axis=1)\n{p} = np.bincount({o}, minlength=5) * {n}",
    "{o} = np.abs({X} - {v}).argmin(axis=1)\n{p} = {X}[np.arange({X}.shape[0]), {o}]",
    "{o} = ({X} * {w}[:, None]).argmax(axis=-1)",
    "{o} = np.argmin({X} - {X}.mean(axis=1, keepdims=True), axis=1, keepdims=True)",
    "{o} = np.argmax(np.where({X} > {n}, {X}, -np.inf), axis=1)\n{p} = {X}.min(axis=1)",
    "{o} = np.floor({X}).argmin(axis=1)\n{p} = np.floor({X}).argmax(axis=1) - {o}",
    "{o} = ({X} > {n}).argmax(axis=1)\n{p} = ({X}.astype('i4') % 3).argmin(axis=1)",
    "{o} = np.exp({X} - {X}.max(axis=1)[:, None])\n{p} = ({o} / {o}.sum(axis=1)[:, None]).argmax(axis=1)",
    "{o} = np.sqrt({X} - {n}).argmax(axis=1)\n{p} = ({X} / {v}).argmin(axis=1)",
    "{o} = {X}[:, ::-1].argmin(axis=1)\n{p} = {X}[::-2].argmax(axis=1)",
    "{o} = (({X} - {v}) ** 2).argmin(axis=1)\n{p} = (({X} - {v}) ** 2).min(axis=1)",
    "{o} = ({X}.T * {v}[:, None]).argmin(axis=0)\n{p} = ({X} + 1).argmax()",
)
# Products that weigh rows by what is computed of products of rows.
WEIGHED = (
    "{o} = {Y} @ {Y}.T * {n}\n{o} = np.exp({o} - {o}.max(axis=1, keepdims=True))\n"
    "{p} = ({o} / {o}.sum(axis=1, keepdims=True)) @ {Y}",
    "{o} = np.exp({Y} @ {Y}[1:].T / 8)\n{p} = ({o} @ {Y}[1:]) / {o}.sum(axis=1)[:, None]",
    "{o} = np.where(np.arange({Y}.shape[0])[:, None] >= np.arange({Y}.shape[0]), {Y} @ {Y}.T, -np.inf)\n"
    "{o} = np.exp({o} - {o}.max(axis=-1, keepdims=True))\n{o} /= {o}.sum(axis=-1, keepdims=True)\n"
    "{p} = {o} @ {Y}",
    "{p} = np.maximum({Y} @ {Y}[:7].T, 0) @ {Y}[:7]",
    "{p} = special.expit({Y} @ ({Y} * {v}).T) @ {w0}",
    "{o} = np.exp(-(({Y} * {Y}).sum(axis=1)[:, None] + ({Y} * {Y}).sum(axis=1) - 2 * ({Y} @ {Y}.T)))\n"
    "{p} = ({o} @ {Y}) / {o}.sum(axis=1, keepdims=True)",
    "{o} = {Y} @ {Y}.T\n{p} = {o}.argmax(axis=1)",
    "{o} = np.tanh({Y} @ {Y}.T + {w0}[:, None])\n{p} = ({o} * {o}).sum(axis=1)\n{s} = ({o} @ {Y}).sum()",
    "{o} = {Y} @ {Y}.T\n{o} = {o} - {o}.max(axis=1, keepdims=True)\n"
    "{p} = np.log(np.exp({o}).sum(axis=1)) + ({o} @ {Y}).mean(axis=1)",
)
PRODUCTS = (
    "{o} = np.einsum('ij,j->i', {X}, {v})",
    "{o} = np.einsum('ij,ij->i', {X}, {X} * 2)",
    "{o} = np.einsum('ij->j', {X}) * {v}",
    "{o} = np.einsum('i,ij->j', {w}, {X})",
    "{o} = np.einsum('ij,ik->jk', {X}, {X})",
    "{o} = np.einsum('i,i->', {w}, {w})",
    "{o} = np.einsum('ij->ji', {X} + 1)\n{o} *= 2",
    "{o} = np.einsum('iab,abk->ik', np.lib.stride_tricks.sliding_window_view({X}, 2, axis=0)"
    ", np.ones({X}.shape[1:] + (2, 3)) / 7)",
    "{o} = np.lib.stride_tricks.sliding_window_view({X}, 2, axis=0)\n{p} = {o} * {n}\n{s} = {o}.sum()",
    "{o} = np.lib.stride_tricks.sliding_window_view({X}, 2, axis=0).max(axis=2)\n{X} = {X} * 1\n"
    "{p} = np.lib.stride_tricks.sliding_window_view({X}, 2, axis=0)\n{X} += 1\n{o} = {o} + {p}[..., 0]",
    "{o} = np.linalg.norm({X}, axis=1)",
    "{o} = {X} / (np.linalg.norm({X}, axis=1, keepdims=True) + 1)",
    "{o} = np.linalg.norm({X} - {v}, axis=0)",
    "{o} = np.linalg.norm({X}, ord={k}, axis={d})",
    "{o} = np.linalg.norm({X} * {n}) + {w}",
    "{o} = np.inner({X}, {v}) + np.vdot({w}, {w})",
    "{o} = np.tensordot({X}, {v}, axes=1) - {w}",
    "{o} = np.outer({w}, {v}) + {X}",
    "{o} = np.cumsum({X}, axis={d})[-1]",
    "{o} = np.sort({X}, axis={d}) - {X}",
    "{o} = np.dot({X}, {v}) + np.multiply({w}, {n})",
    "{o} = np.cov({X}[:, :3].T)",
    "{o} = np.trace({X}.T @ {X}) + {v}",
    "{o} = np.average({X}, axis=0, weights=np.abs({w}) + 1)",
    "{o} = np.median({X}, axis={d})",
    "{o} = np.mean({X}, axis={d}, keepdims=True) * {X}",
)

# {S}: a stack of square matrices, of {k} rows, made of X; {T}: the same elsewhere, {q}: one of them.
STACKS = (
    "{o} = {S} @ {T}",
    "{o} = {S} @ {T} + {n}\n{s} = {o}.sum()",
    "{o} = {S}.transpose(0, 2, 1) @ {T}\n{p} = {o} * {S} - {n}",
    "{o} = {S} @ {T}.transpose(0, 2, 1)",
    "{o} = np.maximum({S} @ ({T} * 2), 0)",
    "{o} = ({S} @ {T}[:, :, 0][:, :, None])[:, :, 0]",
    "{o} = {q} @ {S}\n{p} = {S} @ {q}",
    "{o} = {S} @ {q}[0] + {q}[0] @ {T}",
    "{o} = np.einsum('nij,njk->nik', {S}, {T})",
    "{o} = np.einsum('nij,kj->nik', {S}, {q})",
    "{o} = np.einsum('nij,nj->ni', {S}, {T}[:, 0])",
    "{o} = {S} @ {S} @ {T}\n{p} = np.exp(-np.abs({o})).sum(axis=(1, 2))",
    "{o} = {S}[::-1] @ {T}[::-1, ::-1]",
    "{o} = {S}\n{o} @= {T}\n{p} = {o} + {S}",
    "{o} = {S} * 1\n{o}[...] = {o} @ {T}",
    "{o} = ({S} * 7).astype({i!r}) @ ({T} * 5).astype({i!r})",
    "{o} = {S}[:, None] @ {T}[None, :5]",
)


def stacks(draft: Draft) -> str | None:
    """Draw a statement over stacks of small matrices."""
    found = draft.arrays(lambda a: a.size >= 8 and a.dtype.kind in "fc" and a.dtype.itemsize > 2)
    if not found:
        return None
    k = draft.pick((1, 2, 3, 3, 4, 4, 5, 8))
    large = [x for x in found if np.size(draft.value(x)) >= 64 * k * k]
    x = draft.pick(large or found)
    count = np.size(eval(x, draft.names)) // (k * k)
    if not count:
        return None
    stack = f"np.ravel({x})[:{count * k * k}].reshape({count}, {k}, {k})"
    form = draft.pick(STACKS) + "\nlog.append({o})" * draft.chance(0.7)
    n = number(draft)
    return form.format(
        S=stack, T=draft.pick((stack, stack + ".copy()", f"({stack} + 1)", f"{stack}[::-1]")),
        q=f"{stack}[{draft.pick((0, -1))}]", k=k, n="0.5" if "j" in n else n,
        i=draft.pick(("i8", "i4", "i2")), o=draft.new_name(), p=draft.new_name(), s=draft.new_name("s"))


def region(draft: Draft) -> str | None:
    """Draw a statement over a matrix and its rows."""
    found = draft.arrays(lambda a: a.ndim == 2 and a.size > 0 and a.dtype in ("f4", "f8"))
    if not found:
        return None
    large = [x for x in found if np.size(draft.value(x)) >= 8000]
    x = draft.pick(large or found)
    height, width = eval(x, draft.names).shape
    v = draft.pick(_vectors(draft, width) or [f"{x}[0]"])
    w = draft.pick(_vectors(draft, height) or [f"{x}[:, 0]"])
    names = {"o": draft.new_name(), "p": draft.new_name(), "s": draft.new_name("s")}
    n = number(draft)
    n = "0.5" if "j" in n else n
    kinds = {PASSES: 5 if large else 2, ROWS: 3, PLACES: 2, WEIGHED: 1.5, PRODUCTS: 2}
    form = draft.pick(draft.weighted(kinds))
    # What nobody reads is not computed.
    form += "\nlog.append({o})" * draft.chance(0.7)
    names |= {"Y": f"{x}[:160]", "w0": f"{w}[:160]", "k4": draft.pick((1, 3, 4, 7))}
    return form.format(X=x, v=v, w=w, n=n, d=draft.pick((0, 1)), k=draft.pick((1, 2, "np.inf")), **names)


def _vectors(draft: Draft, length: int) -> list[str]:
    return draft.arrays(lambda a: a.shape == (length,) and a.dtype.kind in "fib")
