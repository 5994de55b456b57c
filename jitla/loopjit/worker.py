"""The process that compiles: Numba is loaded here, not where the user's program runs."""

from __future__ import annotations

import ctypes
import json
import math
import platform
import sys
from collections.abc import Callable
from typing import Any

import numba
import numba.extending
import numpy as np
from llvmlite import binding, ir

# none of these says what it takes and returns
types: Any = numba.types
njit: Any = numba.njit
def intrinsic(code: Callable[..., Any]) -> Any:
    """Make a function that the texts may call, written in LLVM's instructions."""
    made: Any = numba.extending.intrinsic(code)
    return made


_declared: Any = numba.core.cgutils.get_or_insert_function
_reserved: Any = numba.core.cgutils.alloca_once

_OPTIONS = {"error_model": "numpy", "fastmath": False, "boundscheck": False,
            "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_LIBRARY = {name: 1 for name in (
    "sin", "cos", "tan", "exp", "log", "log10", "log2", "atan", "asin", "acos", "sinh", "cosh", "tanh")}
_LIBRARY |= {"atan2": 2, "pow": 2}
# Where a processor keeps its flags: bits of it, how it is read and written, those that matter.
_X86, _ARM = (32, "stmxcsr ($0)", "ldmxcsr ($0)", 0xd), (64, "mrs $0, fpsr", "msr fpsr, $0", 0x7)
_FLAGS = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM, "arm64": _ARM}[platform.machine()]
_HIDING = {"x86_64": "=x,0", "AMD64": "=x,0", "aarch64": "=w,0", "arm64": "=w,0"}


