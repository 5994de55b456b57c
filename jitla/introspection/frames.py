"""File names by which `warnings` and `logging` skip jitla's frames, and detection of frame readers.

A warning with ``stacklevel=2`` is attributed to the caller of the function that issues it, and `logging`
reports the line that logs. Both walk up the stack and skip frames of Python's import system, which they
recognise by two words in the file name. Code of jitla that runs between two user functions gets these words
appended to its file name, so it is skipped, too. The prefix remains the path of the file: tracebacks of
jitla's failures are located, and `linecache` finds the lines by the module.

A function that inspects its own frame, or those of its callers, is not traced: traced, it would run as
another function, with other variables, between frames of jitla. A function that it calls may inspect *its
own* frame only, and gets one with the same variables; frames further up would be jitla's.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

__all__ = [
    "BRIDGE_FILES", "INTERNAL_MARK", "hidden_code", "hide_frames", "hide_module", "frame_access_of",
    "outer_frame_access_of", "frame_reader_name",
    "frame_sensitivity_of",
]


#: Suffix of file names whose frames stack walkers skip.
INTERNAL_MARK = " (internal, as importlib._bootstrap)"
#: Files of jitla with the code that replaces decorated functions: user code that they call continues in the
#: session of their caller.
BRIDGE_FILES: set[str] = set()


def hidden_code(code: CodeType) -> CodeType:
    """Return `code`, and the code objects in it, with a file name that stack walkers skip."""
    if code.co_filename.endswith(INTERNAL_MARK):
        return code
    constants = tuple([hidden_code(constant) if isinstance(constant, CodeType) else constant
                       for constant in code.co_consts])
    return code.replace(co_filename=code.co_filename + INTERNAL_MARK, co_consts=constants)


def hide_frames(function: FunctionType) -> None:
    """Hide the frames of `function`, and of functions that it defines."""
    function.__code__ = hidden_code(function.__code__)


def hide_module(name: str, each: Callable[[FunctionType], None] = hide_frames) -> None:
    """Apply `each` to all functions and methods that the module `name` defines; by default, hide them."""
    for value in list(vars(sys.modules[name]).values()):
        if isinstance(value, type) and value.__module__ == name:
            for member in list(vars(value).values()):
                _hide_member(member, name, each)
        else:
            _hide_member(value, name, each)


def _hide_member(value: Any, name: str, each: Callable[[FunctionType], None]) -> None:
    if isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    if isinstance(value, FunctionType) and value.__module__ == name:
        each(value)


# Functions that return frames or their contents, by module.
_READERS = {
    "sys": frozenset({"_getframe", "_current_frames", "_current_exceptions", "_getframemodulename"}),
    "inspect": frozenset({"currentframe", "stack", "trace", "getouterframes", "getinnerframes"}),
    "traceback": frozenset({"walk_stack", "extract_stack", "format_stack", "print_stack"}),
}
# Names that are unambiguous, as attributes of anything.
_UNAMBIGUOUS_READERS = frozenset({"_getframe", "_current_frames", "_getframemodulename", "currentframe"})
_ALL_READERS = frozenset().union(*_READERS.values())
_IGNORED_OPCODES = frozenset({"CACHE", "PRECALL", "PUSH_NULL", "RESUME", "EXTENDED_ARG", "NOP"})
_LOAD_OPCODES = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF", "LOAD_FAST_BORROW")


def frame_reader_name(value: Any) -> str:
    """Return the qualified name if `value` is a function that returns frames, else an empty string."""
    if type(value) is not FunctionType and type(value) is not BuiltinFunctionType:
        return ""  # attribute access on other types may run user code
    module, name = value.__module__, value.__name__
    is_reader = type(module) is str and name in _READERS.get(module, ())
    return f"{module}.{name}" if is_reader else ""


def frame_access_of(function: FunctionType) -> str:
    """Return the name by which `function`, or a function in it, accesses frames; empty if it does not."""
    codes, space = _nested_codes(function.__code__), function.__globals__
    return next((access for code in codes if (access := _frame_access_in_code(code, space))), "")


def outer_frame_access_of(function: FunctionType) -> str:
    """Return the name by which `function` may access frames above its caller's; empty if it does not."""
    access = frame_access_of(function)
    return access if access and _reaches_outer_frames(function.__code__, function.__globals__) else ""


def frame_sensitivity_of(function: FunctionType) -> str:
    """Return why only the frame of `function` itself may follow its caller's; empty if there is no reason.

    Global functions that it names are inspected with their current values.
    """
    access = frame_access_of(function)
    if access:
        return f"it looks at frames of the stack, by {access}"
    for called in _named_functions(function):
        if access := outer_frame_access_of(called):
            return f"{called.__qualname__}, which it calls, looks at frames of the stack, by {access}"
    return ""


