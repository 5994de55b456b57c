"""What the kernels of a program were compiled from and to, for those who want to read it.

Knows: where loops keep their executables. Must not know: LLVM, processors.
Receives loops of a program; returns texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jitla.recompile.asked import RowTools
from jitla.recompile.loops import BlockLoop


class Code(NamedTuple):
    """One piece of machine code of kernel number `at`: for which `form` of arrays, its IR, its assembly."""

    at: int
    form: str
    text: str
    assembly: str


def codes(loops: Sequence[Any], tools: RowTools) -> Iterator[Code]:
    """Yield the code of every loop, in their order."""
    for at, loop in enumerate(loops):
        for form, text in _texts(loop):
            yield Code(at, form, text, tools.assembly(text))


def _texts(loop: Any) -> Iterator[tuple[str, str]]:
    if isinstance(loop, BlockLoop):
        texts = dict.fromkeys(getattr(made, "text", "") for made in loop.kept)
        yield from (("part of a pass over rows", text) for text in texts if text)
        return
    for (form, schedule), (executable, _) in loop.variants.items():
        stream = ", around the caches" if schedule.nontemporal else ""
        short = ", several short rows to a vector" if schedule.crosswise else ""
        yield f"form {form.mode} {form.ndim}-d {form.inner}{stream}{short}", executable.text
