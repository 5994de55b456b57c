"""All faults there are."""

from __future__ import annotations

from tests.faults import cold, compiling, content, disks, living, loops, planted
from tests.faults.running import FAULTS

FILES = (content, disks, compiling, living, loops, planted, cold)


def names() -> list[str]:
    """Return the names of all faults, file after file."""
    return list(FAULTS)
