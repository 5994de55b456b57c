"""Elements of a vector that a mask keeps, moved together by one instruction, as IR.

Knows: which processors have it for which elements. Must not know: units, arrays.
Receives a target and the size of an element; returns lines and declarations.
"""

from __future__ import annotations

from jitla.codegen.layout import Target

__all__ = ["squeezed", "squeezed_lanes", "squeezing"]

_BYTES = 64  # of a vector
#: What a processor must have, by the bytes of an element.
_NEEDED = {1: "avx512vbmi2", 2: "avx512vbmi2", 4: "avx512f", 8: "avx512f"}


def squeezed_lanes(itemsize: int, target: Target) -> int:
    """Return how many elements are moved together at once; 0 if the processor has nothing for it."""
    return _BYTES // itemsize if _NEEDED.get(itemsize) in target.features else 0


def squeezing(itemsize: int, lanes: int) -> str:
    """Declarations that `squeezed` needs."""
    vector, code = f"<{lanes} x i{8 * itemsize}>", f"v{lanes}i{8 * itemsize}"
    return (f"declare {vector} @llvm.experimental.vector.compress.{code}({vector}, <{lanes} x i1>, "
            f"{vector})\ndeclare i{lanes} @llvm.ctpop.i{lanes}(i{lanes})\n")


def squeezed(itemsize: int, lanes: int, tag: str, i: str, j: str) -> str:
    """Lines that write what the mask keeps of %x from `i` on to %out from `j` on; %j`tag` is behind it.

    A whole vector is written: what is behind %j`tag` may be anything.
    """
    element = f"i{8 * itemsize}"
    vector, code = f"<{lanes} x {element}>", f"v{lanes}{element}"
    word = f"add i64 %n{tag}, 0" if lanes == 64 else f"zext i{lanes} %n{tag} to i64"
    return (f"  %p{tag} = getelementptr {element}, ptr %x, i64 {i}\n"
            f"  %v{tag} = load {vector}, ptr %p{tag}, align {itemsize}\n"
            f"  %m{tag} = getelementptr i8, ptr %mask, i64 {i}\n"
            f"  %b{tag} = load <{lanes} x i8>, ptr %m{tag}, align 1\n"
            f"  %t{tag} = icmp ne <{lanes} x i8> %b{tag}, zeroinitializer\n"
            f"  %s{tag} = call {vector} @llvm.experimental.vector.compress.{code}({vector} %v{tag}, "
            f"<{lanes} x i1> %t{tag}, {vector} poison)\n"
            f"  %q{tag} = getelementptr {element}, ptr %out, i64 {j}\n"
            f"  store {vector} %s{tag}, ptr %q{tag}, align {itemsize}\n"
            f"  %k{tag} = bitcast <{lanes} x i1> %t{tag} to i{lanes}\n"
            f"  %n{tag} = call i{lanes} @llvm.ctpop.i{lanes}(i{lanes} %k{tag})\n"
            f"  %w{tag} = {word}\n"
            f"  %j{tag} = add i64 {j}, %w{tag}\n")
