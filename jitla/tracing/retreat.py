"""A traced call that goes on without tracing, because that has cost more than it can give.

Knows: clocks, how often blocks were new, the locals of frames. Must not know: programs, what a block does.
Receives what was met, and frames with proxies in memory; returns whether to give up, and leaves ndarrays.
"""

from __future__ import annotations

import ctypes
import sys
from time import perf_counter, thread_time
from types import FrameType
from typing import Any

from jitla.tracing.array import LAZY
from jitla.tracing.replay import Patience

# A traced call may take so many times the seconds of a plain one, and so many seconds more.
DEARER, OVER = 1.1, 0.03
# Where that is not known, it is looked every so many seconds whether tracing takes more than NumPy does for
# the blocks, of whose time programs would save less than this part.
LOOK, LITTLE = 0.01, 0.5
# A place may meet so many new blocks in one call. If it meets more, of other sizes each time, it is looked
# whether the call takes longer than NumPy once making them took such a part of all seconds, and so many; then
# from now to now, all seconds having grown by a part.
NEW, PART, LEAST, GROWN = 8, 0.2, 0.005, 0.25
# So many times the seconds of NumPy, which are only foreseen, may this thread have worked meanwhile; it is
# looked for at least so many seconds.
VAIN, WHILE = 1.5, 0.02
_MENDED = frozenset({list, dict, set})
# Whether what is written into `f_locals` reaches the locals by itself (PEP 667).
_WRITES_THROUGH = sys.version_info >= (3, 13)


class Allowance:
    """What tracing may cost in one call: at `until` it is to be looked at."""

    __slots__ = ("traced", "until", "_begun", "_known", "_making", "_new", "_usual", "_much", "_next",
                 "_numpy")

    def __init__(self, plain: float) -> None:
        """Begin a call whose plain function takes `plain` seconds; 0: that is not known."""
        self._begun = perf_counter()
        self.traced = 0.0  # seconds until the call went on plain
        self._known = plain > 0.0
        self._making = Patience.making
        self.until = self._usual = self._begun + (DEARER * plain + OVER if plain else LOOK)
        # When it is to be looked what meeting new blocks costs, as soon as it costs much; when that was done
        # last, and the seconds that NumPy would have taken by then.
        self._much, self._next, self._numpy = False, 0.0, (0.0, 0.0)
        self._new: dict[tuple[int, ...], tuple[int, float]] = {}  # by path: how many, and seconds

    def meet(self, path: tuple[int, ...], seconds: float) -> None:
        """Take note of a new block at `path`, which took so long to make."""
        count, spent = self._new.get(path, (0, 0.0))
        self._new[path] = count + 1, spent + seconds
        if count >= NEW and spent + seconds > max(LEAST, PART * (perf_counter() - self._begun)):
            self.until, self._much = min(self.until, self._next), True

    def ends(self, site: Any) -> bool:
        """Say at `until` whether the call goes on plain; what it waited for programs does not count."""
        waited, self._making = Patience.making - self._making, Patience.making
        if waited > 0.0:
            self._begun, self._usual = self._begun + waited, self._usual + waited
            self.until, self._much, self._next = self._usual, False, 0.0
            return False
        now = perf_counter()
        over = self._much and now >= self._next and self._meets_in_vain(site, now)
        if not over and now >= self._usual:
            over = self._known or self._costs(site, now)
        if over:
            self.traced = now - self._begun
        return over

    def _meets_in_vain(self, site: Any, now: float) -> bool:
        """Say whether tracing took longer than NumPy is foreseen to, since this was asked last."""
        first, (before, numpy) = not self._next, self._numpy
        self._numpy = worked, by_numpy = thread_time(), site.by_numpy()
        self.until, self._much, self._next = self._usual, False, now + max(WHILE, GROWN * (now - self._begun))
        return not first and worked - before > VAIN * (by_numpy - numpy)

    def _costs(self, site: Any, now: float) -> bool:
        """Say whether tracing takes more than it may give, by what was met so far."""
        self.until = self._usual = now + LOOK
        waiting = list(site.standbys)
        if not waiting or any(bound not in site.standbys for bound in site.bounds()):
            return False  # programs are there: they may make up for what was spent
        numpy = sum([each.spent for each in waiting])
        others = sum([record.seconds for record in list(site.fallbacks.values())])
        saves = sum([max(each.quickest - each.least, 0.0) * each.count for each in waiting if each.count])
        undisturbed = sum([each.quickest * each.count for each in waiting if each.count])
        return now - self._begun > DEARER * (numpy + others) + LOOK and saves < LITTLE * undisturbed


def put_back(session: Any, frames: list[FrameType]) -> None:
    """Put ndarrays and scalars where locals of `frames` are proxies of `session` in memory."""
    for frame in frames:
        names = frame.f_locals
        for held in list(names.values()):
            if type(held) in _MENDED:
                session.plain(held)
        values = {
            name: v._v for name, v in names.items()
            if type(v) in LAZY and v._s is session and v._n < 0 and v._v is not None}
        if values:
            _write_locals(frame, names, values)


def settle_locals(session: Any, frame: FrameType, seen: frozenset[int]) -> None:
    """Put what proxies stand for where the local variables of a suspended `frame` hold some."""
    names = frame.f_locals
    values = {}
    for name, held in list(names.items()):
        made = session.plain(held, seen)
        if made is not held:
            values[name] = made
    if values:
        _write_locals(frame, names, values)
    elif not _WRITES_THROUGH:
        names.clear()


def _write_locals(frame: FrameType, names: Any, values: dict[str, Any]) -> None:
    """Assign `values` to local variables of `frame`, whose `f_locals` is `names`."""
    if _WRITES_THROUGH:
        names.update(values)
        return
    # It is a copy, of which all that is there is written back: only what is another shall be. Nor may it
    # keep arrays longer than the user does.
    names.clear()
    names.update(values)
    ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    names.clear()
