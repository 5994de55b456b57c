"""The room before native code is loaded."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

CODE = """
import sys; sys.path.insert(0, sys.argv[1])
import numpy as np
from jitla import runtime
assert "llvmlite" not in sys.modules
assert runtime.native_launch() is None and runtime.threads() == 1 and runtime.statistics() == {}
assert runtime.empty((2, 3), np.dtype("f8")).shape == (2, 3)
assert runtime.empty_ordered((200, 300), np.dtype("f8"), (1, 0)).flags.f_contiguous
runtime.set_threads(3)
from tests.runtime.kernels import launch, template
assert runtime.native_launch() is launch
import jitla.codegen.native.loader as native, tests.runtime.kernels as kernels
assert native.load_native(kernels.jit.load) is launch
assert runtime.threads() == (3 if sys.platform == "linux" else 1)
assert runtime.empty_ordered((200, 300), np.dtype("f8"), (1, 0)).flags.f_contiguous
"""


def test_before_and_after_the_native_code() -> None:
    done = subprocess.run([sys.executable, "-c", CODE, str(ROOT)], capture_output=True, text=True,
                          timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
