"""The machine's constants from process to process: one small file."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from jitla.hops import Machine, from_record

VERSION = 2  # of the file, and of what weights mean: constants of another one predict nothing
NAME = "machine.json"


def load(directory: str | Path, host: str) -> Machine | None:
    """Return the constants in `directory` if they were measured on `host`."""
    try:
        record = json.loads(Path(directory, NAME).read_text(encoding="utf-8"))
        if record["version"] != VERSION or record["host"] != host:
            return None
        return from_record(record["machine"])
    except (OSError, ValueError, TypeError, KeyError):
        return None  # nothing stored, or nothing that can be read: as before anything was measured


def save(directory: str | Path, host: str, machine: Machine) -> Path | None:
    """Write the constants of `host`; return where, None if the directory cannot be written."""
    record = {"version": VERSION, "host": host, "machine": machine.record()}
    place = Path(directory, NAME)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        # whoever reads meanwhile finds the old file or the new one, never half of one
        handle, name = tempfile.mkstemp(dir=place.parent, prefix=NAME)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
        os.replace(name, place)
    except OSError:
        return None
    return place
