"""Where the values between the stages of a row kernel lie in a thread's memory, one in place of another.

Knows: which stage makes a value, which is the last to read it. Must not know: layouts, machine code.
Receives stages in the order in which they are run, and bytes; returns places.

The fewer bytes a block of rows takes, the more of it is still in the cache when the next stage comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jitla.fusion import Kernel, Product
from jitla.hops import Hop

__all__ = ["rooms"]

Stage = Kernel | Product


def rooms(
    stages: Sequence[Stage], sizes: Mapping[Hop, int], views: Sequence[Hop]
) -> tuple[dict[Hop, int], int]:
    """Return where each value of `sizes` bytes lies, and the bytes that all take.

    A value lies where one was that nothing reads any more, if it fits there; cells lie where what they are
    computed from was, if that is walked as they are and nothing else is made of it.
    """
    last = {h: i for i, stage in enumerate(stages) for h in _read(stage, views) if h in sizes}
    found: dict[Hop, int] = {}
    free: list[tuple[int, int]] = []  # places and their bytes
    end = 0
    for i, stage in enumerate(stages):
        given = _given(stage, sizes, views) if isinstance(stage, Kernel) else []
        over = [h for h in given if last[h] == i]
        for hop in stage.outputs:
            if hop not in sizes:
                continue
            like = hop.meta.shape, hop.meta.dtype
            same = next((h for h in over if (h.meta.shape, h.meta.dtype) == like), None)
            if same is not None:
                over.remove(same)
                found[hop] = found[same]
                del last[same]  # its place is taken
                continue
            fits = [p for p in free if p[1] >= sizes[hop]]
            if fits:
                at, room = min(fits, key=lambda p: p[1])
                free.remove((at, room))
                if room > sizes[hop]:
                    free.append((at + sizes[hop], room - sizes[hop]))
            else:
                at, end = end, end + sizes[hop]
            found[hop] = at
        free += [(found[h], sizes[h]) for h, at in last.items() if at == i]
        free += [(found[h], sizes[h]) for h in stage.outputs if h in sizes and h not in last]
    return found, end


def _base(hop: Hop, views: Sequence[Hop]) -> Hop:
    while hop in views:
        hop = hop.inputs[0]
    return hop


def _read(stage: Stage, views: Sequence[Hop]) -> list[Hop]:
    """Return the values whose memory a stage reads."""
    return [_base(h, views) for h in stage.inputs]


def _given(stage: Kernel, sizes: Mapping[Hop, int], views: Sequence[Hop]) -> list[Hop]:
    """Return the values that a stage reads just where its cells are, and nowhere else."""
    read = _read(stage, views) if stage.template == "Cell" else []
    return [h for h in stage.inputs if h in sizes and read.count(h) == 1 and h.meta.shape == stage.shape]
