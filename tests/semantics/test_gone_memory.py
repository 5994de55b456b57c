"""Memory that disappears: arrays over it are not read late. Each program runs in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAMS = {
    "shared memory deleted": """
def f(x):
    s = SharedMemory(create=True, size=8 * len(x)); s.unlink()
    w = np.ndarray(len(x), buffer=s.buf)
    w[:] = 1
    y = w * 2 + x
    z = w[1:].T + 1
    del s
    return y, z
""",
    "mapping closed": """
def f(x):
    m = mmap.mmap(-1, 8 * len(x))
    w = np.ndarray(len(x), buffer=m)
    y = w * 2 + x
    del w, m
    return y
""",
    "file truncated": """
def f(x):
    with tempfile.NamedTemporaryFile() as file:
        m = np.memmap(file.name, dtype='f8', mode='w+', shape=x.shape)
        m[:] = 1
        y = m * 2 + x
        z = np.asarray(m)[1:] + 1
        os.truncate(file.name, 0)
        return y, z
""",
    "buffer rewritten": """
def f(x):
    b = bytearray(np.ones(len(x)).tobytes())
    a = np.frombuffer(b)
    y = a * 2 + x
    z = a[1:] + 1
    b[:8] = bytes(8)
    return y, z, a + x
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_memory_that_is_gone_is_not_read(name: str) -> None:
    source = f"""
import mmap, os, sys, tempfile
from multiprocessing.shared_memory import SharedMemory
import numpy as np
import jitla
{PROGRAMS[name]}
"""
    check = """
x = np.arange(100_000.0)
with jitla.options(compile="sync"):
    found, wanted = jitla.jit(f)(x), f(x)
for a, b in zip(found, wanted) if type(wanted) is tuple else [(found, wanted)]:
    assert np.array_equal(a, b)
"""
    file = f"gone_{name.replace(' ', '_')}"
    code = (f"import linecache\ntext = {source!r}\n"
            f"linecache.cache[{file!r}] = (len(text), None, text.splitlines(True), {file!r})\n"
            f"exec(compile(text, {file!r}, 'exec'))\n{check}")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
