"""Our own programs, by field."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path

from bench.loop_programs import own
from bench.loop_programs.own.program import Own
from bench.loop_programs.program import Call, Mode, Program, decorate_in, load_file

FOLDER = Path(own.__file__).parent
FIELDS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("__init__", "program"))


def own_programs() -> dict[str, list[Own]]:
    """Return the programs of each field."""
    return {field: list(importlib.import_module(f"{own.__name__}.{field}").PROGRAMS) for field in FIELDS}


def _load(field: str, program: Own, mode: Mode) -> Call:
    # each mode has a copy: functions that are decorated in one are plain in the others
    module = load_file(FOLDER / f"{field}.py", f"{mode.name}_{field}")
    function = decorate_in(module, program.name, program.decorated, mode)
    return Call(function, program.inputs(program.size))


def programs() -> list[Program]:
    """Return all programs of our own."""
    return [Program("own", field, program.name, partial(_load, field, program))
            for field, found in own_programs().items() for program in found]
