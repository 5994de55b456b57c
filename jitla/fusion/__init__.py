"""Which hops share a loop: plans and the contract with the backends.

Reading order: kernel.
"""

from jitla.fusion.kernel import (
    Backend,
    Call,
    Executable,
    Form,
    Geometry,
    Kernel,
    Plan,
    Schedule,
    Step,
)

__all__ = ["Backend", "Call", "Executable", "Form", "Geometry", "Kernel", "Plan", "Schedule", "Step"]
