"""Persistent storage of the measured machine constants: one small JSON file."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from jitla.hops import Machine, machine_from_record

FORMAT_VERSION = 2  # also changes when the unit of the cost weights does
FILE_NAME = "machine.json"


def load(directory: str | Path, host: str) -> Machine | None:
    """Return the constants stored in `directory` if they were measured on `host`."""
    try:
        record = json.loads(Path(directory, FILE_NAME).read_text(encoding="utf-8"))
        if record["version"] != FORMAT_VERSION or record["host"] != host:
            return None
        return machine_from_record(record["machine"])
    except (OSError, ValueError, TypeError, KeyError):
        return None  # missing or unreadable: the machine counts as not measured


def save(directory: str | Path, host: str, machine: Machine) -> Path | None:
    """Write the constants of `host`; return the path, or None if the directory is not writable."""
    record = {"version": FORMAT_VERSION, "host": host, "machine": machine.record()}
    path = Path(directory, FILE_NAME)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # written to a temporary file first: concurrent readers see the old file or the new one
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=FILE_NAME)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
        os.replace(name, path)
    except OSError:
        return None
    return path