def _named_functions(function: FunctionType) -> Iterator[FunctionType]:
    """Yield the functions that `function`, or a function in it, names."""
    space = function.__globals__
    for cell in function.__closure__ or ():
        try:
            if type(cell.cell_contents) is FunctionType:
                yield cell.cell_contents
        except ValueError:  # it is empty
            continue
    for code in _nested_codes(function.__code__):
        for name in code.co_names:
            if type(space.get(name)) is FunctionType:
                yield space[name]


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_codes(constant)


def _frame_access_in_code(code: CodeType, space: dict[str, Any]) -> str:
    for name in code.co_names:
        if name in _UNAMBIGUOUS_READERS:
            return name
        if reader := frame_reader_name(space.get(name)):
            return reader
    if _ALL_READERS.isdisjoint(code.co_names) or not any(
            name in _READERS or _is_module(space.get(name)) and space[name].__name__ in _READERS
            for name in code.co_names):
        return ""
    return next((reader for reader, _ in _reader_loads(_instructions(code), space)), "")


def _is_module(value: Any) -> bool:
    return issubclass(type(value), ModuleType)  # `isinstance` would read `__class__` of the value


def _instructions(code: CodeType) -> list[dis.Instruction]:
    """Return the instructions of `code` without no-ops."""
    return [step for step in dis.get_instructions(code) if step.opname not in _IGNORED_OPCODES]


def _reader_loads(steps: list[dis.Instruction], space: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield each frame reader that `steps` load, and the index of the instruction."""
    # Local names of modules and of functions that the code imports.
    assigned: dict[Any, str] = {}
    module = ""
    for position, step in enumerate(steps):
        previous = steps[position - 1] if position else None
        if step.opname == "IMPORT_NAME":
            module = step.argval
        elif step.opname.startswith("STORE_") and previous is not None:
            if previous.opname == "IMPORT_NAME":
                assigned[step.argval] = previous.argval
            elif previous.opname == "IMPORT_FROM" and previous.argval in _READERS.get(module, ()):
                assigned[step.argval] = f"{module}.{previous.argval}"
        elif step.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
            name = step.argval
            if name in _UNAMBIGUOUS_READERS:
                yield name, position
            elif name in _ALL_READERS and previous is not None and previous.opname.startswith(_LOAD_OPCODES):
                value: Any = space.get(previous.argval)
                owner = assigned.get(previous.argval) or (value.__name__ if _is_module(value) else "")
                if name in _READERS.get(owner, ()):
                    yield f"{owner}.{name}", position
        elif step.opname.startswith(_LOAD_OPCODES):
            reader_name = assigned.get(step.argval, "") if "." in assigned.get(step.argval, "") else \
                frame_reader_name(space.get(step.argval)) if step.opname.startswith(("LOAD_GLOBAL",
                                                                                     "LOAD_NAME")) else ""
            if reader_name:
                yield reader_name, position


def _reaches_outer_frames(code: CodeType, space: dict[str, Any]) -> bool:
    """Return whether frames above the caller's may be accessed, conservatively."""
    if any(_frame_access_in_code(each, space) for each in _nested_codes(code) if each is not code):
        return True  # inner functions have other callers
    steps = _instructions(code)
    back = sum(step.argval == "f_back" for step in steps)
    if back and any("JUMP_BACKWARD" in step.opname for step in steps):
        return True
    return any(back + _frame_depth(name.rpartition(".")[2], steps[at + 1:at + 5]) > 1
               for name, at in _reader_loads(steps, space))


def _frame_depth(name: str, after: list[dis.Instruction]) -> int:
    """Return how many frames up a call of the reader `name` reaches.

    `after` are the instructions after the load of the function.
    """
    values = [step.argval if type(step.argval) is int and step.opname.startswith("LOAD_") else None
              for step in after]
    calls = [step.opname.startswith("CALL") for step in after]
    if name in ("_getframe", "currentframe") and calls and calls[0]:
        return 0
    if name == "_getframe" and len(calls) > 1 and calls[1] and values[0] is not None:
        return int(values[0])
    if name == "stack":
        # returns all frames, of which one may be indexed
        at = calls.index(True) + 1 if True in calls[:2] else len(after)
        if at + 1 < len(after) and ("SUBSCR" in after[at + 1].opname or after[at + 1].argrepr == "[]"):
            index_ = values[at]
            return sys.maxsize if index_ is None or index_ < 0 else index_
    return sys.maxsize
