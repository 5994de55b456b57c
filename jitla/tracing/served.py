"""Blocks that wait for one program, whatever their sizes: what becomes of them when it is there, or never.

Knows: which blocks of a site wait, and where each is kept. Must not know: how programs are made.
Receives sites and what such blocks share; blocks whose sizes do not come again wait no longer.
"""

from __future__ import annotations

from typing import Any

from jitla.tracing.replay import MEANWHILE, Alike

__all__ = ["abandon", "serve"]


def serve(site: Any, served: Any) -> None:
    """Let blocks that waited for the program that `served` has got be met anew: it only has to be bound."""
    alike = served.alike
    alike.there = True
    site.standbys.discard(served)
    others = _waiting(site, alike)
    if not others:
        return
    found = {key: closed.bound for key, closed in site.exact.items() if closed.bound in others}
    site.retire(list(found))
    for each in others:
        if each in found.values():
            site.standbys.discard(each)
            site.lines.pop(each, None)
            site.past[MEANWHILE] = site.past.get(MEANWHILE, 0) + site.past.pop(each, 0)
        else:  # the rest of a block of which values are kept: it asks for itself
            each.alike = Alike(alike.spent)


def abandon(site: Any, alike: Alike) -> None:
    """Let NumPy run for ever what waits for a program that cannot be made."""
    alike.given_up = True
    with site.lock:
        site.standbys -= _waiting(site, alike)


def _waiting(site: Any, alike: Alike) -> set[Any]:
    return {each for each in list(site.standbys) if each.alike is alike}
