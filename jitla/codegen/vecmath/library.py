"""Vector math as LLVM IR text: which functions there are, and their instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import count

import numpy as np

from jitla.codegen.kernel_abi import PLAIN
from jitla.codegen.native.symbols import has_loop, loop_declaration
from jitla.codegen.vecmath import exp_log, trig_special
from jitla.codegen.vecmath.builder import (
    DOUBLE,
    SINGLE,
    CodeBuilder,
    SSAValue,
)

__all__ = [
    "NEAR", "NUMPY", "OPTIMISED", "Near", "definitions", "emit_math", "family", "inline_math", "length",
    "near_math", "some_far", "supports",
]

FORMATS = {np.dtype(np.float64): DOUBLE, np.dtype(np.float32): SINGLE}
FUNCTIONS: dict[str, Callable[..., SSAValue]] = {
    "exp": exp_log.exp,
    "exp2": exp_log.exp2,
    "expm1": exp_log.expm1,
    "tanh": exp_log.tanh,
    "log": exp_log.log,
    "log2": exp_log.log2,
    "log10": exp_log.log10,
    "log1p": exp_log.log1p,
    "sinh": exp_log.sinh,
    "cosh": exp_log.cosh,
    "arcsinh": exp_log.arcsinh,
    "arccosh": exp_log.arccosh,
    "arctanh": exp_log.arctanh,
    "arcsin": trig_special.arcsin,
    "arccos": trig_special.arccos,
    "arctan": trig_special.arctan,
    "cbrt": trig_special.cbrt,
    "sin": trig_special.sin,
    "cos": trig_special.cos,
    "tan": trig_special.tan,
    "arctan2": trig_special.arctan2,
    "hypot": trig_special.hypot,
    "logaddexp": trig_special.logaddexp,
    "logaddexp2": trig_special.logaddexp2,
    "power": exp_log.power,
    "float_power": exp_log.power,
    "erf": trig_special.erf,
    "erfc": trig_special.erfc,
    "ndtr": trig_special.ndtr,
    "expit": trig_special.expit,
    "log_expit": trig_special.log_expit,
    "logit": trig_special.logit,
    "xlogy": trig_special.xlogy,
    "xlog1py": trig_special.xlog1py,
}
#: Shorter code for the usual arguments: the result, and an integer that is negative in other lanes. Where
#: it is not, every bit is that of the function above.
NEAR: dict[str, Callable[[CodeBuilder, SSAValue], tuple[SSAValue, SSAValue]]] = {
    "log": exp_log.log_near,
    "log2": exp_log.log2_near,
    "log10": exp_log.log10_near,
}
#: Functions of two arguments; the others have one.
OF_TWO = frozenset({
    "arctan2", "float_power", "hypot", "logaddexp", "logaddexp2", "power", "xlog1py", "xlogy",
})
CALLING = frozenset({"sin", "cos", "tan"})
#: Functions that call NumPy's own loop for some arguments: never written in place.
NUMPY = frozenset({"power", "float_power"})
#: Functions that run 4 to 17 % slower if LLVM does not optimise them, alone or among others that are
#: called; it makes those that are missing here no faster.
OPTIMISED = frozenset({
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "sinh", "tan",
})


def supports(name: str, dtype: np.dtype, defines: bool = False) -> bool:
    """Whether the function is there for this dtype, right for every argument.

    sin, cos and tan call a function for huge arguments, powers one of NumPy: they are there only for a
    caller that puts ``definitions`` into its module and says so with ``defines``.
    """
    if name in NUMPY:
        return defines and dtype in FORMATS and has_loop(name, dtype)
    return name in FUNCTIONS and dtype in FORMATS and (defines or name not in CALLING)


def family(name: str) -> str:
    """Name functions alike that have most of their instructions in common."""
    return "circular" if name in CALLING else name


def arguments(name: str) -> list[str]:
    """What the operands are called in the text of the function alone."""
    return ["%x", "%y"] if name in OF_TWO else ["%x"]


@cache
def length(name: str, dtype: np.dtype) -> int:
    """How many instructions the function has."""
    if name in NEAR:
        return len(near_math(name, dtype, 2, "%x", str)[0])
    return len(inline_math(name, dtype, 2, arguments(name), str)[0])


@cache
def definitions(name: str, dtype: np.dtype, width: int) -> dict[str, str]:
    """Symbol and text of what the inlined lines call; each goes once into the module."""
    if name in NUMPY:
        return {f"numpy {name} {dtype}": loop_declaration(name, FORMATS[dtype].bits)}
    if name not in CALLING:
        return {}
    return trig_special.definitions(CodeBuilder(FORMATS[dtype], width, str), name)


def inline_math(
    name: str,
    dtype: np.dtype,
    width: int,
    args: list[str],
    fresh: Callable[[str], str],
) -> tuple[list[str], str]:
    """Instructions that compute the function in the caller's block, and the result's name.

    They do not fuse multiplications with additions: that would save 7 to 19 %, and make the bits depend on
    the processor.
    """
    assert supports(name, dtype, defines=True), (name, dtype)
    code = CodeBuilder(FORMATS[dtype], width, fresh)
    result = FUNCTIONS[name](code, *(SSAValue(code, a, "f") for a in args))
    return code.lines, result.name


Near = tuple[np.dtype, str]  # names an integer of the dtype's size, negative in lanes that are far


def near_math(
    name: str, dtype: np.dtype, width: int, arg: str, fresh: Callable[[str], str],
) -> tuple[list[str], str, Near]:
    """Instructions for the usual arguments, the result's name, and where there are others."""
    code = CodeBuilder(FORMATS[dtype], width, fresh)
    result, far = NEAR[name](code, SSAValue(code, arg, "f"))
    return code.lines, result.name, (dtype, far.name)


