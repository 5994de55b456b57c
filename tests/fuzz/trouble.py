"""Random statements where floating-point errors are raised, called back, recorded or ignored."""

from __future__ import annotations

import re

import numpy as np

from tests.fuzz.draft import Draft
from tests.fuzz.expressions import number, place

# What may warn; {a}: an array of floats, {b}: one that broadcasts to it, {n}: a number.
RISKY = (
    "{a} / {b}", "{a} / ({a} - {a})", "np.sqrt({a})", "np.log({a} - {n})", "{a} * 1e300 * 1e300",
    "({a} + 1) / {b}", "1.0 / {a}", "{a} // {b}", "{a} % {b}", "np.sqrt({a} - 1) + {b}", "{a} + {b}",
    "np.divide({a}, {b})", "np.reciprocal({a})", "{a} - {b} * {n}", "np.exp({a} * 1e4)", "np.arcsin({a})",
    "np.where({a} != 0, {b} / {a}, 0)", "({a} / 0).sum()", "np.divide({a}, {b}, out=np.zeros({a}.shape), "
    "where={b} != 0)",
)
INEXACT = re.compile("exp|log|arc")
# {r}: what may warn; {v}: a new array, {q}: a new name.
FORMS = (
    "try:\n    with np.errstate({e}='raise'):\n        {v} = {r}\n        {w} = {v} + 1\n"
    "except FloatingPointError as e:\n    log.append(str(e))\n    {v} = {a} * 0",
    "try:\n    with np.errstate(all='raise'):\n        {a} += {r0}\nexcept FloatingPointError as e:\n"
    "    log.append(str(e))\n{v} = {a} + 1",
    "{q} = []\nwith np.errstate(all='call', call=lambda kind, flag: {q}.append((kind, flag))):\n"
    "    {v} = {r}\n    {w} = {v} * 2\nlog.append({q})",
    "with np.errstate(all='ignore'):\n    {v} = {r}\n    log.append(float(np.nansum({v})) == 0)",
    "with warnings.catch_warnings(record=True) as {q}:\n    warnings.simplefilter('always')\n"
    "    {v} = {r}\n    log.append(repr(float(np.sum({v})) > 0))\nlog.append([str(t.message) for t in {q}])",
    "with warnings.catch_warnings():\n    warnings.simplefilter('error')\n    try:\n        {v} = {r}\n"
    "    except RuntimeWarning as e:\n        log.append(str(e))\n        {v} = {a} * 0",
    "{q} = np.seterr({e}='raise')\ntry:\n    {v} = {r}\nexcept FloatingPointError:\n    {v} = {a} + 1\n"
    "finally:\n    np.seterr(**{q})",
    "{v} = {a} * 2\ntry:\n    with np.errstate({e}='raise'):\n        {v} -= 1\n        {v} /= {b}\n"
    "        {v} += 1\nexcept FloatingPointError as e:\n    log.append(str(e))\n{w} = {v} * 2",
    "with np.errstate({e}='ignore'):\n    with np.errstate({f}='raise'):\n        try:\n"
    "            {v} = {r}\n        except FloatingPointError as e:\n            {v} = {a}\n"
    "            log.append(str(e))",
    "log.append(sorted(np.geterr().items()))\n{v} = {r}",
    "for {q} in range(3):\n    try:\n        with np.errstate({e}='raise'):\n            {v} = {r} + {q}\n"
    "    except FloatingPointError:\n        {v} = {a} * {q}",
    "def {g}(t):\n    with np.errstate({e}='raise'):\n        return t * {n} + {r}\ntry:\n"
    "    {v} = {g}({a})\nexcept FloatingPointError as e:\n    log.append(str(e))\n    {v} = {a}",
    "@np.errstate({e}='raise')\ndef {g}(t):\n    return t / {b}\ntry:\n    {v} = {g}({a})\n"
    "except FloatingPointError as e:\n    log.append(str(e))\n    {v} = {a}",
)


def troubled(draft: Draft) -> str | None:
    """Draw a statement about floating-point errors."""
    found = draft.arrays(lambda a: a.dtype.kind == "f" and a.dtype.itemsize > 2 and a.size < 5000)
    if not found:
        return None
    a = draft.pick(found)
    held = draft.value(a)
    b, n = place(draft, held) or a, number(draft)
    b, n = (a if _is_complex(draft, b) else b), ("2" if _is_complex(draft, n) else n)
    risky = draft.pick([r for r in RISKY if not (draft.exact and INEXACT.search(r))])
    kinds = draft.rng.sample(("divide", "invalid", "over", "all"), 2)
    names = {letter: draft.new_name(letter) for letter in ("v", "w", "q", "g")}
    r = risky.format(a=a, b=b, n=n)
    r0 = r if draft.value(f"np.add({a}, {r}, out={a}.copy())") is not None else f"{a} / 2"
    return draft.pick(FORMS).format(a=a, b=b, n=n, r=r, r0=r0, e=kinds[0], f=kinds[1], **names)


def _is_complex(draft: Draft, text: str) -> bool:
    return np.iscomplexobj(draft.value(text))
