"""Kernels of programs run by random schedules: knobs, and lines of primitives."""

from __future__ import annotations

import random
from collections import Counter

from jitla.engine import ENGINE
from jitla.errors import ScheduleError
from jitla.fusion import RowKernel
from jitla.loopir import apply_schedule
from jitla.recompile import LOOPS, UNTUNED, KernelKey, Launchable, TunableKernel
from jitla.recompile.loop_schedules import nest_of
from tests.loopir.agree import line_for

LINES, TRIES = 4, 24
taken: Counter[str] = Counter()  # how kernels were run


class Pinner:
    """Chooses at random for every kernel, the same for the same one."""

    def __init__(self) -> None:
        self.chosen: dict[KernelKey, dict] = {}
        self.notes: dict[KernelKey, str] = {}

    def block(self, choice: TunableKernel) -> Launchable:
        """Return what runs a kernel by a random schedule; as usual if that is refused."""
        dice = random.Random(repr(choice.key))
        space = choice.space().exact()
        pins = [{LOOPS: lines}] if (lines := _lines(choice, dice)) else []
        if len(space.points) > 1:
            pins.append(space.values(space.points[dice.randrange(len(space.points))]))
        dice.shuffle(pins)
        for pin in pins[:1]:
            try:
                made = choice.make(pin)
            except ScheduleError as error:
                taken[error.law] += 1
                continue
            taken["loops" if LOOPS in pin else "knobs"] += 1
            return made
        return choice.make(UNTUNED)


def _lines(choice: TunableKernel, dice: random.Random) -> str:
    """Draw lines that change the loops of a kernel; nothing if it has none."""
    kernel = choice.make.args[0].kernel  # type: ignore[attr-defined]
    nest = None if isinstance(kernel, RowKernel) else nest_of(kernel, "K", choice.shapes.__getitem__)
    lines: list[str] = []
    for _ in range(TRIES if nest is not None else 0):
        line = line_for(dice, nest)
        try:
            nest = apply_schedule(nest, line)
        except ScheduleError:
            continue
        lines.append(line)
        if len(lines) == LINES:
            break
    return "\n".join(lines)


def pin_all() -> None:
    """Run all kernels of this process by random schedules."""
    ENGINE.use_tuning_session(Pinner())
