"""The packages of jitla that are loaded on first use: `packages.tracing` imports `jitla.tracing`, once.

A call that needs none of them does not wait for their import, and `import jitla` loads none. The attribute is
an ordinary module, so type checkers check all that is used of it, as behind an import statement. Loading may
fail (`jitla.process.loading`): `ModuleUnavailable` is raised then, and a later use tries again.

Modules that few calls need are loaded likewise by their package: `packages.tuner.records`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitla.process.loading import lazy_modules

if TYPE_CHECKING:
    from typing import Literal

    from jitla import (
        accel,
        codegen,
        explanations,
        fusion,
        hops,
        loopjit,
        recompile,
        rewrites,
        runtime,
        tracing,
        tuner,
    )
else:
    __getattr__ = lazy_modules(
        __name__, "jitla.accel", "jitla.codegen", "jitla.explanations", "jitla.fusion", "jitla.hops",
        "jitla.loopjit", "jitla.recompile", "jitla.rewrites", "jitla.runtime", "jitla.tracing", "jitla.tuner")

__all__ = [
    "accel", "codegen", "explanations", "fusion", "hops", "is_loaded", "loopjit", "recompile", "rewrites",
    "runtime", "tracing", "tuner",
]


def is_loaded(name: Literal["codegen", "tracing"]) -> bool:
    """Return whether the package `name` has been used."""
    return name in globals()