def some_far(
    tests: Sequence[Near], width: int, fresh: Callable[[str], str],
) -> tuple[list[str], str]:
    """Instructions that find out whether any lane of any test is far, and the name of the answer."""
    lines: list[str] = []
    answer = ""
    for dtype in dict.fromkeys(d for d, _ in tests):
        code = CodeBuilder(FORMATS[dtype], width, fresh)
        some = code.some_negative([SSAValue(code, name, "i") for d, name in tests if d == dtype])
        lines += code.lines
        if answer:
            both = fresh("far")
            lines.append(f"{both} = or i1 {answer}, {some}")
            some = both
        answer = some
    return lines, answer


@cache
def emit_math(name: str, dtype: np.dtype, width: int) -> tuple[str, str]:
    """Symbol and text of one internal function that computes a whole vector.

    Where ``definitions`` is not empty, the text needs those beside it.
    """
    numbers = count()
    form = FORMATS[dtype]
    args = arguments(name)
    def fresh(hint: str) -> str:
        return f"%{hint}{next(numbers)}"

    symbol = f"jitla_{name}_f{form.bits}x{width}"
    t = form.real if width == 1 else f"<{width} x {form.real}>"
    given = ", ".join(f"{t} {arg}" for arg in args)
    lines: list[str] = []
    if name in NUMPY:
        builder = CodeBuilder(form, width, fresh)
        body = "\n".join(f"  {line}" for line in exp_log.power_body(builder, name))
        return symbol, f"define internal {t} @{symbol}({given}) {PLAIN}{{\nentry:\n{body}\n}}\n"
    if name in NEAR:
        lines, near, far = near_math(name, dtype, width, args[0], fresh)
        test, some = some_far([far], width, fresh)
        lines = [*lines, *test, f"br i1 {some}, label %far, label %near", "near:", f"ret {t} {near}", "far:"]
    rest, result = inline_math(name, dtype, width, args, fresh)
    body = "\n".join(f"  {line}" for line in (*lines, *rest, f"ret {t} {result}"))
    how = "" if name in OPTIMISED else PLAIN
    return symbol, f"define internal {t} @{symbol}({given}) {how}{{\n{body}\n}}\n"
