"""Plans as text, and the key of a kernel's structure.

Knows: plans and kernels. Must not know: how they were chosen, backends.
Receives a plan or kernel; returns text without addresses, and keys without sizes.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from jitla.fusion.kernel import Call, Kernel, Plan, RowKernel, WindowKernel
from jitla.hops import Hop, Kind, const_value, topo

Key = tuple[Any, ...]


def structure(plan: Plan) -> dict[str, int]:
    """Count the steps of `plan` by template."""
    count = Counter("Call" if isinstance(s, Call) else s.template for s in plan.steps)
    names = ("Cell", "MAgg", "Row", "Outer", "Window", "Call")
    return {name: count[name] for name in names if name in ("Cell", "MAgg", "Call") or count[name]}


def structure_key(kernel: Kernel) -> Key:
    """Return what the code of `kernel` depends on besides form and schedule: no size is in it."""
    number: dict[Hop, int] = {}
    words: list[Any] = [kernel.template]
    for hop in kernel.inputs:
        number[hop] = len(number)
        kind = hop.attr("bits") if hop.op.name == "const" else hop.meta.shape == ()
        words.append((kind, hop.meta.dtype.str))
    for hop in kernel.body:
        number[hop] = len(number)
        attrs = () if hop.op.kind is Kind.AGG else tuple((k, str(v)) for k, v in hop.attrs)
        words.append((hop.op.name, hop.meta.dtype.str, attrs, tuple(number[i] for i in hop.inputs)))
    words.append(tuple(number[h] for h in kernel.outputs))
    return tuple(words)


def show(plan: Plan) -> str:
    """Write `plan` down: one line per step, the body of each kernel indented below it."""
    inside = {h for s in plan.steps for h in (s.outputs if isinstance(s, Call) else s.body)}
    names: dict[Hop, str] = {}
    for hop in topo(plan.outputs):
        names[hop] = _leaf_name(hop) if hop not in inside else f"%{len(names)}"
    lines: list[str] = []
    kernels = 0
    for step in plan.steps:
        if isinstance(step, (Kernel, RowKernel, WindowKernel)):
            lines += _kernel_lines(f"K{kernels}", step, names)
            kernels += 1
        else:
            reason = f"   # {step.reason}" if step.reason else ""
            lines.append(f"call  {_expression(step.hop, names)}{reason}")
    lines.append("return " + ", ".join(names[r] for r in plan.outputs))
    return "\n".join(lines)


def _kernel_lines(title: str, kernel: Kernel | RowKernel | WindowKernel, names: dict[Hop, str]) -> list[str]:
    shape = "x".join(map(str, kernel.shape))
    reads = ", ".join(names[h] for h in kernel.inputs)
    writes = ", ".join(names[h] for h in kernel.outputs)
    head = f"{title} {kernel.template} {shape}  ({reads}) -> ({writes})"
    return [head, *("  " + _expression(h, names) for h in kernel.body)]


def _expression(hop: Hop, names: dict[Hop, str]) -> str:
    words = [names[i] for i in hop.inputs] + [f"{k}={v}" for k, v in hop.attrs]
    shape = "x".join(map(str, hop.meta.shape)) or "scalar"
    return f"{names[hop]} = {hop.op.name}({', '.join(words)})  {shape} {hop.meta.dtype}"


def _leaf_name(hop: Hop) -> str:
    if hop.op.name == "const":
        return repr(const_value(hop).item())
    return f"${hop.attr('slot')}" if hop.op.name == "leaf" else f"?{hop.op.name}"