def _checked(name: str) -> Any:
    """Make an operation on integers that says whether its result was lost."""
    def typed(context: Any, a: Any, b: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made = getattr(builder, name)(*args)
            parts = [builder.extract_value(made, k) for k in range(2)]
            return context.make_tuple(builder, signature.return_type, parts)
        return types.Tuple((types.int64, types.boolean))(types.int64, types.int64), code
    return intrinsic(typed)


@intrinsic
def _rare(context: Any, test: Any) -> Any:
    """Return a truth value that is false nearly always."""
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        truth = ir.IntType(1)
        found = _declared(
            builder.module, ir.FunctionType(truth, [truth, truth]), "llvm.expect.i1")
        return builder.call(found, [args[0], truth(0)])
    return types.boolean(types.boolean), code


@intrinsic
def _either(context: Any, a: Any, b: Any) -> Any:
    """Return whether any of two is true, both of them computed."""
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.or_(*args)
    return types.boolean(types.boolean, types.boolean), code


@intrinsic
def _spare(context: Any, pointer: Any, count: Any) -> Any:
    """Return memory of the system's for so many elements of what a pointer points to."""
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, kind = ir.IntType(64), args[0].type
        size = context.get_abi_sizeof(kind.pointee)
        found = _declared(
            builder.module, ir.FunctionType(ir.IntType(8).as_pointer(), [word]), "malloc")
        return builder.bitcast(builder.call(found, [builder.mul(args[1], word(size))]), kind)
    return pointer(pointer, types.int64), code


@intrinsic
def _release(context: Any, pointer: Any) -> Any:
    """Give memory back."""
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        found = _declared(builder.module, ir.FunctionType(ir.VoidType(), [byte]), "free")
        builder.call(found, [builder.bitcast(args[0], byte)])
        return context.get_dummy_value()
    return types.void(pointer), code


@intrinsic
def _nowhere(context: Any, pointer: Any) -> Any:
    """Say whether there was no memory."""
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.icmp_unsigned("==", args[0], args[0].type(None))
    return types.boolean(pointer), code


def _flagging(name: str) -> Any:
    """Make an operation of floats that sets the processor's flags, whatever becomes of its result."""
    def typed(context: Any, a: Any, b: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind, note = args[0].type, ir.MetaDataType()
            size = "f64" if signature.return_type == types.float64 else "f32"
            found = _declared(builder.module, ir.FunctionType(kind, [kind, kind, note, note]),
                              f"llvm.experimental.constrained.{name}.{size}")
            how = [ir.MetaDataString(builder.module, text) for text in ("round.tonearest", "fpexcept.strict")]
            return builder.call(found, [*args, *how])
        return a(a, a), code
    return intrinsic(typed)


@intrinsic
def _raised(context: Any, seen: Any) -> Any:
    """Say whether the processor has noted what is odd, once all is computed that `seen` was made of."""
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.asm(ir.FunctionType(ir.VoidType(), [args[0].type]), "", "r,~{memory}", args, True)
        word = ir.IntType(_FLAGS[0])
        found = builder.asm(ir.FunctionType(word, []), _FLAGS[1], "=r,~{memory}", [], True) \
            if _FLAGS[0] == 64 else _status(builder)
        return builder.icmp_unsigned("!=", builder.and_(found, word(_FLAGS[3])), word(0))
    return types.boolean(types.int64), code


def _loud(name: str) -> Any:
    """Make an operation of floats as any; the processor notes what is odd if something needs its result."""
    def typed(context: Any, a: Any, b: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, name)(*args)
        return a(a, a), code
    return intrinsic(typed)


@intrinsic
def _hidden(context: Any, a: Any) -> Any:
    """Return a number that compilers do not know, whatever it is."""
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        how = "=r,0" if isinstance(args[0].type, ir.IntType) else _HIDING[platform.machine()]
        return builder.asm(ir.FunctionType(args[0].type, [args[0].type]), "", how, args, False)
    return a(a), code


def _bits(size: int) -> Any:
    """Make what returns the bits of a float."""
    def typed(context: Any, a: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.zext(builder.bitcast(args[0], ir.IntType(size)), ir.IntType(64))
        return types.int64(a), code
    return intrinsic(typed)


@intrinsic
def _quiet(context: Any) -> Any:
    """Let the processor forget what it has noted."""
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, none = ir.IntType(_FLAGS[0]), ir.VoidType()
        if _FLAGS[0] == 64:
            builder.asm(ir.FunctionType(none, [word]), _FLAGS[2], "r,~{memory}", [word(0)], True)
        else:
            place = _reserved(builder, word)
            builder.store(builder.and_(_status(builder), word(~0x3f & 0xffffffff)), place)
            builder.asm(ir.FunctionType(none, [place.type]), _FLAGS[2], "r,~{memory}", [place], True)
        return context.get_dummy_value()
    return types.void(), code


def _status(builder: Any) -> Any:
    """Read the register of x86 that has the flags."""
    place = _reserved(builder, ir.IntType(32))
    builder.asm(ir.FunctionType(ir.VoidType(), [place.type]), _FLAGS[1], "r,~{memory}", [place], True)
    return builder.load(place)


def _library(name: str, count: int) -> Any:
    """Make a call of a function of the C library that the compiler does not see through."""
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        double = ir.DoubleType()
        kind = ir.FunctionType(double, [double])
        hidden = [builder.asm(kind, "", _HIDING[platform.machine()], [arg], False) for arg in args]
        found = _declared(
            builder.module, ir.FunctionType(double, [double] * count), name)
        return builder.call(found, hidden)

    def one(context: Any, a: Any) -> Any:
        return types.float64(types.float64), code

    def two(context: Any, a: Any, b: Any) -> Any:
        return types.float64(types.float64, types.float64), code
    return intrinsic(one if count == 1 else two)


def _float_mod(a: float, b: float) -> float:
    """Do ``a % b`` as CPython and NumPy do; `b` is not zero."""
    rest: float = np.fmod(a, b)
    if rest != 0.0:
        if (b < 0.0) != (rest < 0.0):
            rest += b
    else:
        rest = math.copysign(0.0, b)
    return rest


def _float_div(a: float, b: float) -> float:
    """Do ``a // b`` as CPython and NumPy do; `b` is not zero."""
    rest: float = np.fmod(a, b)
    quotient = (a - rest) / b
    if rest != 0.0 and (b < 0.0) != (rest < 0.0):
        quotient -= 1.0
    if quotient != 0.0:
        whole: float = np.floor(quotient)  # that of `math` makes an integer
        if quotient - whole > 0.5:
            whole += 1.0
        return whole
    return math.copysign(0.0, a / b)


def _adding(element: Any) -> Any:
    """Make NumPy's sum of what `element` computes for each place of two rows."""
    @njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def added(p: Any, a: int, s: int, q: Any, b: int, t: int, n: int) -> float:
        if n < 8:
            made = -0.0
            for k in range(n):
                made += element(p, a + k * s, q, b + k * t)
            return made
        if n > 128:
            half = n // 2
            half -= half % 8
            return added(p, a, s, q, b, t, half) + added(  # type: ignore[no-any-return]
                p, a + half * s, s, q, b + half * t, t, n - half)
        r0, r1 = element(p, a, q, b), element(p, a + s, q, b + t)
        r2, r3 = element(p, a + 2 * s, q, b + 2 * t), element(p, a + 3 * s, q, b + 3 * t)
        r4, r5 = element(p, a + 4 * s, q, b + 4 * t), element(p, a + 5 * s, q, b + 5 * t)
        r6, r7 = element(p, a + 6 * s, q, b + 6 * t), element(p, a + 7 * s, q, b + 7 * t)
        whole = n - n % 8
        for k in range(8, whole, 8):
            i, j = a + k * s, b + k * t
            r0 += element(p, i, q, j)
            r1 += element(p, i + s, q, j + t)
            r2 += element(p, i + 2 * s, q, j + 2 * t)
            r3 += element(p, i + 3 * s, q, j + 3 * t)
            r4 += element(p, i + 4 * s, q, j + 4 * t)
            r5 += element(p, i + 5 * s, q, j + 5 * t)
            r6 += element(p, i + 6 * s, q, j + 6 * t)
            r7 += element(p, i + 7 * s, q, j + 7 * t)
        made = ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7))
        for k in range(whole, n):
            made += element(p, a + k * s, q, b + k * t)
        return made  # type: ignore[no-any-return]
    return added


def _extreme(better: Any) -> Any:
    """Make the largest or smallest element of a row; NaN for one, and for zeros of two signs."""
    @njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def found(p: Any, a: int, s: int, q: Any, b: int, t: int, n: int) -> float:
        if n < 1:
            return math.nan
        best = p[a]
        for k in range(n):
            x = p[a + k * s]
            if x != x:
                return math.nan
            if better(x, best):
                best = x
        if best == 0.0:
            for k in range(n):
                x = p[a + k * s]
                if x == 0.0 and math.copysign(1.0, x) < 0.0:
                    return math.nan
        return best  # type: ignore[no-any-return]
    return found


@intrinsic
def _where(context: Any, pointer: Any) -> Any:
    """Return the address that a pointer holds."""
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(args[0], ir.IntType(64))
    return types.int64(pointer), code


def _tangled(a: int, step: int, b: int, other: int, count: int) -> bool:
    """Say whether some of `count` elements of eight bytes lie where others of another row do.

    Both are given by the address of the first, and how many elements it is to the next.
    """
    if count <= 1 or a == b and step == other and step != 0:
        return False
    end, last = a + 8 * step * (count - 1), b + 8 * other * (count - 1)
    if step != 0 and (max(a, end) < min(b, last) or max(b, last) < min(a, end)):
        return False
    return step != other or step == 0 or (a - b) % (8 * step) == 0


def _woven(ahead: int, step: int, other: int, item: int, its: int) -> bool:
    """Say whether the elements of one array lie between those of another; all is in bytes."""
    if step != other or step == 0:
        return False
    rest = ahead % abs(step)
    return rest >= its and abs(step) - rest >= item


def _flagged(a: float, b: float, made: float) -> bool:
    """Say whether an operation that made no finite number of `a` and `b` has set a flag."""
    if made != made:
        return a == a and b == b
    return math.isfinite(a) and math.isfinite(b)


def _names() -> dict[str, Any]:
    """Return what the texts refer to."""
    binding.initialize_native_asmparser()
    # Numba looks for what is called, though nothing runs here
    binding.add_symbol("jitla_share", ctypes.cast(ctypes.pythonapi.Py_IncRef, ctypes.c_void_p).value)
    options = {"error_model": "numpy", "inline": "never"}
    make = njit(**options)
    double = types.float64
    found: dict[str, Any] = {
        "int64": types.int64, "float64": double, "float32": types.float32, "bool_": types.boolean,
        "MIN": -(1 << 63), "INF": math.inf, "NAN": math.nan, "sqrt": math.sqrt, "isnan": math.isnan,
        "isinf": math.isinf, "isfinite": math.isfinite,
        "ratio": make(lambda a, b: a / b), "shift": make(lambda a, b: a << b),
        "floor_div": make(lambda a, b: a // b), "floor_mod": make(lambda a, b: a % b),
        "wide": make(lambda a: (a > 9007199254740992) | (a < -9007199254740992)),
        "huge": make(lambda a: (a > 2305843009213693952) | (a < -2305843009213693952)),
        "beyond": make(lambda a, most: types.uint64(a) + types.uint64(most) > types.uint64(2 * most)),
        "past": make(lambda a, most: a > most),
        "lost": make(lambda wide, single: math.isinf(single) and not math.isinf(wide)),
        "outside": make(lambda place, length: types.uint64(place) >= types.uint64(length)),
        "flagged": make(_flagged), "float_mod": make(_float_mod), "float_div": make(_float_div),
    }
    found |= {f"{short}{8 * size}": getattr(types, f"{short}{8 * size}")
              for short in ("int", "uint") for size in (1, 2, 4, 8)}
    found |= {f"{name}_checked": _checked(f"s{name}_with_overflow") for name in ("add", "sub", "mul")}
    found |= {f"lib_{name}": _library(name, count) for name, count in _LIBRARY.items()}
    found |= {"rare": _rare, "either": _either, "lapped": _either, "spare": _spare, "release": _release,
              "nowhere": _nowhere,
              "raised": _raised, "quiet": _quiet, "where": _where, "tangled": make(_tangled),
              "woven": make(_woven)}
    found |= {f"flag_{name}": _flagging(f"f{name}") for name in ("add", "sub", "mul", "div")}
    found |= {f"loud_{name}": _loud(f"f{name}") for name in ("add", "sub", "mul", "div")}
    found |= {"bits_d": _bits(64), "bits_s": _bits(32)} | {f"hidden_{how}": _hidden for how in "ids"}
    found |= {"row_sum": _adding(make(lambda p, i, q, j: p[i])),
              "row_product": _adding(make(lambda p, i, q, j: p[i] * q[j])),
              "row_max": _extreme(make(lambda a, b: a > b)), "row_min": _extreme(make(lambda a, b: a < b))}
    found["power"] = found["lib_pow"]
    found["floor"], found["ceil"] = make(lambda a: np.floor(a)), make(lambda a: np.ceil(a))
    return found


def _shared(count: int) -> Any:
    """Make the call that has threads do a function of `count` arguments and two bounds; it waits for them.

    They are the threads of kernels: `jitla_share` takes a block of words, of which the first is what is to be
    done, the others say in how many parts, what it costs, and from the eighth on with which arguments.
    """
    word, void = ir.IntType(64), ir.VoidType()
    block = word.as_pointer()
    part = ir.FunctionType(void, [block, word, word])

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = args[4:]
        kinds = (*signature.args[4:], types.int64, types.int64)
        dispatcher = signature.args[0].dispatcher
        made = dispatcher.get_compile_result(types.int64(*kinds))
        context.add_linking_libs([made.library])
        doing = ir.Function(builder.module, part, "jitla.part")
        doing.linkage = "internal"
        inner = ir.IRBuilder(doing.append_basic_block())
        places = [inner.gep(doing.args[0], [word(8 + k)]) for k in range(count)]
        taken = [inner.inttoptr(inner.load(at), each.type) for at, each in zip(places, given, strict=True)]
        context.call_internal_no_propagate(
            inner, made.fndesc, types.int64(*kinds), [*taken, doing.args[1], doing.args[2]])
        inner.ret_void()
        room = _reserved(builder, word, size=word(8 + count))
        words = {0: builder.ptrtoint(doing, word), 2: args[1], 3: args[2], 7: builder.shl(args[3], word(33))}
        words |= {8 + k: builder.ptrtoint(each, word) for k, each in enumerate(given)}
        for k in range(8 + count):
            builder.store(words.get(k, word(0)), builder.gep(room, [word(k)]))
        builder.call(_declared(builder.module, ir.FunctionType(void, [block]), "jitla_share"), [room])
        return context.get_dummy_value()

    def typed(context: Any, quick: Any, *given: Any) -> Any:
        quick.get_call_type(context, (*given[3:], types.int64, types.int64), {})
        return types.void(quick, *given), code
    names = ", ".join(["context", "quick", *(f"a{k}" for k in range(3 + count))])  # Numba asks how many
    return intrinsic(eval(f"lambda {names}: typed({names})", {"typed": typed}))


def _apart(flags: Any) -> Any:
    """Let the compiler rely on it that arrays do not share memory."""
    flags.noalias = True
    return flags


def compiled(text: str, pointers: list[str], names: dict[str, Any]) -> tuple[str, bytes]:
    """Return the name of the function that was made of a text, and its object."""
    space = dict(names)
    exec(compile(text, "<loop>", "exec"), space)
    for name in ("quick", "careful"):
        if name in space:
            space[name] = njit(**_OPTIONS)(space[name])
    if "quick" in space:  # it is called only if what is written lies apart from all else
        space["quick"]._compiler._customize_flags = _apart
    space["shared"] = _shared(2 + len(pointers))
    made = njit(**_OPTIONS)(space["kernel"])
    memory = types.CPointer(types.int64), types.CPointer(types.float64)
    signature = (*memory, *(types.CPointer(getattr(types, name)) for name in pointers))
    made.compile(signature)
    result = made.overloads[signature]
    library = result.library
    data: bytes = library._codegen._tm.emit_object(library._final_module)
    return result.fndesc.llvm_func_name, data


def main() -> int:
    """Compile what comes in until nothing does any more."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # what libraries say is no answer
    names: dict[str, Any] = {}
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        try:
            names = names or _names()
            name, data = compiled(asked["text"], asked["pointers"], names)
            reply = {"name": name, "bytes": len(data)}
        except Exception as error:
            reply, data = {"error": f"{type(error).__name__}: {error}"}, b""
        answers.write(json.dumps(reply).encode() + b"\n" + data)
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
