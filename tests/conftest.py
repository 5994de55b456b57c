"""Settings that every test shares."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# What was measured of this machine must not decide what plans look like: nothing can be stored there.
os.environ["JITLA_CACHE_DIR"] = os.devnull
# Nor which calls are compiled: those of tests are, however small and however often they are repeated.
os.environ.setdefault("JITLA_COMPILE", "sync")

settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
