"""Frames of jitla that callers must not see, and functions that read the frames of their callers.

A warning with ``stacklevel=2`` belongs to the line that called the function which gives it, and `logging`
reports the line that logs. Both walk up the stack, and both pass over frames of Python's import system,
which they know by two words in the name of the file. Code of jitla that is called between two functions of
users gets these words appended to the name of its file, so that it is passed over, too. What comes before
them is the path of the file: tracebacks of jitla's own failures say where they happened, and `linecache`
finds the lines by the module.

A function that looks at its own frame, or at those of its callers, is not traced: where it is traced it
runs as another function, with other variables, between frames of jitla's. A function that it calls may look
at *its* frame only, and is shown one with the same variables; one that looks further up would see frames of
jitla's.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

__all__ = [
    "BRIDGE_FILES", "MARK", "hidden", "hide", "hide_module", "looks_at_frames", "looks_beyond", "reader",
    "stays_plain",
]


#: What the name of a file ends in whose frames are not counted.
MARK = " (internal, as importlib._bootstrap)"
#: Files of jitla with what is called instead of a decorated function: user code that they call goes on in the
#: session of their caller.
BRIDGE_FILES: set[str] = set()


def hidden(code: CodeType) -> CodeType:
    """Return `code`, and the code inside of it, with a name of the file for which it is not counted."""
    if code.co_filename.endswith(MARK):
        return code
    inside = tuple([hidden(each) if isinstance(each, CodeType) else each for each in code.co_consts])
    return code.replace(co_filename=code.co_filename + MARK, co_consts=inside)


def hide(function: FunctionType) -> None:
    """Let frames of `function`, and of functions that it defines, not be counted."""
    function.__code__ = hidden(function.__code__)


def hide_module(name: str, each: Callable[[FunctionType], None] = hide) -> None:
    """Do so for all functions and methods that the module of that name defines."""
    for value in list(vars(sys.modules[name]).values()):
        if isinstance(value, type) and value.__module__ == name:
            for part in list(vars(value).values()):
                _hide(part, name, each)
        else:
            _hide(value, name, each)


def _hide(value: Any, name: str, each: Callable[[FunctionType], None]) -> None:
    if isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    if isinstance(value, FunctionType) and value.__module__ == name:
        each(value)


# Functions that return frames, or what is in them, by the module that has them.
_READERS = {
    "sys": frozenset({"_getframe", "_current_frames", "_current_exceptions", "_getframemodulename"}),
    "inspect": frozenset({"currentframe", "stack", "trace", "getouterframes", "getinnerframes"}),
    "traceback": frozenset({"walk_stack", "extract_stack", "format_stack", "print_stack"}),
}
# Names that nothing else has: whatever they are attributes of.
_PLAIN = frozenset({"_getframe", "_current_frames", "_getframemodulename", "currentframe"})
_ANY = frozenset().union(*_READERS.values())
_NOTHING = frozenset({"CACHE", "PRECALL", "PUSH_NULL", "RESUME", "EXTENDED_ARG", "NOP"})
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF", "LOAD_FAST_BORROW")


def reader(value: Any) -> str:
    """Return the name of a function that returns frames, with its module's; nothing for anything else."""
    if type(value) is not FunctionType and type(value) is not BuiltinFunctionType:
        return ""  # not asked for attributes: that may run code of users
    module, name = value.__module__, value.__name__
    found = type(module) is str and name in _READERS.get(module, ())
    return f"{module}.{name}" if found else ""


def looks_at_frames(function: FunctionType) -> str:
    """Return by what `function`, or a function in it, looks at frames; nothing if it does not."""
    codes, space = _with_inner(function.__code__), function.__globals__
    return next((found for code in codes if (found := _reads(code, space))), "")


def looks_beyond(function: FunctionType) -> str:
    """Return by what `function` looks at frames further up than that of its caller, or may do so."""
    found = looks_at_frames(function)
    return found if found and _is_deep(function.__code__, function.__globals__) else ""


def stays_plain(function: FunctionType) -> str:
    """Return why no frame but its own may stand between `function` and its caller; nothing if one may.

    Functions that it names are looked at as they are now.
    """
    found = looks_at_frames(function)
    if found:
        return f"it looks at frames of the stack, by {found}"
    for named in _named(function):
        if found := looks_beyond(named):
            return f"{named.__qualname__}, which it calls, looks at frames of the stack, by {found}"
    return ""


