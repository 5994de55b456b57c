"""Settings that every test shares."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A directory of this run alone, which its processes share: what one has compiled the others find. Nothing
# that was measured of this machine is in it, which must not decide what plans look like.
_OWN = None if "PYTEST_XDIST_WORKER" in os.environ else tempfile.mkdtemp(prefix="jitla-tests-")
if _OWN is not None:
    os.environ["JITLA_CACHE_DIR"] = _OWN
# Nor which calls are compiled: those of tests are, however small and however often they are repeated.
os.environ.setdefault("JITLA_COMPILE", "sync")
# Many tests start Python anew, which compiles all that it imports if it finds no bytecode. Who wants none in
# the tree gets it elsewhere.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
    os.environ.setdefault("PYTHONPYCACHEPREFIX", sys.pycache_prefix)

settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_configure() -> None:
    """Let no plan come from another test: many change what plans depend on, or count them."""
    from jitla.loopjit.records import RecordStore
    from jitla.runtime.disk_cache import DiskPlanStore

    DiskPlanStore.on = RecordStore.on = False


def pytest_unconfigure() -> None:
    """Remove what the run has kept."""
    if _OWN is not None:
        shutil.rmtree(_OWN, ignore_errors=True)


def pytest_collection_finish() -> None:
    """Leave modules and tests, which stay, out of every search for garbage: tests make many."""
    gc.collect()
    gc.freeze()


# Memory mappings of a process from which on compiled code is dropped: some 600 kernels.
MANY_MAPPINGS = 6_000


@pytest.fixture(autouse=True, scope="module")
def _few_mappings() -> Iterator[None]:
    """Drop all compiled code after a module if there is much: users have no thousands of kernels."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MANY_MAPPINGS:
        from jitla.engine import ENGINE

        for state in list(ENGINE.states):
            state.clear()
        ENGINE.use_tuning_session()
        gc.collect()
