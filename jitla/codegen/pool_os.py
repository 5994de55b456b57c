"""What the thread pool needs of the platform, as IR: sleeping, waking, affinity, float state.

Knows: operating systems and processors. Must not know: jobs, chunks, Python objects.
Receives nothing; returns IR with `$name` references to host functions.

A new platform gets its own text for the seven `os.` functions; without one, the pool is serial.
"""

from __future__ import annotations

import platform
import sys

from jitla.codegen.flags import float_ir

__all__ = ["PARALLEL", "PAUSE", "os_ir"]

#: Linux system call numbers of (futex, gettid) by machine.
_CALLS = {"x86_64": (202, 186), "aarch64": (98, 178)}

_MACHINE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())

#: Whether this platform has the primitives; elsewhere every job runs on its caller.
PARALLEL = sys.platform == "linux" and _MACHINE in _CALLS and sys.maxsize > 2**32

# intrinsics, not inline assembly: that would need the target's assembly parser
_PAUSES = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()\n"),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)\n"),
}

#: Instruction for one turn of a spin loop.
PAUSE = _PAUSES.get(_MACHINE, ("", ""))[0]

_LINUX = """
define internal void @os.wait(ptr %word, i32 %seen) nounwind {
  %f = load ptr, ptr $syscall
  call i64 (i64, ...) %f(i64 FUTEX, ptr %word, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  ret void
}
define internal void @os.wake(ptr %word, i32 %count) nounwind {
  %f = load ptr, ptr $syscall
  call i64 (i64, ...) %f(i64 FUTEX, ptr %word, i32 129, i32 %count, ptr null, ptr null, i32 0)
  ret void
}
define internal i64 @os.clock() nounwind {
  %t = alloca [2 x i64], align 8
  %f = load ptr, ptr $clock_gettime
  call i32 %f(i32 1, ptr %t)
  %s = load i64, ptr %t
  %pn = getelementptr i64, ptr %t, i64 1
  %n = load i64, ptr %pn
  %ns = mul i64 %s, 1000000000
  %r = add i64 %ns, %n
  ret i64 %r
}
define internal i32 @os.self() nounwind {
  %f = load ptr, ptr $syscall
  %r = call i64 (i64, ...) %f(i64 GETTID)
  %t = trunc i64 %r to i32
  ret i32 %t
}
define internal i32 @os.cpu() nounwind {
  %f = load ptr, ptr $sched_getcpu
  %missing = icmp eq ptr %f, null
  br i1 %missing, label %no, label %ask
ask:
  %r = call i32 %f()
  ret i32 %r
no:
  ret i32 -1
}
define internal void @os.pin(i32 %tid, ptr %mask) nounwind {
  %f = load ptr, ptr $sched_setaffinity
  call i32 %f(i32 %tid, i64 128, ptr %mask)
  ret void
}
define internal i1 @os.allowed(ptr %mask) nounwind {
  %f = load ptr, ptr $sched_getaffinity
  %r = call i32 %f(i32 0, i64 128, ptr %mask)
  %known = icmp eq i32 %r, 0
  ret i1 %known
}
"""

_NOWHERE = """
define internal void @os.wait(ptr %word, i32 %seen) nounwind { ret void }
define internal void @os.wake(ptr %word, i32 %count) nounwind { ret void }
define internal i64 @os.clock() nounwind { ret i64 0 }
define internal i32 @os.self() nounwind { ret i32 0 }
define internal i32 @os.cpu() nounwind { ret i32 -1 }
define internal void @os.pin(i32 %tid, ptr %mask) nounwind { ret void }
define internal i1 @os.allowed(ptr %mask) nounwind { ret i1 0 }
"""

def os_ir() -> str:
    """IR of the `os.` and `float.` functions of this platform."""
    futex, gettid = _CALLS.get(_MACHINE, (0, 0))
    linux = _LINUX.replace("FUTEX", str(futex)).replace("GETTID", str(gettid))
    return _PAUSES.get(_MACHINE, ("", ""))[1] + (linux if PARALLEL else _NOWHERE) + float_ir(_MACHINE)
