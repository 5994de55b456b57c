"""The processor's floating-point flags as IR: read, cleared, put back, and not raised for nothing.

Knows: where each processor keeps its sticky flags. Must not know: kernels, threads, warnings.
Receives a machine's name; returns the IR of `@float.get` and `@float.set`. Receives IR; returns quiet IR.

Whatever the machine, a word of flags has the bits of x86: 1 invalid, 4 divide
by zero, 8 overflow.
"""

from __future__ import annotations

import re
from string import Template

__all__ = ["float_ir", "quiet"]

_X86 = """
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.sse.stmxcsr(ptr)
define internal i32 @float.get() nounwind {
  %p = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %p)
  %v = load i32, ptr %p
  ret i32 %v
}
define internal void @float.set(i32 %v) nounwind {
  %p = alloca i32, align 4
  store i32 %v, ptr %p
  call void @llvm.x86.sse.ldmxcsr(ptr %p)
  ret void
}
"""

# What the C library calls (invalid, divide by zero, overflow) on each machine.
_FENV = {"x86_64": (1, 4, 8), "aarch64": (1, 2, 4), "riscv64": (16, 8, 4)}

_LIBM = """
define internal i32 @float.get() nounwind {
  %f = load ptr, ptr $$fetestexcept
  %v = call i32 %f(i32 $all)
  %invalid = and i32 %v, $invalid
  %is.invalid = icmp ne i32 %invalid, 0
  %a = select i1 %is.invalid, i32 1, i32 0
  %divide = and i32 %v, $divide
  %is.divide = icmp ne i32 %divide, 0
  %b = select i1 %is.divide, i32 4, i32 0
  %over = and i32 %v, $overflow
  %is.over = icmp ne i32 %over, 0
  %c = select i1 %is.over, i32 8, i32 0
  %ab = or i32 %a, %b
  %r = or i32 %ab, %c
  ret i32 %r
}
define internal void @float.set(i32 %v) nounwind {
  %fc = load ptr, ptr $$feclearexcept
  call i32 %fc(i32 $all)
  %invalid = and i32 %v, 1
  %a = mul i32 %invalid, $invalid
  %divide = lshr i32 %v, 2
  %divide1 = and i32 %divide, 1
  %b = mul i32 %divide1, $divide
  %over = lshr i32 %v, 3
  %over1 = and i32 %over, 1
  %c = mul i32 %over1, $overflow
  %ab = or i32 %a, %b
  %raised = or i32 %ab, %c
  %some = icmp ne i32 %raised, 0
  br i1 %some, label %raise, label %out
raise:
  %fr = load ptr, ptr $$feraiseexcept
  call i32 %fr(i32 %raised)
  br label %out
out:
  ret void
}
"""

_NOWHERE = """
define internal i32 @float.get() nounwind { ret i32 0 }
define internal void @float.set(i32 %v) nounwind { ret void }
"""


_SIGNALLING = re.compile(
    r"= fcmp (o(?:lt|le|gt|ge)) (<(\d+) x (double|float)>|double|float) (.+), (.+)$", re.MULTILINE)


_CHOICE = re.compile(r"= select <1 x i1>")
# One element at a time LLVM makes branches of choices, and moves what is not chosen behind them: it
# would never be computed, and raise nothing.
_SINKING = re.compile(
    r"= (f(?:add|sub|mul|div)) <1 x (double|float)> (.+), (.+)$|"
    r"= call <1 x (double|float)> @llvm\.sqrt\.v1f\d+\(<1 x \w+> (.+)\)$", re.MULTILINE)
_CONVERTING = re.compile(
    r"= (fptosi|fptrunc) <(1) x (double|float)> (.+) to <1 x (i32|i64|float)>$", re.MULTILINE)
# What was widened before LLVM does not make narrow again, but takes as it was.
_NARROWING = re.compile(r"= (fptrunc) <(\d+) x (double)> (.+) to <\d+ x (float)>$", re.MULTILINE)
_BITS = {"double": "f64", "float": "f32"}


# Where processors have masks LLVM makes one instruction of an operation and a choice of its result, which
# then is not computed, and raises nothing, where it is not chosen. Of an operation on a choice that leaves
# some elements as they are it makes a choice between results: one more may be computed, and raise.
_CHOSEN = re.compile(
    r"^ *(%\S+) = select (<(\d+) x i1> .+), (<\d+ x (double|float)>) (.+), <\d+ x \w+> (.+)$", re.MULTILINE)


