"""Settings that every test shares."""

from __future__ import annotations

import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings

# A directory of this run alone, which its processes share: what one has compiled the others find. Nothing
# that was measured of this machine is in it, which must not decide what plans look like.
_OWN = None if "PYTEST_XDIST_WORKER" in os.environ else tempfile.mkdtemp(prefix="jitla-tests-")
if _OWN is not None:
    os.environ["JITLA_CACHE_DIR"] = _OWN
# Nor which calls are compiled: those of tests are, however small and however often they are repeated.
os.environ.setdefault("JITLA_COMPILE", "sync")

settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_unconfigure() -> None:
    """Remove what the run has kept."""
    if _OWN is not None:
        shutil.rmtree(_OWN, ignore_errors=True)
