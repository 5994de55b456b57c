"""Code generation of a program as a Python function: local variables, one line per step."""

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
    ExecutionOrder,
    Outs,
    filled_ring,
    rolled_index,
)

_INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//",
    "remainder": "%", "power": "**", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
    "left_shift": "<<", "right_shift": ">>", "equal": "==", "not_equal": "!=", "less": "<",
    "less_equal": "<=", "greater": ">", "greater_equal": ">=",
}
# Python's numbers have the memory layout of NumPy's scalars of these dtypes.
_PYTHON = {np.dtype(np.float64): "float", np.dtype(np.complex128): "complex"}
_PREFIX = {"negative": "-", "positive": "+", "invert": "~"}


# Arrays up to this size fit into a processor's cache, where a copy costs little beside the kernel.
MAX_SAVED_BYTES = 1 << 20
# The limit where the flags of a kernel are not exactly those of NumPy.
MAX_SAVED_INEXACT_BYTES = 1 << 26


class Need(NamedTuple):
    """A name whose value the binding provides: `kind` is that of the value, `subject` its hop or step."""

    name: str
    kind: str
    subject: Any


@dataclass(frozen=True, slots=True)
class Script:
    """Source of ``make(bound, data) -> run``, its constants, and the values `data` holds, in order."""

    source: str
    constants: Mapping[str, Any]
    needs: tuple[Need, ...]


def write_script(order: ExecutionOrder, roots: tuple[Hop, ...], outs: Outs, aliases: Aliases) -> Script:
    """Return the source that runs `order` and returns the values of `roots`."""
    writer = _ScriptWriter(order, roots)
    for number, step in enumerate(order.steps):
        if number == order.first_store:
            writer.detach()
            writer.save_overwritten(aliases)
        writer.step(step)
        writer.lines.append(f"if T is not None: T.step({number})")
        writer.count(number, step)
        writer.release(number, step)
    if order.first_store == len(order.steps):
        writer.detach()
    writer.stores(outs, aliases)
    return writer.finish(outs)


def uncast_inputs(hop: Hop) -> tuple[Hop, ...]:
    """Return the inputs of a call, leaves without the cast that NumPy's ufunc does by itself.

    Other values have the layouts of their casts.
    """
    is_ufunc_like = hop.op.kind is Kind.CELL and hop.op.numpy and not hop.attrs
    if not is_ufunc_like or not hop.meta.shape:
        return hop.inputs
    if isinstance(hop.op.numpy[0], np.ufunc) and len({i.meta.dtype for i in hop.inputs}) > 1:
        return hop.inputs  # a comparison of int64 with uint64: ufuncs have no loop for the common dtype
    pairs = zip(hop.inputs, layout_operands(hop), strict=True)
    return tuple(s if s.meta.shape and s.op.kind is Kind.LEAF else operand for operand, s in pairs)


