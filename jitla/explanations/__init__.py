"""Explanations of decorated functions: what was compiled, what ran in NumPy and why, and what it took.

`collect` gathers records (`records`) from sites and programs; `rendering` shows them as text, HTML or a
timeline, `graph` draws plans, and `advice` derives suggestions. `Explanation` (`explanation`), the object
that `jitla.explain` returns, combines these. The package is above all packages that compile and run, and
loaded only on demand.
"""

from typing import TYPE_CHECKING

from jitla.process.loading import lazy_modules

if TYPE_CHECKING:
    from jitla.explanations import collect, explanation, records, rendering
else:
    __getattr__ = lazy_modules(
        __name__, "jitla.explanations.collect", "jitla.explanations.explanation",
        "jitla.explanations.records", "jitla.explanations.rendering")

__all__ = ["collect", "explanation", "records", "rendering"]
