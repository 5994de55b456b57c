"""What the user's own code says: its instrumented twins, and which local variables are still read.

Reading order: percode, owned, sameness, liveness, scope, origin, static, tame, brief, stretch, inserts,
operands, exprs, stores, rewrite, twin, version.
"""

from jitla.source.inserts import BARRIER, NUMBERS
from jitla.source.liveness import live_locals
from jitla.source.percode import PerCode
from jitla.source.static import IMMUTABLE, MISSING, NOT_ARRAY, loops_in_python
from jitla.source.twin import Twins, instrument, is_twin
from jitla.source.version import changed_code, tree_of

__all__ = [
    "BARRIER", "IMMUTABLE", "MISSING", "NOT_ARRAY", "NUMBERS", "PerCode", "Twins", "changed_code",
    "instrument", "is_twin", "live_locals", "loops_in_python", "tree_of",
]