class _ScriptWriter:
    """Collects the lines, constants and needs of one script."""

    def __init__(self, order: ExecutionOrder, roots: tuple[Hop, ...]) -> None:
        self.order = order
        self.roots = roots
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {"float": float, "complex": complex, "abs": abs}
        self.needs: dict[str, Need] = {}
        self.names: dict[Hop, str] = {}
        self.slots: dict[int, None] = {}
        self.numbers: dict[Hop, int] = {}
        self.kernels = 0
        self.saved: list[int] = []
        self.final: dict[int, str] = {}
        self.last = {h: number for number, s in enumerate(order.steps) for h in s.inputs}
        self.flagging = any(map(can_raise_flags, order.steps))
        self.calling = any(isinstance(s, Call) and possible_flags(s.hop) for s in order.steps)
        stored = [h for s in order.steps[order.first_store:] if not isinstance(s, Call) for h in s.body]
        self.exact = all(has_exact_flags(h) for h in stored if possible_flags(h))
        self.called = {h for s in order.steps if isinstance(s, Call) for h in s.inputs} | set(roots)

    # ---------------------------------------------------------------------- names

    def number(self, hop: Hop) -> int:
        """Return the number in the names of `hop`."""
        return self.numbers.setdefault(hop, len(self.numbers))

    def constant(self, prefix: str, value: Any) -> str:
        """Return a name for a value shared by all bindings."""
        name = f"{prefix}{len(self.constants)}"
        self.constants[name] = value
        return name

    def need(self, name: str, kind: str, subject: Any) -> str:
        """Return a name for a value that each binding provides."""
        self.needs[name] = Need(name, kind, subject)
        return name

    def leaf(self, slot: int) -> str:
        """Return the name of the object at a leaf position."""
        self.slots[slot] = None
        return f"a{slot}"

    def value(self, hop: Hop) -> str:
        """Return the name of a value as NumPy takes it."""
        if hop not in self.names:
            self.names[hop] = self._leaf_value(hop)
        return self.names[hop]

    def _leaf_value(self, hop: Hop) -> str:
        if hop.op.name == "const":
            return self.constant("c", const_value(hop))
        name_of_leaf = self.leaf(hop.attr("slot"))
        if hop.attr("form") != "weak":
            return name_of_leaf
        exact = _PYTHON.get(hop.meta.dtype) if hop not in self.called else None
        kind = exact or self.constant("T", hop.meta.dtype.type)
        name = f"w{self.number(hop)}"
        if is_narrowed_scalar(hop):
            largest = self.constant("M", float(np.finfo(hop.meta.dtype).max))
            fits = f"-{largest} <= {name_of_leaf} <= {largest}" if hop.meta.dtype.kind == "f" else "False"
            cast = self.constant("f", cast_narrow)
            self.lines += [f"if {fits}: {name} = {kind}({name_of_leaf})",
                           f"else: {name}, more = {cast}({name_of_leaf}, {kind}); e |= more"]
        else:
            self.lines.append(f"{name} = {kind}({name_of_leaf})")
        return name

    def operand(self, hop: Hop) -> str:
        """Return a value as kernels take it: the bits of a scalar must be in the object itself."""
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
                expected = self.need(f"G{self.number(hop)}", "strides", hop)
                key = self.constant("h", hop)
                rerun = f"return bound.learn_layout(L, {key}, {name})"
                self.lines.append(f"if {name}.strides != {expected}: {rerun}")

    def _feeds_kernel(self, hop: Hop) -> bool:
        """Return whether a kernel depends on the strides of `hop`, or of a view or copy of it."""
        return hop.meta.shape != () and hop in self.last

    def _kernel(self, kernel: Kernel | RowKernel | WindowKernel) -> None:
        kernel_number, self.kernels = self.kernels, self.kernels + 1
        launch = self.need(f"J{kernel_number}", "launch", kernel_number)
        words = [self.need(f"K{kernel_number}", "block", kernel_number)]
        words += [self.operand(h) for h in kernel.inputs if h.op.name != "const"]
        scalars = []
        for hop in kernel.outputs:
            n = self.number(hop)
            if hop in self.order.direct:
                self.names[hop] = self.leaf(self.order.direct[hop])
                words.append(self.names[hop])
                continue
            factory = self.need(f"E{n}", "empty", hop)
            name = f"t{n}" if hop.meta.shape else f"o{n}"
            self.lines.append(f"{name} = {factory}()")
            self.names[hop] = f"t{n}"
            words.append(name)
            if hop.meta.shape == ():
                scalars.append(f"t{n} = {name}[0]")
        flags = "e |= " if can_raise_flags(kernel) else ""
        self.lines.append(f"{flags}{launch}({', '.join(words)})")
        self.lines += [f"{self._edges(h)}({self.names[h]})" for h in kernel.outputs if h.op.name == "ring"]
        self.lines += scalars

    def _edges(self, ring: Hop) -> str:
        """Return the name of the function that fills the edges of a ring."""
        return self.need(f"R{self.number(ring)}", "edges", ring)

    def count(self, step_number: int, step: Step) -> None:
        """Count nonzeros in results of step `step_number` while profiling, if they were estimated."""
        arrays = [h for h in step.outputs if h.meta.shape]
        estimates = [(h.meta.nnz, i) for i, h in enumerate(arrays) if h.meta.nnz is not None]
        if estimates:
            smallest = arrays[min(estimates)[1]]
            counting = self.constant("f", np.count_nonzero)
            self.lines.append(
                f"if T is not None and T.watched: "
                f"T.count({step_number}, int({counting}({self.value(smallest)})))")

    def release(self, step_number: int, step: Step) -> None:
        """Delete arrays that are dead after step `step_number`, so that their memory is reused."""
        for hop in dict.fromkeys(step.inputs):
            dead = self.last[hop] == step_number and hop not in self.roots
            if dead and hop.meta.shape != () and hop.op.kind is not Kind.LEAF:
                self.lines.append(f"del {self.names[hop]}")

    # ---------------------------------------------------------------------- calls

    def _call(self, hop: Hop) -> str:
        """Return the NumPy call or operator expression that computes `hop`."""
        if hop.op.name == "count":
            return self.need(f"N{self.number(hop)}", "count", hop)
        if hop.op.name in SPARSE_KERNEL_OPS:
            loop = self.need(f"P{self.number(hop)}", "stored", hop)
            return self._general(hop, [self.value(i) for i in hop.inputs], loop)
        if hop.op.name == "ring":
            factory = self.need(f"E{self.number(hop)}", "empty", hop)
            function = self.constant("f", filled_ring)
            return f"{function}({self.value(hop.inputs[0])}, {factory}(), {self._edges(hop)})"
        if uncast_inputs(hop) != hop.inputs:
            return self._casting(hop)
        words = [self.value(i) for i in hop.inputs]
        if all(self._is_scalar(i) for i in hop.inputs) and words:
            return self._scalar(hop, words) or self._general(hop, words)
        if any(i.meta.shape == () for i in hop.inputs):
            return self._general(hop, words)
        if hop.meta.shape == () and hop.op.kind is Kind.CALL and is_view(hop):
            return self._general(hop, words)  # NumPy may return a 0-d array, the reference returns a scalar
        return self._method(hop, words) or self._general(hop, words)

    def _casting(self, hop: Hop) -> str:
        """Return a call that casts its inputs: NumPy orders the result by the uncast operands."""
        words = ", ".join(self.value(i) for i in uncast_inputs(hop))
        function = self.constant("f", hop.op.numpy[0])
        if not isinstance(hop.op.numpy[0], np.ufunc):
            return f"{function}({words})"
        dtypes = (*(i.meta.dtype for i in hop.inputs), hop.meta.dtype)
        return f"{function}({words}, signature={self.constant('g', dtypes)}, casting='unsafe')"

    def _is_scalar(self, hop: Hop) -> bool:
        return hop.meta.shape == () and not (
            hop.op.name == "leaf" and hop.attr("form") == "array")

    def _scalar(self, hop: Hop, words: list[str]) -> str | None:
        """Return scalar arithmetic as Python operators on NumPy scalars."""
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
        """Return the call with the least overhead, if there is one besides the reference."""
        x = words[0] if words else ""
        match hop.op.name:
            case "cast":
                return f"{x}.astype({self.constant('D', hop.meta.dtype)})"
            case "getitem":
                return f"{x}[{self.constant('i', index_key(hop.attr('index')))}]"
            case "roll" if is_roll_of_ring(hop):
                index = rolled_index(hop.attr("shifts"), hop.inputs[0].attr("widths"))
                return f"{x}.base[{self.constant('i', index)}]"
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
        function = hop.op.numpy[0] if hop.op.numpy else None
        if hop.op.kind is Kind.CELL and isinstance(function, np.ufunc) and not hop.attrs:
            return f"{self.constant('f', function)}({', '.join(words)})"
        return None

    def _general(self, hop: Hop, words: list[str], function: str = "") -> str:
        """Return a call of the operator's reference, or of `function`."""
        for key, value in hop.attrs:
            if key == "shape":
                argument = self.need(f"S{self.number(hop)}", "shape", hop)
            else:
                argument = self.constant("x", value)
            words = [*words, f"{key}={argument}"]
        return f"{function or self.constant('f', hop.op.ref)}({', '.join(words)})"

    # ---------------------------------------------------------------------- the end

    def detach(self) -> None:
        """Copy roots whose memory is about to be overwritten."""
        for i in self.order.detached:
            name = f"r{i}"
            self.lines.append(f"{name} = {self.value(self.roots[i])}.copy('K')")
            self.final[i] = name

    def save_overwritten(self, aliases: Aliases) -> None:
        """Copy leaves that kernels read and overwrite, for a replay that finds the origin of flags.

        Large ones are copied only if flags were raised before.
        """
        self.read_call_flags()
        limit = MAX_SAVED_BYTES if self.exact else MAX_SAVED_INEXACT_BYTES
        targets = set(self.order.direct.values())
        for slot in sorted(overwritten_slots(targets, aliases)) if self.flagging else ():
            reads = any(h.op.name == "leaf" and h.attr("slot") == slot and h.attr("form") == "array"
                        for s in self.order.steps for h in s.inputs)
            if reads:
                a = self.leaf(slot)
                self.saved.append(slot)
                copy = self.need("C", "copy", None)
                self.lines.append(f"b{slot} = {copy}({a}) if e or {a}.nbytes <= {limit} else None")

    def read_call_flags(self) -> None:
        """Add the flags that NumPy calls have raised so far."""
        if self.calling:
            recorded = self.constant("H", FLAGS_BY_THREAD)
            self.lines.append(f"if {recorded}: e |= {self.constant('f', take_flags)}()")

    def stores(self, outs: Outs, aliases: Aliases) -> None:
        """Copy roots that could not be written directly into their leaves.

        If flags were raised, the overwritten values are saved for the replay that finds their origin.
        """
        self.read_call_flags()
        if self.flagging and self.order.copied_back:
            targets = {slot for i in self.order.copied_back if (slot := outs[i]) is not None}
            for slot in sorted(overwritten_slots(targets, aliases) - set(self.saved)):
                self.saved.append(slot)
                self.lines.append(f"if e: b{slot} = {self.leaf(slot)}.copy('K')")
        for i in self.order.copied_back:
            slot = outs[i]
            assert slot is not None
            source = self.final.get(i) or self.value(self.roots[i])
            self.lines.append(f"{self.leaf(slot)}[...] = {source}")

    def result(self, i: int, out: int | None, returned: set[Hop]) -> str:
        """Return the name of root `i`; equal roots are distinct arrays, as in NumPy."""
        if out is not None:
            return self.leaf(out)
        root = self.roots[i]
        name = self.final.get(i) or self.value(root)
        if root in returned and root.meta.shape != () and root.op.kind is not Kind.LEAF:
            name = self._duplicate(i, root, name)
        returned.add(root)
        return name

    def _duplicate(self, i: int, root: Hop, name: str) -> str:
        """Return the name of a second array equal to `name` in values and layout."""
        if is_view(root):
            return f"{name}.view()"
        factory = self.needs.get(f"E{self.number(root)}")
        if factory is None:
            return f"{self.constant('f', _copy_strided)}({name})"
        self.lines += [f"r{i} = {factory.name}()", f"r{i}[...] = {name}"]
        return f"r{i}"

    def finish(self, outs: Outs) -> Script:
        """Return the complete script."""
        returned: set[Hop] = set()
        words = [self.result(i, out, returned) for i, out in enumerate(outs)]
        head = [f"a{s} = L[{s}]" for s in self.slots]
        timed = ["T = CLOCK.start(bound) if CLOCK.on else None"]
        body = [*head, *timed, *self.lines, "bound.count += 1", "if T is not None: T.end()"]
        if self.flagging:
            saved = ", ".join(f"{slot}: b{slot}" for slot in self.saved)
            arguments = f"({', '.join(words)},), e, {{{saved}}}, {self.exact}"
            body.append(f"if e: return bound.end_flagged_run({arguments})")
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


def overwritten_slots(targets: set[int], aliases: Aliases) -> set[int]:
    """Return the slots of leaves that change when those at `targets` are written."""
    return targets | {b for x, y, _ in aliases for a, b in ((x, y), (y, x)) if a in targets}


def cast_narrow(value: Any, kind: type) -> tuple[Any, int]:
    """Return a number in a dtype that may not represent it, with the flags of the conversion."""
    before = start_recording()
    try:
        number = kind(value)
        raised = take_flags()  # including the flags of calls before this one
        return number, raised | (SCALAR_NARROWED if raised else 0)
    finally:
        stop_recording(before)


def can_raise_flags(step: Step) -> bool:
    """Return whether `step` may raise floating-point flags that matter."""
    body = (step.hop,) if isinstance(step, Call) else step.body
    return any(map(possible_flags, body))


def _copy_strided(array: np.ndarray) -> np.ndarray:
    """Return a copy with the same strides, including those of axes of length 1."""
    copy = np.ndarray(array.shape, array.dtype, strides=array.strides)
    copy[...] = array
    return copy


def _indent(lines: Iterable[str]) -> list[str]:
    return ["        " + line for line in lines]
