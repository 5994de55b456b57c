"""Explanations of decorated functions: what was compiled, what ran in NumPy and why, and what it took.

`collect` gathers records (`records`) from sites and programs; `text`, `html`, `graph` and `trace_events`
render them, and `advice` derives suggestions. `Explanation` (`explanation`), the object that
`jitla.explain` returns, combines these. The package is above all packages that compile and run, and loaded
only on demand.
"""

from typing import TYPE_CHECKING

from jitla.process.loading import lazy_modules

if TYPE_CHECKING:
    from jitla.explanations import collect, explanation, html, records
else:
    __getattr__ = lazy_modules(
        __name__, "jitla.explanations.collect", "jitla.explanations.explanation", "jitla.explanations.html",
        "jitla.explanations.records")

__all__ = ["collect", "explanation", "html", "records"]
