"""Machine code of loop programs: scalars in registers, views as pointers, one function with numbered exits.

`program_text` writes a function ``i64 @<symbol>(ptr state)`` without optimising: each variable is memory on
the stack, which LLVM's passes turn into registers (`jitla.codegen.passes`). What a program calls (loops of
ufuncs, `dot` functions, the C library) is named by external symbols, so that objects can be cached.

Operators compute what NumPy's ufuncs compute for scalars: what has no recipe, or another one for each
processor, is a call of the ufunc's inner loop for one element, whose operands have step 0 (where `power` is
exact for some exponents, unlike for arrays of exponents). With the attribute ``rounded=True`` a product of
complex numbers is that of NumPy's scalars and of Python, whose terms are rounded, and not that of loops.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from jitla.classes import dataclass
from jitla.codegen.compiled_program import SYMBOL, CompiledProgram
from jitla.codegen.exact_text import ExactText
from jitla.codegen.ir import BOOL, Value, element_type, part_of, refuse, whole
from jitla.codegen.ir_elementwise import LlvmBuilder, float_ir
from jitla.codegen.jit import Jit, host_target
from jitla.codegen.loop_vectors import WrittenLoop, write_loop
from jitla.codegen.native.routines import c_symbol, dot_symbol, find_loop, loop_symbol, sort_symbol
from jitla.codegen.passes import PIPELINE
from jitla.codegen.scalar_text import ScalarText
from jitla.codegen.target import PART, Target
from jitla.errors import BackendError
from jitla.hops import Kind, OpSpec, lookup
from jitla.loopir import ProgramFacts, find_vector_loop
from jitla.loopir import program as ir

__all__ = ["compile_program", "compile_quickly", "program_text"]

ALIGNMENT = 64  # bytes, of memory from the arena
FELL_OUT = 0xFFFFFFFF  # the exit of a program whose body ends without leaving it
UNLIKELY = "!0 = !{!\"branch_weights\", i32 1, i32 4000}\n"


def compile_program(
    program: ir.LoopProgram, jit: Jit, level: int = 1, vectors: bool = True,
) -> CompiledProgram:
    """Compile and load `program`.

    `level` is LLVM's for code generation: 0 takes half the time of 1, for code that takes two to three times
    as long; 2 gains nothing. A cached object is loaded without running passes.
    """
    library = jit.load(PART.format(level) + program_text(program, jit.target, vectors), (SYMBOL,))
    return CompiledProgram(program, ir.state_layout(program), library)


def compile_quickly(program: ir.LoopProgram, jit: Jit) -> CompiledProgram:
    """Compile and load `program` without vectors and passes: `CompiledProgram.optimise` makes better code.

    That takes a sixth to a thirtieth of the time; its code takes two to three times as long. Code that is
    cached is loaded at once.
    """
    optimised, layout = PART.format(1) + program_text(program, jit.target), ir.state_layout(program)
    keys = jit.part_keys(optimised)

    def optimise() -> CompiledProgram:
        return CompiledProgram(program, layout, jit.load(optimised, (SYMBOL,)), keys=keys)

    if jit.is_cached(keys):
        return optimise()
    text = program_text(program, jit.target, vectors=False)
    library = jit.load_quickly(text.removeprefix(PIPELINE), (SYMBOL,))
    return CompiledProgram(program, layout, library, optimise)


def program_text(program: ir.LoopProgram, target: Target | None = None, vectors: bool = True) -> str:
    """Return the LLVM module of `program`, whose function is called `SYMBOL`; with `vectors` of its loops."""
    return _Writer(program, target or host_target(), vectors).module()


#: Prefixes of the names of a scalar's registers, by whether it is complex.
_PARTS = (("s",), ("s", "i"))
#: Which of two zeros NumPy's loops return depends on the position: they are called even for one element.
_BY_POSITION = frozenset({"fmax", "fmin"})
#: Ufuncs whose inner loops do not clear floating-point flags, as those of comparisons and `maximum` do.
_FLAG_KEEPING = frozenset({"add", "subtract", "multiply", "divide", "matmul"})
#: Functions of `np.linalg` whose flags NumPy ignores; they report errors by results that are no numbers.
_FLAG_DROPPING = frozenset({
    "solve", "solve1", "inv", "cholesky_lo", "eigh_lo", "eigvalsh_lo", "svd_f", "svd_s", "svd"})
_PLAIN = re.compile(r"[A-Za-z0-9_.$]+")


def _quoted(name: str) -> str:
    """Return `name` as LLVM writes names."""
    if _PLAIN.fullmatch(name):
        return name
    escaped = "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02X}" for c in name.encode())
    return f'"{escaped}"'


@dataclass(frozen=True, slots=True)
class _Label:
    """The blocks that `Break` and `Continue` of a label jump to; a `Block` has none for `Continue`."""

    name: str
    behind: str
    again: str | None


class _Writer:
    """Writes the module of one program."""

    def __init__(self, program: ir.LoopProgram, target: Target, vectors: bool) -> None:
        self.program, self.target, self.vectors = program, target, vectors
        self.halves = ir.uses_expiry(program)
        self.machine = target.triple.split("-")[0]
        self.machine = "x86_64" if self.machine == "amd64" else self.machine
        self.layout = ir.state_layout(program)
        self.scalars = {s.name: s for s in program.scalars}
        self.views = {v.name: v for v in program.views}
        self.variables: list[ir.ScalarVariable | ir.ViewVariable] = [*program.scalars, *program.views]
        for variable in self.variables:
            reason = refuse(variable.dtype)
            if reason:
                raise BackendError(reason)
        self.lines: list[str] = []
        self.head: list[str] = []  # memory on the stack that is no variable, of the entry block
        self.places: dict[tuple[str, str], str] = {}
        once = _assigned_once(program)
        self.single = {self._place(prefix, v.name) for v in self.variables if v.name in once for prefix in (
            [prefix for prefix, _ in _words_of(v)] if isinstance(v, ir.ViewVariable) else
            _PARTS[v.dtype.kind == "c"])}
        self.known: dict[str, str] = {}  # values of variables with a single assignment, where that dominates
        self.scopes: list[list[str]] = [[]]
        self.stored: set[str] = set()  # memory of variables
        self.loaded: dict[str, str] = {}  # types of the variables that need memory
        self.b = ScalarText(self.lines, self._math, program.raises, self.machine == "x86_64")
        self.declared: dict[str, str] = {}
        self.labels: list[_Label] = []
        self.exits: set[int] = set()
        self.loops = 0  # around the statement that is written
        self._count = 0
        self._slots: dict[str, str] = {}
        self.facts = ProgramFacts(program)

    # -- the function ---------------------------------------------------------------------------

    def module(self) -> str:
        """Return the text of the module."""
        self._entry()
        begin = len(self.lines)
        if not self._body(self.program.body):
            self._jump(self._exit(FELL_OUT))
        self._leave()
        if self.program.raises:
            self.lines[begin:begin] = [
                *self._get_flags("%flags.before"), "  %flags.none = and i32 %flags.before, -14",
                *self._set_flags("%flags.none")]
        allocas = self._allocas()
        body = "\n".join(["entry:", *allocas, *self.head, *self.lines])
        code = (f"define i64 @{SYMBOL}(ptr noalias %state) nounwind {{\n{body}\n}}\n")
        flags = self._float_ir() if self.program.raises and self.calls else ""
        return (f'{PIPELINE}target triple = "{self.target.triple}"\n{flags}'
                f"{''.join(self.declared.values())}{code}{UNLIKELY}")

    @property
    def calls(self) -> bool:
        """Whether flags are read and set by the C library.

        What a program calls may raise them where only that looks: glibc raises some in the x87 unit.
        """
        return self.machine != "x86_64" or bool(self.declared)

    def _float_ir(self) -> str:
        text = float_ir(self.machine, library=True)
        for name in sorted(set(re.findall(r"\$(\w+)", text))):
            symbol = f'@"{c_symbol(name)}"'
            slot = f"@slot.{name}"
            self.declared[symbol] = f"declare i32 {symbol}(i32)\n{slot} = internal constant ptr {symbol}\n"
            text = text.replace(f"${name}", slot)
        return text

    def _get_flags(self, name: str) -> list[str]:
        """Return the load of the flags, bits 0 "invalid", 2 "divide", 3 "overflow", as x86 has them."""
        if self.calls:
            return [f"  {name} = call i32 @float.get()"]
        place = self._slot("mxcsr", "i32")
        return [f"  call void @llvm.x86.sse.stmxcsr(ptr {place})", f"  {name} = load i32, ptr {place}"]

    def _set_flags(self, value: str) -> list[str]:
        if self.calls:
            return [f"  call void @float.set(i32 {value})"]
        place = self._slot("mxcsr", "i32")
        return [f"  store i32 {value}, ptr {place}", f"  call void @llvm.x86.sse.ldmxcsr(ptr {place})"]

    # -- variables ------------------------------------------------------------------------------

    def _store(self, place: str, kind: str, text: str) -> None:
        """Write an assignment to the memory of a variable; reads of what it dominates need no memory."""
        self._start(place, kind, text)
        if place in self.single:
            self.known[place] = text
            self.scopes[-1].append(place)

    def _load(self, place: str, kind: str) -> str:
        """Write a read of the memory of a variable."""
        if place in self.known:
            return self.known[place]
        self.loaded[place] = kind
        return self.b.line(f"load {kind}, ptr {place}")

    def _close_scope(self) -> None:
        """End the statements that the assignments since the scope was opened dominate."""
        for place in self.scopes.pop():
            self.known.pop(place, None)

    def _allocas(self) -> list[str]:
        """Return the memory of variables; remove the assignments to those that are never loaded."""
        unused = self.stored - self.loaded.keys()
        self.lines = [line for line in self.lines
                      if not line.startswith("  store ") or line.rpartition(", ptr ")[2] not in unused]
        return [f"  {place} = alloca {kind}" for place, kind in self.loaded.items()]

    def _place(self, prefix: str, name: str) -> str:
        place = self.places.get((prefix, name))
        if place is None:
            place = self.places[prefix, name] = f"%{_quoted(f'{prefix}${name}')}"
        return place

    def _state(self, word: int) -> str:
        return self.b.line(f"getelementptr i64, ptr %state, i64 {word}")

    def _entry(self) -> None:
        """Write the loads of what the program is entered with."""
        for variable in self.variables:
            if variable.name not in self.program.parameters:
                self._clear(variable)
        for name in self.program.parameters:
            word = self.layout.places[name]
            if name in self.scalars:
                self.assign(self.scalars[name], self.b.load(self._state(word), self.scalars[name].dtype))
                continue
            for k, (prefix, kind) in enumerate(_words_of(self.views[name])):
                value = self.b.line(f"load {kind}, ptr {self._state(word + k)}, align 8")
                self._store(self._place(prefix, name), kind, value)
        for k, place in enumerate(("%arena", "%arena.end")):
            value = self.b.line(f"load i64, ptr {self._state(self.layout.arena + k)}, align 8")
            self._store(place, "i64", value)
        for name in ("low", "middle", "high", "half") if self.halves else ():
            self._start(f"%arena.{name}", "i64", "0")

    def _clear(self, variable: ir.ScalarVariable | ir.ViewVariable) -> None:
        """Write zeros to a variable that has no value on entry: reads of it are not undefined behaviour."""
        if isinstance(variable, ir.ScalarVariable):
            for prefix in _PARTS[variable.dtype.kind == "c"]:
                part = part_of(variable.dtype)
                zero = "false" if part == BOOL else "0.0" if part.kind == "f" else "0"
                self._start(self._place(prefix, variable.name), element_type(part), zero)
            return
        for prefix, kind in _words_of(variable):
            self._start(self._place(prefix, variable.name), kind, "null" if kind == "ptr" else "0")

    def _start(self, place: str, kind: str, text: str) -> None:
        self.stored.add(place)
        self.lines.append(f"  store {kind} {text}, ptr {place}")

    def _leave(self) -> None:
        """Write the exits, and the stores of what the program gives back."""
        for number in sorted(self.exits):
            self._begin(f"exit.{number}")
            self._start("%exit.number", "i64", str(number))
            self._jump("leave")
        self._begin("leave")
        for name in self.program.results:
            word = self.layout.places[name]
            if name in self.scalars:
                self.b.store(self._get(self.scalars[name]), self._state(word))
                continue
            for k, (prefix, kind) in enumerate(_words_of(self.views[name])):
                self._put(kind, self._load(self._place(prefix, name), kind), self._state(word + k))
        result = self._load("%exit.number", "i64")
        if self.program.raises:
            self.lines += [
                *self._get_flags("%flags.now"), "  %flags.all = or i32 %flags.now, %flags.before",
                *self._set_flags("%flags.all"),
                "  %flags.high = lshr i32 %flags.now, 2", "  %flags.two = and i32 %flags.high, 3",
                "  %flags.low = shl i32 %flags.now, 2", "  %flags.one = and i32 %flags.low, 4",
                "  %flags.three = or i32 %flags.two, %flags.one",
                "  %flags.wide = zext i32 %flags.three to i64",
                "  %flags.word = shl i64 %flags.wide, 32"]
            result = self.b.line(f"or i64 {result}, %flags.word")
        self.lines.append(f"  ret i64 {result}")

    # -- lines ----------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        self._count += 1
        return f"{hint}${self._count}"

    def _begin(self, label: str) -> None:
        self.lines.append(f"{_quoted(label)}:")

    def _jump(self, label: str) -> None:
        self.lines.append(f"  br label %{_quoted(label)}")

    def _branch(self, test: str, yes: str, no: str, tail: str = "") -> None:
        self.lines.append(f"  br i1 {test}, label %{_quoted(yes)}, label %{_quoted(no)}{tail}")

    def _put(self, kind: str, value: str, place: str) -> None:
        self.lines.append(f"  store {kind} {value}, ptr {place}, align 8")

    def _exit(self, number: int) -> str:
        self.exits.add(number)
        return f"exit.{number}"

    def exit_if(self, test: str, number: int) -> None:
        """Leave the program by exit `number` where `test` holds."""
        fine = self.fresh("fine")
        self._branch(test, self._exit(number), fine, ", !prof !0")
        self._begin(fine)

    def _word(self, text: str) -> Value:
        return Value(ir.INT64, self.b.line(text))

    def assign(self, scalar: ir.ScalarVariable, x: Value) -> None:
        for prefix, part in zip(_PARTS[scalar.dtype.kind == "c"], x.parts, strict=True):
            self._store(self._place(prefix, scalar.name), element_type(part.dtype), part.text)

    def _get(self, scalar: ir.ScalarVariable) -> Value:
        if scalar.dtype.kind != "c":
            place = self._place("s", scalar.name)
            return Value(scalar.dtype, self._load(place, element_type(scalar.dtype)))
        part = part_of(scalar.dtype)
        kind = element_type(part)
        texts = [self._load(self._place(prefix, scalar.name), kind) for prefix in _PARTS[True]]
        return whole(scalar.dtype, [Value(part, text) for text in texts])

    # -- statements -----------------------------------------------------------------------------

    def _body(self, body: Sequence[ir.Statement]) -> bool:
        """Write statements; return whether control never gets behind them."""
        self.scopes.append([])
        ended = any(map(self._statement, body))
        self._close_scope()
        return ended

    def _statement(self, statement: ir.Statement) -> bool:
        match statement:
            case ir.Assign(name, value):
                self.assign(self.scalars[name], self.value(value))
            case ir.StoreElement(view, index, value):
                places = [self.value(i) for i in index]
                result = self.value(value)
                self.b.store(result, self._element(view, places))
            case ir.BindView():
                self._bind(statement)
            case ir.BindMemory(name, address, shape, strides):
                pointer = self.b.line(f"inttoptr i64 {self.value(address).text} to ptr")
                words = [(self.value(size).text, self.value(stride).text)
                         for size, stride in zip(shape, strides, strict=True)]
                self._store(self._place("p", name), "ptr", pointer)
                self._put_words(name, words)
            case ir.Allocate():
                self._allocate(statement)
            case ir.Check(test, number):
                self.exit_if(self.value(test).text, number)
            case ir.If():
                return self._if(statement)
            case ir.For():
                self._for(statement)
            case ir.Repeat(label, body):
                head, behind = self.fresh(f"{label}.head"), self.fresh(f"{label}.out")
                self._enter_loop()
                self._jump(head)
                self._begin(head)
                self._reset_arena()
                if not self._inside(_Label(label, behind, head), body, loop=True):
                    self._jump(head)
                self._begin(behind)
            case ir.Block(label, body):
                behind = self.fresh(f"{label}.out")
                if not self._inside(_Label(label, behind, None), body, loop=False):
                    self._jump(behind)
                self._begin(behind)
            case ir.Break(label):
                self._jump(self._label(label).behind)
                return True
            case ir.Continue(label):
                again = self._label(label).again
                if again is None:
                    raise BackendError(f"{label} is no loop")
                self._jump(again)
                return True
            case ir.Leave(number):
                self._jump(self._exit(number))
                return True
            case ir.InnerLoop():
                self._inner_loop(statement)
            case ir.Dot():
                self._dot(statement)
            case ir.Sort():
                self._sort(statement)
        return False

    def _label(self, name: str) -> _Label:
        for label in reversed(self.labels):
            if label.name == name:
                return label
        raise BackendError(f"there is no {name} around")

    def _inside(self, label: _Label, body: Sequence[ir.Statement], loop: bool) -> bool:
        self.labels.append(label)
        self.loops += loop
        ended = self._body(body)
        self.loops -= loop
        self.labels.pop()
        return ended

    def _enter_loop(self) -> None:
        """Write what comes before a loop: the outermost one keeps where the arena begins."""
        if not self.loops:
            low = self._load("%arena", "i64")
            self._start("%arena.low", "i64", low)
            if self.halves:
                high = self._load("%arena.end", "i64")
                both = self.b.line(f"sub i64 {high}, {low}")
                middle = self.b.line(f"add i64 {low}, {self.b.line(f'lshr i64 {both}, 1')}")
                for name, value in (("middle", middle), ("high", high), ("half", middle)):
                    self._start(f"%arena.{name}", "i64", value)

    def _halves(self) -> tuple[str, str, str, str]:
        """Write whether memory is allocated from the first half, and the loads of the ends of both halves."""
        low, middle, high, half = (
            self._load(f"%arena.{name}", "i64") for name in ("low", "middle", "high", "half"))
        return self.b.line(f"icmp eq i64 {half}, {low}"), low, middle, high

    def _reset_arena(self) -> None:
        """Write that memory is allocated from the begin of the arena again, or of its other half."""
        if self.loops:
            return
        if not self.halves:
            self._start("%arena", "i64", self._load("%arena.low", "i64"))
            return
        is_first, low, middle, high = self._halves()
        begin = self.b.line(f"select i1 {is_first}, i64 {middle}, i64 {low}")
        end = self.b.line(f"select i1 {is_first}, i64 {high}, i64 {middle}")
        for place, value in (("%arena.half", begin), ("%arena", begin), ("%arena.end", end)):
            self._start(place, "i64", value)

    def _expires(self, view: str) -> Value:
        """Write whether the memory of a view lies in the half of the arena that is not in use."""
        is_first, low, middle, high = self._halves()
        pointer = self.b.line(f"ptrtoint ptr {self._data(view)} to i64")
        begin = self.b.line(f"select i1 {is_first}, i64 {middle}, i64 {low}")
        end = self.b.line(f"select i1 {is_first}, i64 {high}, i64 {middle}")
        above = self.b.line(f"icmp uge i64 {pointer}, {begin}")
        below = self.b.line(f"icmp ult i64 {pointer}, {end}")
        return Value(BOOL, self.b.line(f"and i1 {above}, {below}"))

    def _if(self, statement: ir.If) -> bool:
        test = self.value(statement.test).text
        then, other, behind = (self.fresh(hint) for hint in ("then", "else", "endif"))
        self._branch(test, then, other if statement.otherwise else behind)
        self._begin(then)
        ended = self._body(statement.then)
        if not ended:
            self._jump(behind)
        if statement.otherwise:
            self._begin(other)
            if self._body(statement.otherwise):
                if ended:
                    return True
            else:
                self._jump(behind)
        self._begin(behind)
        return False

    def _for(self, loop: ir.For) -> None:
        """Write a counted loop; steps of one end by comparison, others by the number of iterations."""
        if not loop.step:
            raise BackendError("a loop with step 0")
        begin, end = self.value(loop.begin).text, self.value(loop.end).text
        tag = self.fresh(loop.label)
        first, inside, latch, behind = (f"{tag}.{part}" for part in ("in", "body", "next", "out"))
        counter, following = f"%{_quoted(f'{tag}.i')}", f"%{_quoted(f'{tag}.i.next')}"
        up = loop.step > 0
        some = self.b.line(f"icmp {'slt' if up else 'sgt'} i64 {begin}, {end}")
        single = abs(loop.step) == 1
        if not single:
            span = self.b.line(f"sub i64 {end}, {begin}" if up else f"sub i64 {begin}, {end}")
            less = self.b.line(f"sub i64 {span}, 1")
            last = self.b.line(f"udiv i64 {less}, {abs(loop.step)}")
        self._branch(some, first, behind)
        self._begin(first)
        self._enter_loop()
        before, code = first, self._vectors(loop, begin, end, counter, first, f"{tag}.rest", behind)
        if code is not None:
            self.lines += code.lines
            before, begin = f"{tag}.rest", code.start
        self._jump(inside)
        self._begin(inside)
        self.lines.append(f"  {counter} = phi i64 [ {begin}, %{_quoted(before)} ], "
                          f"[ {following}, %{_quoted(latch)} ]")
        if not single:
            count, count_next = f"%{_quoted(f'{tag}.n')}", f"%{_quoted(f'{tag}.n.next')}"
            self.lines.append(f"  {count} = phi i64 [ 0, %{_quoted(before)} ], "
                              f"[ {count_next}, %{_quoted(latch)} ]")
        self._reset_arena()
        if code is not None:
            self.lines += code.single
            self._jump(latch)
        else:
            self.scopes.append([])
            self.assign(self.scalars[loop.name], Value(ir.INT64, counter))
            if not self._inside(_Label(loop.label, behind, latch), loop.body, loop=True):
                self._jump(latch)
            self._close_scope()
        self._begin(latch)
        if single:
            self.lines.append(f"  {following} = add nsw i64 {counter}, {loop.step}")
            more = self.b.line(f"icmp {'slt' if up else 'sgt'} i64 {following}, {end}")
        else:
            self.lines.append(f"  {following} = add i64 {counter}, {loop.step}")
            more = self.b.line(f"icmp ult i64 {count}, {last}")
            self.lines.append(f"  {count_next} = add nuw i64 {count}, 1")
        self._branch(more, inside, behind)
        self._begin(behind)

    def _vectors(self, loop: ir.For, begin: str, end: str, counter: str, *blocks: str) -> WrittenLoop | None:
        """Write a loop with vectors of its iterations; None if it has none."""
        simple = (ir.Assign, ir.StoreElement, ir.Check)
        if not self.vectors or not all(isinstance(s, simple) for s in loop.body):
            return None
        plan = find_vector_loop(loop, self.facts)
        if isinstance(plan, str):
            return None
        self.scopes.append([])
        try:
            return write_loop(self, plan, begin, end, counter, *map(_quoted, blocks))
        except BackendError:
            return None
        finally:
            self._close_scope()

    # -- views ----------------------------------------------------------------------------------

    def _data(self, view: str) -> str:
        return self._load(self._place("p", view), "ptr")

    def view_word(self, view: str, kind: str, axis: int) -> str:
        return self._load(self._place(f"{kind}{axis}", view), "i64")

    def _element(self, view: str, index: Sequence[Value]) -> str:
        """Write the address of an element."""
        return self.moved(view, list(enumerate(index)))

    def moved(self, view: str, offsets: Sequence[tuple[int, Value]]) -> str:
        """Write the address that is some elements further along some axes."""
        total = ""
        for axis, at in offsets:
            if at.text == "0":
                continue
            step = self.b.line(f"mul nsw i64 {at.text}, {self.view_word(view, 'stride', axis)}")
            total = self.b.line(f"add nsw i64 {total}, {step}") if total else step
        pointer = self._data(view)
        return self.b.line(f"getelementptr i8, ptr {pointer}, i64 {total}") if total else pointer

    def _bind(self, statement: ir.BindView) -> None:
        source = statement.source
        moves = [(axis, self.value(at)) for axis, at in statement.points]
        words: list[tuple[str, str]] = []
        for axis in statement.axes:
            begin, length, step = (self.value(v) for v in (axis.begin, axis.length, axis.step))
            if axis.axis is None:
                words.append((length.text, "0"))
                continue
            moves.append((axis.axis, begin))
            stride = self.view_word(source, "stride", axis.axis)
            apart = stride if step.text == "1" else self.b.line(f"mul i64 {stride}, {step.text}")
            words.append((length.text, apart))
        pointer = self.moved(source, moves)
        self._store(self._place("p", statement.name), "ptr", pointer)
        self._put_words(statement.name, words)

    def _put_words(self, view: str, words: Sequence[tuple[str, str]]) -> None:
        """Write the assignment of sizes and strides."""
        for axis, (size, stride) in enumerate(words):
            self._store(self._place(f"size{axis}", view), "i64", size)
            self._store(self._place(f"stride{axis}", view), "i64", stride)

    def _allocate(self, statement: ir.Allocate) -> None:
        view = self.views[statement.name]
        sizes = [self.value(v).text for v in statement.shape]
        for size in sizes:
            self.exit_if(self.b.line(f"icmp slt i64 {size}, 0"), statement.exit)
        strides, step, empty = [], str(view.dtype.itemsize), "false"
        for size in reversed(sizes):
            strides.append(step)
            some = self.b.line(f"call i64 @llvm.umax.i64(i64 {size}, i64 1)")
            step = self._fitting("umul", step, some, statement.exit)
            none = self.b.line(f"icmp eq i64 {size}, 0")
            empty = self.b.line(f"or i1 {empty}, {none}")
        bytes_ = self.b.line(f"select i1 {empty}, i64 0, i64 {step}")
        more = self._fitting("uadd", bytes_, str(ALIGNMENT - 1), statement.exit)
        needed = self.b.line(f"and i64 {more}, {-ALIGNMENT}")
        at, end = self._load("%arena", "i64"), self._load("%arena.end", "i64")
        low = self.b.line(f"add i64 {at}, {ALIGNMENT - 1}")
        begin = self.b.line(f"and i64 {low}, {-ALIGNMENT}")
        room = self.b.line(f"sub i64 {end}, {begin}")
        self.exit_if(self.b.line(f"icmp sgt i64 {begin}, {end}"), statement.exit)
        self.exit_if(self.b.line(f"icmp ugt i64 {needed}, {room}"), statement.exit)
        self._start("%arena", "i64", self.b.line(f"add i64 {begin}, {needed}"))
        pointer = self.b.line(f"inttoptr i64 {begin} to ptr")
        if statement.zero:
            self.lines.append(
                f"  call void @llvm.memset.p0.i64(ptr align {ALIGNMENT} {pointer}, i8 0, i64 {bytes_}, "
                "i1 false)")
        self._store(self._place("p", statement.name), "ptr", pointer)
        self._put_words(statement.name, list(zip(sizes, reversed(strides), strict=True)))

    def _fitting(self, op: str, x: str, y: str, number: int) -> str:
        """Write unsigned arithmetic of words that leaves by exit `number` where it overflows."""
        pair = self.b.line(f"call {{ i64, i1 }} @llvm.{op}.with.overflow.i64(i64 {x}, i64 {y})")
        self.exit_if(self.b.line(f"extractvalue {{ i64, i1 }} {pair}, 1"), number)
        return self.b.line(f"extractvalue {{ i64, i1 }} {pair}, 0")

    # -- values ---------------------------------------------------------------------------------

    def value(self, value: ir.Value) -> Value:
        """Write the instructions that compute `value`."""
        match value:
            case ir.Number(dtype, bits):
                return self.b.const(np.frombuffer(bits, dtype)[0], dtype)
            case ir.Read(name, _):
                return self._get(self.scalars[name])
            case ir.Element(view, index, dtype):
                return self.b.load(self._element(view, [self.value(i) for i in index]), dtype)
            case ir.Extent(view, axis):
                return Value(ir.INT64, self.view_word(view, "size", axis))
            case ir.Stride(view, axis):
                return Value(ir.INT64, self.view_word(view, "stride", axis))
            case ir.Expires(view):
                return self._expires(view)
            case ir.Pointer(view, index):
                pointer = self._element(view, [self.value(i) for i in index])
                return self._word(f"ptrtoint ptr {pointer} to i64")
            case ir.Checked():
                return self._checked(value)
            case ir.Foreign(function, args):
                return self._foreign(function, [self.value(a) for a in args], value.dtype)
            case ir.Apply():
                return self._apply(value)

    def _apply(self, value: ir.Apply) -> Value:
        return self.operator(self.b, value, [self.value(a) for a in cast(tuple[ir.Value, ...], value.args)])

    def operator(self, b: ExactText, value: ir.Apply, args: Sequence[Value]) -> Value:
        """Write an operator of the op table by its recipe, or one scalar by the inner loop of its ufunc."""
        op, attrs = lookup(value.op), dict(value.attrs)
        if op.kind is not Kind.CELL:
            raise BackendError(f"{op.name} is not element-wise")
        dtypes = tuple(a.dtype for a in args)
        wanted = op.resolve(dtypes, attrs)
        if wanted != dtypes:
            convert = lookup("cast")
            pairs = zip(args, wanted, strict=True)
            args = [convert.emit(b, a, {"dtype": w}) for a, w in pairs if convert.emit is not None]
        before, fuses = len(b.lines), b.fuses
        b.fuses = fuses and not attrs.pop("rounded", False)
        try:
            result = op.emit(b, *args, attrs) if op.emit and op.name not in _BY_POSITION else None
        except BackendError:
            if not _ufunc_name(op):
                raise
            del b.lines[before:]
            result = None
        b.fuses = fuses
        if result is None:
            if b is not self.b:
                raise BackendError(f"{op.name} has no vectors")
            result = self._call_loop(op, args, value.dtype)
        found: Value = result if result.dtype is value.dtype else replace(result, dtype=value.dtype)
        return found

    def _math(self, b: LlvmBuilder, name: str, xs: Sequence[Value]) -> Value:
        """Write a call of NumPy's inner loop, for one element, of a function that has no verb."""
        dtype = xs[0].dtype
        return self._call_loop(lookup(name), list(xs), dtype)

    def _call_loop(self, op: OpSpec, args: Sequence[Value], dtype: np.dtype) -> Value:
        """Write a call of the inner loop of a ufunc for one element, with NumPy's steps for scalars."""
        name = _ufunc_name(op)
        if not name:
            raise BackendError(f"{op.name} of {', '.join(str(a.dtype) for a in args)} has no recipe")
        dtypes = [a.dtype for a in args]
        types = find_loop(name, [*dtypes, dtype])
        if types is None:
            raise BackendError(f"{name} has no loop for {', '.join(map(str, dtypes))}")
        places = []
        for k, arg in enumerate(args):
            place = self._slot(f"one.{k}", "[16 x i8]")
            self.b.store(arg, place)
            places.append(place)
        result = self._slot(f"one.{len(args)}", "[16 x i8]")
        steps = ["0"] * len(args) + [str(dtype.itemsize)]
        self._call_routine(f"{name}.{types}", [*places, result], ["1"], steps)
        return self.b.load(result, dtype)

    def _slot(self, name: str, kind: str) -> str:
        """Return memory on the stack that statements share."""
        place = f"%{_quoted(name)}"
        if place not in self._slots:
            self._slots[place] = kind
            self.head.append(f"  {place} = alloca {kind}, align 16")
        return place

    def _filled(self, name: str, kind: str, values: Sequence[str]) -> str:
        """Write a table of words on the stack."""
        place = self._slot(f"{name}.{len(values)}", f"[{len(values)} x i64]")
        for k, value in enumerate(values):
            at = self.b.line(f"getelementptr i64, ptr {place}, i64 {k}")
            self._put(kind, value, at)
        return place

    def _call_routine(
        self, routine: str, pointers: Sequence[str], dims: Sequence[str], steps: Sequence[str]
    ) -> None:
        pair = f'@"{loop_symbol(routine)}"'
        self.declared[pair] = f"{pair} = external constant [2 x ptr]\n"
        args = self._filled("args", "ptr", pointers)
        counts, apart = self._filled("dims", "i64", dims), self._filled("steps", "i64", steps)
        code = self.b.line(f"load ptr, ptr {pair}, align 8")
        second = self.b.line(f"getelementptr i8, ptr {pair}, i64 8")
        data = self.b.line(f"load ptr, ptr {second}, align 8")
        call = f"  call void {code}(ptr {args}, ptr {counts}, ptr {apart}, ptr {data}) nounwind"
        name = routine.partition(".")[0]
        if not self.program.raises or name in _FLAG_KEEPING:
            self.lines.append(call)
        elif name in _FLAG_DROPPING:
            self._without_flags(call)
        else:
            before, now, both = (f"%{self.fresh(f'flags.{word}')}" for word in ("kept", "new", "both"))
            self.lines += [*self._get_flags(before), call, *self._get_flags(now),
                           f"  {both} = or i32 {before}, {now}", *self._set_flags(both)]

    def _without_flags(self, call: str) -> None:
        """Write a call whose floating-point flags are not looked at."""
        if not self.program.raises:
            self.lines.append(call)
            return
        before = f"%{self.fresh('flags.kept')}"
        self.lines += [*self._get_flags(before), call, *self._set_flags(before)]

    def _sort(self, statement: ir.Sort) -> None:
        values, indices = statement.values, statement.indices
        pair = f'@"{sort_symbol(self.views[values.view].dtype, statement.kind, indices is not None)}"'
        self.declared[pair] = f"{pair} = external constant [2 x ptr]\n"
        places = [self._operand(place, {}) for place in (values, indices) if place is not None]
        length = self.value(statement.length).text
        code = self.b.line(f"load ptr, ptr {pair}, align 8")
        failed = f"%{self.fresh('sort')}"
        self._without_flags(f"  {failed} = call i32 {code}({', '.join(f'ptr {place}' for place in places)}, "
                            f"i64 {length}, ptr null) nounwind")
        self.exit_if(self.b.line(f"icmp ne i32 {failed}, 0"), statement.exit)

    def _foreign(self, function: str, args: list[Value], dtype: np.dtype) -> Value:
        kind = element_type(dtype)
        symbol = f'@"{c_symbol(function)}"'
        # what is called raises flags, which are no memory that a program sees
        effect = "inaccessiblemem: readwrite" if self.program.raises else "none"
        self.declared[symbol] = (f"declare {kind} {symbol}({', '.join(kind for _ in args)}) "
                                 f"nounwind willreturn memory({effect})\n")
        given = ", ".join(f"{kind} {a.text}" for a in args)
        return Value(dtype, self.b.line(f"call {kind} {symbol}({given})"))

    # -- checked arithmetic ---------------------------------------------------------------------

    def _checked(self, value: ir.Checked) -> Value:
        args = [self.value(a) for a in value.args]
        dtype, number = value.dtype, value.exit
        if value.op == "cast":
            return self._checked_cast(args[0], dtype, number)
        if dtype.kind not in "iu" or any(a.dtype != dtype for a in args):
            raise BackendError(f"checked {value.op} of {', '.join(str(a.dtype) for a in args)}")
        zero = self.b.const(0, dtype)
        match value.op, args:
            case ("add" | "sub" | "mul") as op, [x, y]:
                return self._overflowing(op, x, y, number)
            case "neg", [x]:
                return self._overflowing("sub", zero, x, number)
            case "shl", [x, y]:
                width = 8 * dtype.itemsize
                kind = self.b.type(dtype)
                self.exit_if(self.b.line(f"icmp uge {kind} {y.text}, {width}"), number)
                moved = Value(dtype, self.b.line(f"shl {kind} {x.text}, {y.text}"))
                back = "ashr" if dtype.kind == "i" else "lshr"
                again = Value(dtype, self.b.line(f"{back} {kind} {moved.text}, {y.text}"))
                self.exit_if(self.b.ne(again, x).text, number)
                return moved
            case ("floordiv" | "mod") as op, [x, y]:
                return self._floored(op, x, y, number)
        raise BackendError(f"checked {value.op} of {len(args)} operands")

    def _overflowing(self, op: str, x: Value, y: Value, number: int) -> Value:
        kind, sign = self.b.type(x.dtype), "s" if x.dtype.kind == "i" else "u"
        pair = self.b.line(
            f"call {{ {kind}, i1 }} @llvm.{sign}{op}.with.overflow.{kind}({kind} {x.text}, {kind} {y.text})")
        self.exit_if(self.b.line(f"extractvalue {{ {kind}, i1 }} {pair}, 1"), number)
        return Value(x.dtype, self.b.line(f"extractvalue {{ {kind}, i1 }} {pair}, 0"))

    def _floored(self, op: str, x: Value, y: Value, number: int) -> Value:
        """Write the quotient rounded down, or its remainder; the least integer over -1 does not fit."""
        dtype, kind = x.dtype, self.b.type(x.dtype)
        zero = self.b.const(0, dtype)
        self.exit_if(self.b.eq(y, zero).text, number)
        if dtype.kind == "u":
            how = "udiv" if op == "floordiv" else "urem"
            return Value(dtype, self.b.line(f"{how} {kind} {x.text}, {y.text}"))
        one, minus = self.b.const(1, dtype), self.b.const(-1, dtype)
        over_minus = self.b.eq(y, minus)
        if op == "floordiv":
            least = self.b.eq(x, self.b.const(np.iinfo(dtype).min, dtype))
            self.exit_if(self.b.and_(least, over_minus).text, number)
            safe = y
        else:
            safe = self.b.select(over_minus, one, y)
        rest = Value(dtype, self.b.line(f"srem {kind} {x.text}, {safe.text}"))
        apart = self.b.lt(self.b.xor(rest, y), zero)
        off = self.b.and_(self.b.ne(rest, zero), apart)
        if op == "mod":
            return self.b.add(rest, self.b.select(off, y, zero))
        quotient = Value(dtype, self.b.line(f"sdiv {kind} {x.text}, {safe.text}"))
        return self.b.sub(quotient, self.b.select(off, one, zero))

    def _checked_cast(self, x: Value, dtype: np.dtype, number: int) -> Value:
        """Write a cast that leaves by exit `number` where the value is not representable."""
        b, source = self.b, x.dtype
        if source == dtype:
            return x
        if source.kind not in "biuf" or dtype.kind not in "biuf":
            raise BackendError(f"checked cast of {source} to {dtype}")
        if source == BOOL:
            return b.cast(x, dtype)
        if dtype == BOOL:
            zero, one = b.eq(x, b.const(0, source)), b.eq(x, b.const(1, source))
            self.exit_if(b.not_(b.or_(zero, one)).text, number)
            return one
        if source.kind == "f":
            return self._cast_of_float(x, dtype, number)
        if dtype.kind == "f":
            return self._cast_to_float(x, dtype, number)
        result = b.cast(x, dtype)
        if not np.can_cast(source, dtype):
            wrong = b.ne(b.cast(result, source), x)
            if source.kind == "i" and dtype.kind == "u":
                wrong = b.or_(wrong, b.lt(x, b.const(0, source)))
            elif source.kind == "u" and dtype.kind == "i":
                wrong = b.or_(wrong, b.lt(result, b.const(0, dtype)))
            self.exit_if(wrong.text, number)
        return result

    def _cast_of_float(self, x: Value, dtype: np.dtype, number: int) -> Value:
        b, source = self.b, x.dtype
        if dtype.kind == "f":
            if dtype.itemsize > source.itemsize:
                return b.cast(x, dtype)
            narrow = b.cast(x, dtype)
            self.exit_if(b.ne(b.cast(narrow, source), x).text, number)
            return narrow
        info = np.iinfo(dtype)
        fits = b.and_(b.ge(x, b.const(float(info.min), source)),
                      b.lt(x, b.const(float(info.max + 1), source)))
        self.exit_if(b.not_(fits).text, number)
        result = b.to_integer(x, dtype)
        self.exit_if(b.ne(b.cast(result, source), x).text, number)
        return result

    def _cast_to_float(self, x: Value, dtype: np.dtype, number: int) -> Value:
        b, source = self.b, x.dtype
        result = b.cast(x, dtype)
        if np.can_cast(source, dtype) and 8 * source.itemsize <= np.finfo(dtype).nmant + 1:
            return result
        top = b.const(float(np.iinfo(source).max + 1), dtype)
        near = b.lt(result, top)
        self.exit_if(b.not_(near).text, number)
        self.exit_if(b.ne(b.to_integer(result, source), x).text, number)
        return result

    # -- routines -------------------------------------------------------------------------------

    def _operand(self, operand: ir.Operand, copies: dict[str, str]) -> str:
        """Write the address of an operand; scalars are copied, for their memory to remain registers."""
        if isinstance(operand, ir.Address):
            return self._element(operand.view, [self.value(i) for i in operand.index])
        if operand.name not in copies:
            place = self._slot(f"copy.{len(copies)}", "[16 x i8]")
            self.b.store(self._get(self.scalars[operand.name]), place)
            copies[operand.name] = place
        return copies[operand.name]

    def _copy_back(self, copies: dict[str, str]) -> None:
        for name, place in copies.items():
            scalar = self.scalars[name]
            self.assign(scalar, self.b.load(place, scalar.dtype))

    def _inner_loop(self, statement: ir.InnerLoop) -> None:
        copies: dict[str, str] = {}
        pointers = [self._operand(o, copies) for o in statement.operands]
        dims = [self.value(v).text for v in statement.dims]
        steps = [self.value(v).text for v in statement.steps]
        self._call_routine(statement.routine, pointers, dims, steps)
        self._copy_back(copies)

    def _dot(self, statement: ir.Dot) -> None:
        copies: dict[str, str] = {}
        a, b, out = (self._operand(o, copies) for o in (statement.a, statement.b, statement.out))
        a_step, b_step = self.value(statement.a_step).text, self.value(statement.b_step).text
        length = self.value(statement.length).text
        pair = f'@"{dot_symbol(statement.dtype)}"'
        self.declared[pair] = f"{pair} = external constant [2 x ptr]\n"
        code = self.b.line(f"load ptr, ptr {pair}, align 8")
        self.lines.append(f"  call void {code}(ptr {a}, i64 {a_step}, ptr {b}, i64 {b_step}, ptr {out}, "
                          f"i64 {length}, ptr null) nounwind")
        self._copy_back(copies)


