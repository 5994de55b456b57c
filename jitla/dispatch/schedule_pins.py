"""Pinned schedules: tiles, knobs and loop transformations that users fix for a kernel by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jitla import packages
from jitla.config import current
from jitla.dispatch.control import (
    state_of,
    wait_for_programs,
)
from jitla.dispatch.function_state import FunctionState
from jitla.engine import ENGINE
from jitla.errors import ScheduleError

if TYPE_CHECKING:
    from jitla.fusion import Knob, Values
    from jitla.recompile import TunableKernel

__all__ = ["Scheduled", "Schedules", "schedule"]


class Scheduled(NamedTuple):
    """A kernel ("K1") of a program: its knobs with their choices, the lines of its loops, what is pinned.

    Without knobs and loops nothing can be pinned. `usual` is what is chosen for the knobs otherwise.
    """

    program: int
    kernel: str
    knobs: tuple[Knob, ...]
    usual: Values
    loops: str
    pinned: Values


class Schedules(tuple[Scheduled, ...]):
    """What may be pinned for every kernel, and what is; ``str()`` is a list of it."""

    def __str__(self) -> str:
        return "".join(f"{line}\n" for s in self for line in _lines(s)) if self else "no kernel ran\n"

    __repr__ = __str__


def _lines(s: Scheduled) -> Iterator[str]:
    pinned = ", ".join(f"{k}={'; '.join(str(v).splitlines())}" for k, v in s.pinned.items())
    yield f"program {s.program}, {s.kernel}   {f'pinned: {pinned}' if pinned else 'as usual'}"
    for knob in s.knobs:
        some = ", ".join(map(str, knob.choices))
        yield f"   {knob.name}={s.usual[knob.name]}   # one of {some}"
    if s.loops:
        yield f"   loops={'; '.join(s.loops.splitlines())}"
    if not s.knobs and not s.loops:
        yield "   nothing to choose"


class _Kernel(NamedTuple):
    """A kernel as it was bound last."""

    program: int
    name: str
    kernel: Any
    choice: TunableKernel


def schedule(
    function: Any, /, *, kernel: str = "", program: int = 1, tile: int | Sequence[int] | None = None,
    loops: str | Sequence[str] | None = None, usual: bool = False, **knobs: int | str,
) -> Schedules:
    """Pin how a kernel of a function is cut up and run.

    Later calls of the function run it like that, with the same results to the bit. What would change a bit,
    or does not fit the kernel, is refused. A pin that is not possible for the sizes of a later call is left
    out there, and `explain` says so. Calls before have to show which kernels there are.

    Parameters
    ----------
    function : callable
        A decorated function that was called.
    kernel : str
        The name of the kernel, such as "K1", as `explain` shows it; may be left out if there is one only.
    program : int, optional
        The number of its program.
    tile : int or tuple of int, optional
        Sizes of tiles along the last axes of a kernel of cells. Tiles are shared out among threads; what one
        stage of a stencil passes on to another is computed tile by tile.
    loops : str or sequence of str, optional
        Primitives by which the loops of a kernel of cells are changed, one to a line, as
        ``explain(level="loops")`` shows them: "split(i, 64)".
    usual : bool, optional
        Take away what is pinned, of all kernels if none is named.
    **knobs
        Values of the knobs that the kernel has: `height`, `units`, `stores`, `unroll`. Of them `order` and
        `place`, how tiles are walked and where what stages pass on is computed, go with a tile.

    Returns
    -------
    Schedules
        A tuple with a record for each kernel; printed, it is a list of what may be pinned and what is.

    Raises
    ------
    ScheduleError
        If there is no such kernel, or it cannot be run like that; `law` names the reason.
    TraceError
        If `function` is not decorated.

    Examples
    --------
    >>> import numpy as np
    >>> @jitla.jit(compile="sync")
    ... def f(x):
    ...     return np.sqrt(x * x + 1.0)
    >>> y = f(np.ones((300, 200)))
    >>> jitla.schedule(f, kernel="K1", tile=(32, 64))[0].pinned
    {'tile': '32x64'}
    """
    state = state_of(function)
    wait_for_programs(state)
    found = tuple(_kernels(state)) or state.pinned_kernels
    store, pins = packages.tuner.records, dict(_pins(state))
    asked = dict(knobs)
    if tile is not None or loops is not None or asked:
        chosen = _find_kernel(found, kernel, program)
        made = _requested_knobs(tile, loops, asked)
        relaxed = current().with_changes(state.changes).numerics == "relaxed"
        chosen.choice.make(store.checked_pins(made, chosen.choice, relaxed))
        pins[chosen.choice.key.kernel] = made
    elif usual:
        gone = {_find_kernel(found, kernel, program).choice.key.kernel} if kernel else set(pins)
        pins = {name: values for name, values in pins.items() if name not in gone}
    if pins != _pins(state):
        _apply_pins(state, store.pins_to_text(pins), found)
    return Schedules(_schedule_of(k, pins) for k in found)


def _kernels(state: FunctionState) -> Iterator[_Kernel]:
    """Yield the kernels of the programs that have run, numbered as explanations do."""
    programs = dict.fromkeys(p for site in state.all_sites() for p in site.runs() if hasattr(p, "plan"))
    for number, program in enumerate(programs, 1):
        found = sorted(program.choices(), key=lambda each: each[0])
        yield from (_Kernel(number, f"K{at}", kernel, choice) for at, kernel, choice in found)


def _pins(state: FunctionState) -> Mapping[str, Values]:
    return packages.tuner.records.parse_pins(state.changes.get("schedules", ""))


def _find_kernel(found: Sequence[_Kernel], kernel: str, program: int) -> _Kernel:
    here = [k for k in found if k.program == program and (k.name == kernel or not kernel)]
    if len(here) != 1:
        there = ", ".join(f"{k.name} of program {k.program}" for k in found)
        asked = f"{kernel or 'one kernel'} of program {program}"
        raise ScheduleError("kernel", f"there is no {asked}; there are {there or 'none: call the function'}")
    return here[0]


def _requested_knobs(
    tile: int | Sequence[int] | None, loops: str | Sequence[str] | None, knobs: dict[str, int | str],
) -> dict[str, int | str]:
    """Return the knob values that the arguments of `schedule` request."""
    recompile = packages.recompile
    nested = {k: v for k, v in knobs.items() if k in (recompile.ORDER, recompile.PLACE)}
    apart = bool(knobs) if tile is None else len(nested) < len(knobs)
    if (tile is not None) + (loops is not None) + apart > 1:
        raise ScheduleError("knob", "knobs, a tile and loops exclude each other: each says it all")
    if tile is not None:
        sizes = (tile,) if isinstance(tile, int) else tuple(map(int, tile))
        if not sizes or min(sizes) < 1:
            raise ScheduleError("factor", f"a tile has sizes such as (16, 256), not {tile!r}")
        return {recompile.TILE: "x".join(map(str, sizes)), **nested}
    if loops is not None:
        lines = loops.splitlines() if isinstance(loops, str) else loops
        return {recompile.LOOPS: "\n".join(line.strip() for line in lines if line.strip())}
    return knobs


def _apply_pins(state: FunctionState, pins: str, found: tuple[_Kernel, ...]) -> None:
    """Recompile the function with these pins from its next call on."""
    before = current().with_changes(state.changes)
    state.pinned_kernels = found
    state.changes = {**state.changes, "schedules": pins}
    state.clear()
    state.sites = {}
    if before.schedules:
        ENGINE.drop_compiler(before)


def _schedule_of(k: _Kernel, pins: Mapping[str, Values]) -> Scheduled:
    space, recompile = k.choice.space(), packages.recompile
    knobs = tuple(knob for knob in space.knobs if len(knob.choices) > 1)
    return Scheduled(k.program, k.name, knobs, space.values(space.default),
                     recompile.default_loops(k.kernel, k.choice.shapes), pins.get(k.choice.key.kernel, {}))
