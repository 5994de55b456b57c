"""A plan as the source of a Python function: local variables, one line per step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jitla.classes import dataclass
from jitla.fusion import (
    Call,
    Kernel,
    RowKernel,
    Step,
    WindowKernel,
    has_exact_layout,
    is_view,
    layout_operands,
)
from jitla.hops import (
    FLAGS_BY_THREAD,
    SCALAR_NARROWED,
    SPARSE_KERNEL_OPS,
    Hop,
    Kind,
    const_value,
    has_exact_flags,
    index_key,
    is_narrowed_scalar,
    is_roll_of_ring,
    possible_flags,
    start_recording,
    stop_recording,
    take_flags,
)
from jitla.recompile.output_buffers import (
    Aliases,
    Order,
    Outs,
    ring_of,
    turn,
)

_INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//",
    "remainder": "%", "power": "**", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
    "left_shift": "<<", "right_shift": ">>", "equal": "==", "not_equal": "!=", "less": "<",
    "less_equal": "<=", "greater": ">", "greater_equal": ">=",
}
# Python's numbers have their bits where NumPy's scalars of these dtypes have them.
_PYTHON = {np.dtype(np.float64): "float", np.dtype(np.complex128): "complex"}
_PREFIX = {"negative": "-", "positive": "+", "invert": "~"}


# Arrays up to this size are in a processor's cache: a copy costs little beside the kernel.
KEPT_BYTES = 1 << 20
# Up to this size a copy is made where the flags of a kernel alone do not say what NumPy would say.
KEPT_INEXACT = 1 << 26


class Need(NamedTuple):
    """A name the function takes from its binding: `kind` says what, `subject` of which value or step."""

    name: str
    kind: str
    subject: Any


@dataclass(frozen=True, slots=True)
class Script:
    """Source of ``make(bound, data) -> run``, its constants, and what `data` has to hold, in order."""

    source: str
    constants: Mapping[str, Any]
    needs: tuple[Need, ...]


def write_script(order: Order, roots: tuple[Hop, ...], outs: Outs, aliases: Aliases) -> Script:
    """Write the function that runs `order` and returns the values of `roots`."""
    writer = _Writer(order, roots)
    for at, step in enumerate(order.steps):
        if at == order.late:
            writer.detach()
            writer.keep(aliases)
        writer.step(step)
        writer.lines.append(f"if T is not None: T.step({at})")
        writer.count(at, step)
        writer.release(at, step)
    if order.late == len(order.steps):
        writer.detach()
    writer.stores(outs, aliases)
    return writer.finish(outs)


def uncast(hop: Hop) -> tuple[Hop, ...]:
    """Return the operands of a call, leaves as they are before the cast that NumPy does by itself.

    Other values lie in memory as their casts do.
    """
    able = hop.op.kind is Kind.CELL and hop.op.numpy and not hop.attrs
    if not able or not hop.meta.shape:
        return hop.inputs
    if isinstance(hop.op.numpy[0], np.ufunc) and len({i.meta.dtype for i in hop.inputs}) > 1:
        return hop.inputs  # a comparison of int64 with uint64: there is no such loop to ask for
    pairs = zip(hop.inputs, layout_operands(hop), strict=True)
    return tuple(s if s.meta.shape and s.op.kind is Kind.LEAF else given for given, s in pairs)


class _Writer:
    """Lines, constants and needs of one script."""

    def __init__(self, order: Order, roots: tuple[Hop, ...]) -> None:
        self.order = order
        self.roots = roots
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {"float": float, "complex": complex, "abs": abs}
        self.needs: dict[str, Need] = {}
        self.names: dict[Hop, str] = {}
        self.slots: dict[int, None] = {}
        self.numbers: dict[Hop, int] = {}
        self.kernels = 0
        self.kept: list[int] = []
        self.final: dict[int, str] = {}
        self.last = {h: at for at, s in enumerate(order.steps) for h in s.inputs}
        self.flagging = any(map(step_raises, order.steps))
        self.calling = any(isinstance(s, Call) and possible_flags(s.hop) for s in order.steps)
        late = [h for s in order.steps[order.late:] if not isinstance(s, Call) for h in s.body]
        self.exact = all(has_exact_flags(h) for h in late if possible_flags(h))
        self.called = {h for s in order.steps if isinstance(s, Call) for h in s.inputs} | set(roots)

    # ---------------------------------------------------------------------- names

    def number(self, hop: Hop) -> int:
        """Return the number that names of `hop` carry."""
        return self.numbers.setdefault(hop, len(self.numbers))

    def constant(self, prefix: str, value: Any) -> str:
        """Name a value that all bindings share."""
        name = f"{prefix}{len(self.constants)}"
        self.constants[name] = value
        return name

    def need(self, name: str, kind: str, subject: Any) -> str:
        """Name a value that every binding has its own of."""
        self.needs[name] = Need(name, kind, subject)
        return name

    def leaf(self, slot: int) -> str:
        """Name the object at a leaf position."""
        self.slots[slot] = None
        return f"a{slot}"

    def value(self, hop: Hop) -> str:
        """Name a value as NumPy is to see it."""
        if hop not in self.names:
            self.names[hop] = self._leaf_value(hop)
        return self.names[hop]

    def _leaf_value(self, hop: Hop) -> str:
        if hop.op.name == "const":
            return self.constant("c", const_value(hop))
        given = self.leaf(hop.attr("slot"))
        if hop.attr("form") != "weak":
            return given
        exact = _PYTHON.get(hop.meta.dtype) if hop not in self.called else None
        kind = exact or self.constant("T", hop.meta.dtype.type)
        name = f"w{self.number(hop)}"
        if is_narrowed_scalar(hop):
            most = self.constant("M", float(np.finfo(hop.meta.dtype).max))
            held = f"-{most} <= {given} <= {most}" if hop.meta.dtype.kind == "f" else "False"
            self.lines += [f"if {held}: {name} = {kind}({given})",
                           f"else: {name}, more = {self.constant('f', narrowed)}({given}, {kind}); e |= more"]
        else:
            self.lines.append(f"{name} = {kind}({given})")
        return name

    def operand(self, hop: Hop) -> str:
        """Name a kernel's operand: the bits of a scalar have to lie in the object itself."""
        zero_d = hop.op.name == "leaf" and hop.meta.shape == () and hop.attr("form") == "array"
        return self.value(hop) + ("[()]" if zero_d else "")

    # ---------------------------------------------------------------------- steps

    def step(self, step: Step) -> None:
        """Write the lines of one step."""
        if not isinstance(step, Call):
            self._kernel(step)
        else:
            hop = step.hop
            text = self._call(hop)
            name = self.names[hop] = f"t{self.number(hop)}"
            self.lines.append(f"{name} = {text}")
            if not has_exact_layout(hop) and self._feeds_kernel(hop):
                seen = self.need(f"G{self.number(hop)}", "strides", hop)
                key = self.constant("h", hop)
                self.lines.append(f"if {name}.strides != {seen}: return bound.learn(L, {key}, {name})")

    def _feeds_kernel(self, hop: Hop) -> bool:
        """Tell whether a kernel relies on the strides of `hop`, or of a view or copy of it."""
        return hop.meta.shape != () and hop in self.last

    def _kernel(self, kernel: Kernel | RowKernel | WindowKernel) -> None:
        at, self.kernels = self.kernels, self.kernels + 1
        launch = self.need(f"J{at}", "launch", at)
        words = [self.need(f"K{at}", "block", at)]
        words += [self.operand(h) for h in kernel.inputs if h.op.name != "const"]
        scalars = []
        for hop in kernel.outputs:
            n = self.number(hop)
            if hop in self.order.direct:
                self.names[hop] = self.leaf(self.order.direct[hop])
                words.append(self.names[hop])
                continue
            made = self.need(f"E{n}", "empty", hop)
            name = f"t{n}" if hop.meta.shape else f"o{n}"
            self.lines.append(f"{name} = {made}()")
            self.names[hop] = f"t{n}"
            words.append(name)
            if hop.meta.shape == ():
                scalars.append(f"t{n} = {name}[0]")
        asked = "e |= " if step_raises(kernel) else ""
        self.lines.append(f"{asked}{launch}({', '.join(words)})")
        self.lines += [f"{self._edges(h)}({self.names[h]})" for h in kernel.outputs if h.op.name == "ring"]
        self.lines += scalars

    def _edges(self, ring: Hop) -> str:
        """Name what adds the edges of a copy that has been written inside them."""
        return self.need(f"R{self.number(ring)}", "edges", ring)

    def count(self, at: int, step: Step) -> None:
        """Count what is other than 0 in results of step `at`, if that is estimated and somebody watches."""
        sized = [h for h in step.outputs if h.meta.shape]
        known = [(h.meta.nnz, i) for i, h in enumerate(sized) if h.meta.nnz is not None]
        if known:
            least = sized[min(known)[1]]
            counting = self.constant("f", np.count_nonzero)
            self.lines.append(
                f"if T is not None and T.watched: T.count({at}, int({counting}({self.value(least)})))")

    def release(self, at: int, step: Step) -> None:
        """Forget arrays that nobody reads after step `at`, so that their memory is used again."""
        for hop in dict.fromkeys(step.inputs):
            dead = self.last[hop] == at and hop not in self.roots
            if dead and hop.meta.shape != () and hop.op.kind is not Kind.LEAF:
                self.lines.append(f"del {self.names[hop]}")

    # ---------------------------------------------------------------------- calls

    def _call(self, hop: Hop) -> str:
        """Write the NumPy call or operator that computes `hop`."""
        if hop.op.name == "count":
            return self.need(f"N{self.number(hop)}", "count", hop)
        if hop.op.name in SPARSE_KERNEL_OPS:
            loop = self.need(f"P{self.number(hop)}", "stored", hop)
            return self._general(hop, [self.value(i) for i in hop.inputs], loop)
        if hop.op.name == "ring":
            made = self.need(f"E{self.number(hop)}", "empty", hop)
            return f"{self.constant('f', ring_of)}({self.value(hop.inputs[0])}, {made}(), {self._edges(hop)})"
        if uncast(hop) != hop.inputs:
            return self._casting(hop)
        words = [self.value(i) for i in hop.inputs]
        if all(self._is_scalar(i) for i in hop.inputs) and words:
            return self._scalar(hop, words) or self._general(hop, words)
        if any(i.meta.shape == () for i in hop.inputs):
            return self._general(hop, words)
        if hop.meta.shape == () and hop.op.kind is Kind.CALL and is_view(hop):
            return self._general(hop, words)  # NumPy may give a 0-d array; the reference a scalar
        return self._method(hop, words) or self._general(hop, words)

    def _casting(self, hop: Hop) -> str:
        """Write a call that casts while it reads: NumPy orders the result by the uncast operands."""
        words = ", ".join(self.value(i) for i in uncast(hop))
        function = self.constant("f", hop.op.numpy[0])
        if not isinstance(hop.op.numpy[0], np.ufunc):
            return f"{function}({words})"
        dtypes = (*(i.meta.dtype for i in hop.inputs), hop.meta.dtype)
        return f"{function}({words}, signature={self.constant('g', dtypes)}, casting='unsafe')"

    def _is_scalar(self, hop: Hop) -> bool:
        return hop.meta.shape == () and not (
            hop.op.name == "leaf" and hop.attr("form") == "array")

    def _scalar(self, hop: Hop, words: list[str]) -> str | None:
        """Write scalar arithmetic as Python does it on NumPy scalars."""
        name = hop.op.name
        if name in _INFIX:
            return f"{words[0]} {_INFIX[name]} {words[1]}"
        if name in _PREFIX:
            return f"{_PREFIX[name]}{words[0]}"
        if name == "absolute":
            return f"abs({words[0]})"
        if name == "cast":
            return f"{words[0]}.astype({self.constant('D', hop.meta.dtype)})"
        return None

    def _method(self, hop: Hop, words: list[str]) -> str | None:
        """Write the shortest way into NumPy's C code, where there is one."""
        x = words[0] if words else ""
        match hop.op.name:
            case "cast":
                return f"{x}.astype({self.constant('D', hop.meta.dtype)})"
            case "getitem":
                return f"{x}[{self.constant('i', index_key(hop.attr('index')))}]"
            case "roll" if is_roll_of_ring(hop):
                part = turn(hop.attr("shifts"), hop.inputs[0].attr("widths"))
                return f"{x}.base[{self.constant('i', part)}]"
            case "transpose":
                return f"{x}.transpose({self.constant('x', hop.attr('axes'))})"
            case "reshape":
                return f"{x}.reshape({self.need(f'S{self.number(hop)}', 'shape', hop)})"
            case "matmul" | "dot":
                return f"{self.constant('f', hop.op.numpy[0])}({', '.join(words)})"
        if hop.op.kind is Kind.AGG:
            reduce = self.constant("f", hop.op.numpy[0])
            axis = self.constant("x", hop.attr("axis"))
            return f"{reduce}({x}, {axis}, None, None, {hop.attr('keepdims')})"
        first = hop.op.numpy[0] if hop.op.numpy else None
        if hop.op.kind is Kind.CELL and isinstance(first, np.ufunc) and not hop.attrs:
            return f"{self.constant('f', first)}({', '.join(words)})"
        return None

    def _general(self, hop: Hop, words: list[str], function: str = "") -> str:
        """Write a call of the operator's reference, or of what stands for it."""
        for key, value in hop.attrs:
            if key == "shape":
                given = self.need(f"S{self.number(hop)}", "shape", hop)
            else:
                given = self.constant("x", value)
            words = [*words, f"{key}={given}"]
        return f"{function or self.constant('f', hop.op.ref)}({', '.join(words)})"

    # ---------------------------------------------------------------------- the end

    def detach(self) -> None:
        """Copy roots that would change when the stores begin."""
        for i in self.order.detached:
            name = f"r{i}"
            self.lines.append(f"{name} = {self.value(self.roots[i])}.copy('K')")
            self.final[i] = name

    def keep(self, aliases: Aliases) -> None:
        """Copy leaves that kernels read and overwrite at once: they cannot be asked afterwards.

        Large ones only if there is something to ask about.
        """
        self.hear()
        limit = KEPT_BYTES if self.exact else KEPT_INEXACT
        targets = set(self.order.direct.values())
        for slot in sorted(exposed(targets, aliases)) if self.flagging else ():
            reads = any(h.op.name == "leaf" and h.attr("slot") == slot and h.attr("form") == "array"
                        for s in self.order.steps for h in s.inputs)
            if reads:
                a = self.leaf(slot)
                self.kept.append(slot)
                copy = self.need("C", "copy", None)
                self.lines.append(f"b{slot} = {copy}({a}) if e or {a}.nbytes <= {limit} else None")

    def hear(self) -> None:
        """Add the flags that NumPy's calls have raised so far."""
        if self.calling:
            recorded = self.constant("H", FLAGS_BY_THREAD)
            self.lines.append(f"if {recorded}: e |= {self.constant('f', take_flags)}()")

    def stores(self, outs: Outs, aliases: Aliases) -> None:
        """Copy what could not be written directly into its leaf.

        If flags were raised, keep what is overwritten: whoever looks for their origin needs it.
        """
        self.hear()
        if self.flagging and self.order.through:
            targets = {slot for i in self.order.through if (slot := outs[i]) is not None}
            for slot in sorted(exposed(targets, aliases) - set(self.kept)):
                self.kept.append(slot)
                self.lines.append(f"if e: b{slot} = {self.leaf(slot)}.copy('K')")
        for i in self.order.through:
            slot = outs[i]
            assert slot is not None
            source = self.final.get(i) or self.value(self.roots[i])
            self.lines.append(f"{self.leaf(slot)}[...] = {source}")

    def result(self, i: int, out: int | None, seen: set[Hop]) -> str:
        """Name root `i`; equal values are still distinct arrays, as NumPy would have made them."""
        if out is not None:
            return self.leaf(out)
        root = self.roots[i]
        name = self.final.get(i) or self.value(root)
        if root in seen and root.meta.shape != () and root.op.kind is not Kind.LEAF:
            name = self._twin(i, root, name)
        seen.add(root)
        return name

    def _twin(self, i: int, root: Hop, name: str) -> str:
        """Write a second array that is equal to `name` in values and layout."""
        if is_view(root):
            return f"{name}.view()"
        made = self.needs.get(f"E{self.number(root)}")
        if made is None:
            return f"{self.constant('f', _twin)}({name})"
        self.lines += [f"r{i} = {made.name}()", f"r{i}[...] = {name}"]
        return f"r{i}"

    def finish(self, outs: Outs) -> Script:
        """Put the pieces together."""
        seen: set[Hop] = set()
        words = [self.result(i, out, seen) for i, out in enumerate(outs)]
        head = [f"a{s} = L[{s}]" for s in self.slots]
        timed = ["T = CLOCK.start(bound) if CLOCK.on else None"]
        body = [*head, *timed, *self.lines, "bound.count += 1", "if T is not None: T.end()"]
        if self.flagging:
            kept = ", ".join(f"{slot}: b{slot}" for slot in self.kept)
            body.append(f"if e: return bound.flagged(({', '.join(words)},), e, {{{kept}}}, {self.exact})")
        body.append(f"return ({', '.join(words)},)")
        if self.calling:
            body = [f"before = {self.constant('f', start_recording)}()", "try:", *["    " + b for b in body],
                    f"finally: {self.constant('f', stop_recording)}(before)"]
        if self.flagging:
            body = ["e = 0", *body]
        names = "".join(f"{n}, " for n in self.needs)
        take = [f"    ({names}) = data"] if names else []
        lines = ["def make(bound, data):", *take, "    def run(L):", *_indent(body), "    return run"]
        return Script("\n".join(lines) + "\n", self.constants, tuple(self.needs.values()))


def exposed(targets: set[int], aliases: Aliases) -> set[int]:
    """Return the slots of leaves that change when those at `targets` are written."""
    return targets | {b for x, y, _ in aliases for a, b in ((x, y), (y, x)) if a in targets}


def narrowed(value: Any, kind: type) -> tuple[Any, int]:
    """Return a number in a dtype that may not hold it, with the flags of that."""
    before = start_recording()
    try:
        made = kind(value)
        raised = take_flags()  # what calls before this one raised is among it
        return made, raised | (SCALAR_NARROWED if raised else 0)
    finally:
        stop_recording(before)


def step_raises(step: Step) -> bool:
    """Say whether floating-point flags that `step` raises can mean anything."""
    body = (step.hop,) if isinstance(step, Call) else step.body
    return any(map(possible_flags, body))


def _twin(array: np.ndarray) -> np.ndarray:
    """Copy a fresh array with its strides, those of axes of length 1 included."""
    copy = np.ndarray(array.shape, array.dtype, strides=array.strides)
    copy[...] = array
    return copy


def _indent(lines: Iterable[str]) -> list[str]:
    return ["        " + line for line in lines]