def _named(function: FunctionType) -> Iterator[FunctionType]:
    """Yield functions that `function`, or a function in it, names."""
    space = function.__globals__
    for cell in function.__closure__ or ():
        try:
            if type(cell.cell_contents) is FunctionType:
                yield cell.cell_contents
        except ValueError:  # it is empty
            continue
    for code in _with_inner(function.__code__):
        for name in code.co_names:
            if type(space.get(name)) is FunctionType:
                yield space[name]


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _with_inner(each)


def _reads(code: CodeType, space: dict[str, Any]) -> str:
    for name in code.co_names:
        if name in _PLAIN:
            return name
        if found := reader(space.get(name)):
            return found
    if _ANY.isdisjoint(code.co_names) or not any(
            name in _READERS or _is_module(space.get(name)) and space[name].__name__ in _READERS
            for name in code.co_names):
        return ""
    return next((found for found, _ in _calls(_steps(code), space)), "")


def _is_module(value: Any) -> bool:
    return issubclass(type(value), ModuleType)  # `isinstance` asks values for their class


def _steps(code: CodeType) -> list[dis.Instruction]:
    """Return the instructions of `code` that do something."""
    return [step for step in dis.get_instructions(code) if step.opname not in _NOTHING]


def _calls(steps: list[dis.Instruction], space: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield each function that `steps` load which returns frames, and the index of the instruction."""
    # Names of variables that the code itself gives to modules, and to what it takes from them.
    given: dict[Any, str] = {}
    module = ""
    for at, step in enumerate(steps):
        before = steps[at - 1] if at else None
        if step.opname == "IMPORT_NAME":
            module = step.argval
        elif step.opname.startswith("STORE_") and before is not None:
            if before.opname == "IMPORT_NAME":
                given[step.argval] = before.argval
            elif before.opname == "IMPORT_FROM" and before.argval in _READERS.get(module, ()):
                given[step.argval] = f"{module}.{before.argval}"
        elif step.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
            name = step.argval
            if name in _PLAIN:
                yield name, at
            elif name in _ANY and before is not None and before.opname.startswith(_LOADS):
                value: Any = space.get(before.argval)
                owner = given.get(before.argval) or (value.__name__ if _is_module(value) else "")
                if name in _READERS.get(owner, ()):
                    yield f"{owner}.{name}", at
        elif step.opname.startswith(_LOADS):
            found = given.get(step.argval, "") if "." in given.get(step.argval, "") else \
                reader(space.get(step.argval)) if step.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME")) else ""
            if found:
                yield found, at


def _is_deep(code: CodeType, space: dict[str, Any]) -> bool:
    """Say whether frames above that of the caller are looked at, as far as instructions tell; else yes."""
    if any(_reads(each, space) for each in _with_inner(code) if each is not code):
        return True  # the caller of a function inside is another frame
    steps = _steps(code)
    back = sum(step.argval == "f_back" for step in steps)
    if back and any("JUMP_BACKWARD" in step.opname for step in steps):
        return True
    return any(back + _depth(name.rpartition(".")[2], steps[at + 1:at + 5]) > 1
               for name, at in _calls(steps, space))


def _depth(name: str, after: list[dis.Instruction]) -> int:
    """Return how far up a call reaches, whose instructions after the load of the function are these."""
    values = [step.argval if type(step.argval) is int and step.opname.startswith("LOAD_") else None
              for step in after]
    calls = [step.opname.startswith("CALL") for step in after]
    if name in ("_getframe", "currentframe") and calls and calls[0]:
        return 0
    if name == "_getframe" and len(calls) > 1 and calls[1] and values[0] is not None:
        return int(values[0])
    if name == "stack":
        # all frames are made, one of them is taken
        at = calls.index(True) + 1 if True in calls[:2] else len(after)
        if at + 1 < len(after) and ("SUBSCR" in after[at + 1].opname or after[at + 1].argrepr == "[]"):
            taken = values[at]
            return sys.maxsize if taken is None or taken < 0 else taken
    return sys.maxsize