def _fenced(found: re.Match[str]) -> str:
    name, choice, lanes, vec, element, *arms = found.groups()
    fence = f"@llvm.arithmetic.fence.v{lanes}{_BITS[element]}"
    computed = [k for k, arm in enumerate(arms) if arm.startswith("%")]
    lines = [f"  {name}.of{k} = call {vec} {fence}({vec} {arms[k]})" for k in computed]
    of = ", ".join(f"{vec} {f'{name}.of{k}' if k in computed else arm}" for k, arm in enumerate(arms))
    chosen = [f"  {name}.as = select {choice}, {of}", f"  {name} = call {vec} {fence}({vec} {name}.as)"]
    return "\n".join([*lines, *chosen])


def _bound(found: re.Match[str]) -> str:
    how, kind, x, y, rooted, root = found.groups()
    kind = kind or rooted
    vec = f"<1 x {kind}>"
    args = f"{vec} {x}, {vec} {y}" if how else f"{vec} {root}"
    name = f"{how or 'sqrt'}.v1{_BITS[kind]}"
    return (f"= call {vec} @llvm.experimental.constrained.{name}({args}, "
            'metadata !"round.tonearest", metadata !"fpexcept.strict")')


def _converted(found: re.Match[str]) -> str:
    how, lanes, kind, x, wanted = found.groups()
    name = f"{how}.v{lanes}{_BITS.get(wanted, wanted)}.v{lanes}{_BITS[kind]}"
    rounding = 'metadata !"round.tonearest", ' if how == "fptrunc" else ""
    return (f"= call <{lanes} x {wanted}> @llvm.experimental.constrained.{name}(<{lanes} x {kind}> {x}, "
            f'{rounding}metadata !"fpexcept.strict")')


def _quietly(found: re.Match[str]) -> str:
    how, kind, lanes, element, x, y = found.groups()
    suffix = _BITS[element or kind]
    name = f"v{lanes}{suffix}" if lanes else suffix
    return (f"= call {f'<{lanes} x i1>' if lanes else 'i1'} @llvm.experimental.constrained.fcmp.{name}("
            f'{kind} {x}, {kind} {y}, metadata !"{how}", metadata !"fpexcept.ignore")')


# LLVM takes the other operand, or its opposite, for the result of these, which a signalling NaN is not.
_NEUTRAL = re.compile(
    r"= f(add|sub|mul|div) <(\d+) x (double|float)> (.+), splat \((?:double|float) (0x[0-9A-F]{16})\)$|"
    r"= f(add|sub|mul) <(\d+) x (double|float)> splat \((?:double|float) (0x[0-9A-F]{16})\), (.+)$",
    re.MULTILINE)
_ZERO, _MINUS_ZERO = "0x0000000000000000", "0x8000000000000000"
_ONES = frozenset({"0x3FF0000000000000", "0xBFF0000000000000"})
_NEUTRALS = {"add": {_MINUS_ZERO}, "sub": {_ZERO}, "opposite": {_MINUS_ZERO}, "mul": _ONES, "div": _ONES}


def _computed(found: re.Match[str]) -> str:
    how, lanes, kind, x, number = found.groups()[:5] if found[1] else [found[k] for k in (6, 7, 8, 10, 9)]
    vec, name = f"<{lanes} x {kind}>", f"f{how}.v{lanes}{_BITS[kind]}"
    operands = [f"{vec} {x}", f"{vec} splat ({kind} {number})"]
    if how == "sub" and not found[1]:
        how = "opposite"
        operands.reverse()
    if number not in _NEUTRALS[how]:
        return found[0]
    return (f"= call {vec} @llvm.experimental.constrained.{name}({', '.join(operands)}, "
            'metadata !"round.tonearest", metadata !"fpexcept.strict")')


def quiet(text: str, features: frozenset[str]) -> str:
    """Return IR that raises flags for what the user computes, all of it, and for nothing else.

    Comparisons with NaN raise none, as NumPy's do not.

    Processors without such an instruction keep the others: NumPy then looks what the flag was about.
    """
    if _CHOICE.search(text):
        text = _CONVERTING.sub(_converted, _SINKING.sub(_bound, text))
    text = _NARROWING.sub(_converted, text) if "= fpext" in text else text
    text = _NEUTRAL.sub(_computed, text)
    text = _CHOSEN.sub(_fenced, text) if "avx512f" in features else text
    return _SIGNALLING.sub(_quietly, text) if "avx" in features else text


def float_ir(machine: str, library: bool = False) -> str:
    """IR that reads and sets the flags; from the C library's functions if told so, or on rare machines.

    It refers to those as `$name`.
    """
    if machine == "x86_64" and not library:
        return _X86
    if machine not in _FENV:
        return _NOWHERE
    invalid, divide, overflow = _FENV[machine]
    return Template(_LIBM).substitute(
        all=invalid | divide | overflow, invalid=invalid, divide=divide, overflow=overflow)