def _words_of(view: ir.ViewVariable) -> list[tuple[str, str]]:
    """Return a prefix and the type of each word of a view, in the order of the state."""
    words = [(f"{kind}{axis}", "i64") for kind in ("size", "stride") for axis in range(view.ndim)]
    return [("p", "ptr"), *words]


def _assigned_once(program: ir.LoopProgram) -> frozenset[str]:
    """Return the variables with a single assignment; that of a parameter is the entry."""
    counts = Counter(program.parameters)
    stack = [program.body]
    while stack:
        for statement in stack.pop():
            match statement:
                case ir.Assign() | ir.BindView() | ir.BindMemory() | ir.Allocate():
                    counts[statement.name] += 1
                case ir.For():
                    counts[statement.name] += 1
                    stack.append(statement.body)
                case ir.Repeat() | ir.Block():
                    stack.append(statement.body)
                case ir.If():
                    stack += [statement.then, statement.otherwise]
                case ir.InnerLoop():
                    counts.update(o.name for o in statement.operands if isinstance(o, ir.Place))
                case ir.Dot():
                    operands = (statement.a, statement.b, statement.out)
                    counts.update(o.name for o in operands if isinstance(o, ir.Place))
    return frozenset(name for name, times in counts.items() if times == 1)


def _ufunc_name(op: OpSpec) -> str:
    """Return the name of the ufunc that `op` stands for, or nothing."""
    return next((f.__name__ for f in op.numpy if isinstance(f, np.ufunc)), "")
