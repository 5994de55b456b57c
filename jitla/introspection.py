"""Introspection of Python functions and frames: unwrapped callables, frame readers, deep recursion.

Used while functions are decorated and called; imports nothing heavy, and of jitla `jitla.errors` only.

**Hidden frames.** A warning with ``stacklevel=2`` is attributed to the caller of the function that issues it,
and `logging` reports the line that logs. Both walk up the stack and skip frames of Python's import system,
which they recognise by two words in the file name. Code of jitla that runs between two user functions gets
these words appended to its file name, so it is skipped, too. The prefix remains the path of the file:
tracebacks of jitla's failures are located, and `linecache` finds the lines by the module.

**Frame readers.** A function that inspects its own frame, or those of its callers, is not traced: traced, it
would run as another function, with other variables, between frames of jitla. A function that it calls may
inspect *its own* frame only, and gets one with the same variables; frames further up would be jitla's.

**Deep recursion.** A decorated call takes up to five frames: the wrapper, the dispatch, and the plain
function. Python counts all of them, so a recursion would reach the limit after a fifth of its levels. From
`DEEP_NESTING` nested calls on, the wrapper is given the code of the plain function until the call that did so
returns. Nested calls then take one frame each, whether by name, as a method, by another decorated function or
by a helper. They need no accounting of their own: they are part of a call that is counted.

Until then traced code treats such a function like an undecorated one: it calls the instrumented function
(`jitla/tracing/callees.py`), never the wrapper. Changes of options call `restore_wrapper_code`, because the
code was chosen under other options. Other threads that call the function meanwhile run the plain code,
too: results are the same.

Rejected alternatives: a higher recursion limit is visible to the program, affects all threads, and lets code
use more of the C stack than the program allows. A version of the function that calls itself directly misses
calls by helpers, and needs the source text.
"""

from __future__ import annotations

import dis
import inspect
import os
import site
import sys
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import copy_context
from functools import partial
from sys import _getframe, getrecursionlimit
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from jitla.errors import TraceError

__all__ = [
    "ARRAY_PACKAGES", "BRIDGE_FILES", "DEEP_NESTING", "INTERNAL_MARK", "NESTING", "SUSPENDED_STATES",
    "call_with_stack_headroom", "check_arguments", "frame_access_of", "frame_reader_name",
    "frame_sensitivity_of", "hidden_code", "hide_frames", "hide_module", "is_decorated",
    "is_deep_recursion", "is_installed", "nested_codes", "outer_frame_access_of", "package_of",
    "reject_coroutine", "restore_wrapper_code", "table_class_name", "untraceable_reason", "unwrap_callable",
]


# --------------------------------------------------------------------------- callables


#: Packages whose functions run unchanged, decorated or not.
ARRAY_PACKAGES = frozenset({"numpy", "scipy"})
_OWN_DIRECTORY = os.path.dirname(os.path.abspath(__file__))
# The standard library is in the folder of `os`; importing `sysconfig` takes long.
_LIBRARIES = tuple({_OWN_DIRECTORY, os.path.dirname(os.__file__), *site.getsitepackages()})
# Folders of installed packages anywhere: of the user, or of another environment on the path.
_PACKAGE_FOLDERS = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def is_installed(filename: str) -> bool:
    """Return whether a file belongs to a library or to jitla, not to the program."""
    return filename.startswith((*_LIBRARIES, "<frozen")) or any(folder in filename
                                                                for folder in _PACKAGE_FOLDERS)


def is_decorated(function: Any) -> bool:
    """Return whether `function` was returned by `jit`, and is no `functools.wraps` wrapper of one.

    `functools.wraps` copies all attributes of a function, including the state of a decorated one.
    """
    if type(function) is not FunctionType:
        return False
    state = function.__dict__.get("__jitla_state__")
    return state is not None and bool(state.belongs_to(function))


def package_of(function: FunctionType) -> str:
    """Return the name of the package that `function` belongs to; all its functions count as the user's."""
    module = str(function.__module__)
    package = module.partition(".")[0]
    # jitla's own decorated functions are example programs
    return module if package == __name__.partition(".")[0] else package


def unwrap_callable(target: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the function that `target` calls, and the positional and keyword arguments that it adds."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    while True:
        if isinstance(target, partial):
            args, kwargs = (*target.args, *args), {**target.keywords, **kwargs}
            target = target.func
        elif isinstance(target, MethodType):
            args, target = (target.__self__, *args), target.__func__
        elif isinstance(target, property) and target.fget is not None:
            target = target.fget
        elif _has_python_call(target):
            args, target = (target, *args), type(target).__call__
        else:
            return target, args, kwargs


def _has_python_call(target: Any) -> bool:
    """Return whether `target` is an object whose class defines `__call__` in Python."""
    is_plain = isinstance(target, (FunctionType, type)) or hasattr(target, "__jitla_state__")
    return not is_plain and isinstance(inspect.getattr_static(type(target), "__call__", None), FunctionType)


def check_arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise `TypeError` with a hint if a method is called without its object.

    ``m.f.explain(x)`` reaches the function of the class, without `m`.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built-in functions may have none
        return
    first = next(iter(signature.parameters), "")
    if first not in ("self", "cls"):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = function.__qualname__
        raise TypeError(
            f"{name}: {error}; of a method, write jitla.explain(object.{function.__name__}, ...), "
            f"or {name}.explain(object, ...) and {name}.compile(object, ...)") from None


def reject_coroutine(function: Callable[..., Any]) -> None:
    """Raise `TraceError` if only an event loop can run `function`."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TraceError(f"{getattr(function, '__qualname__', function)} runs in an event loop: "
                         "await a call of it, then explain it without arguments")


def table_class_name(values: Iterable[Any]) -> str:
    """Return the class name of the first value (or class) that is a table: it has `to_numpy`."""
    classes = (value if isinstance(value, type) else type(value) for value in values)
    return next((cls.__name__ for cls in classes if hasattr(cls, "to_numpy")), "")


def untraceable_reason(function: Any) -> str:
    """Return why `function` cannot be traced, given its kind; empty for Python functions."""
    if inspect.isasyncgenfunction(function):
        return "runs in NumPy: it is an asynchronous generator"
    if not isinstance(function, FunctionType):
        return "runs in NumPy: it is not a Python function"
    if function.__module__ and function.__module__.partition(".")[0] in ARRAY_PACKAGES:
        return "runs in NumPy: it is a function of NumPy or SciPy itself"
    return ""


# --------------------------------------------------------------------------- frames


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
    codes, space = nested_codes(function.__code__), function.__globals__
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
    for code in nested_codes(function.__code__):
        for name in code.co_names:
            if type(space.get(name)) is FunctionType:
                yield space[name]


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield `code` and the code objects in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested_codes(constant)


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
    if any(_frame_access_in_code(each, space) for each in nested_codes(code) if each is not code):
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


# --------------------------------------------------------------------------- deep recursion


# Nested calls of a deep recursion.
DEEP_NESTING = 6
# Enough for all work that is done once for a function.
HEADROOM_FRAMES = 400


class _Nesting:
    """The number of decorated calls in progress, in all threads.

    Single statements change it, within which CPython does not switch threads.
    """

    __slots__ = ("nested",)

    def __init__(self) -> None:
        self.nested = 0


NESTING = _Nesting()
# States of functions whose wrapper may have the plain code, one item per call that replaced it.
SUSPENDED_STATES: list[Any] = []


def is_deep_recursion(code: CodeType) -> bool:
    """Return whether more than `DEEP_NESTING` frames of this thread run `code`."""
    frame: FrameType | None = _getframe(1)
    count = 0
    while frame is not None and count <= DEEP_NESTING:
        count += frame.f_code is code
        frame = frame.f_back
    return count > DEEP_NESTING


def restore_wrapper_code() -> None:
    """Give all wrappers their own code again, also in recursions in progress."""
    for state in tuple(SUSPENDED_STATES):
        wrapper = state.wrapper()
        if wrapper is not None:
            wrapper.__code__ = state.fast_path.code


def call_with_stack_headroom(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function` with at least `HEADROOM_FRAMES` frames before the recursion limit.

    Its result is cached or must not be lost. Near the limit the call runs in another thread, which has its
    own count; this thread waits.
    """
    left = getrecursionlimit() - HEADROOM_FRAMES
    frame: FrameType | None = _getframe()
    while frame is not None and left > 0:
        left -= 1
        frame = frame.f_back
    if left > 0:
        return function(*args)
    done, context, outcome = allocate_lock(), copy_context(), _Outcome()
    done.acquire()
    try:
        start_new_thread(outcome.run, (done, context, function, args))
    except RecursionError:
        raise
    except RuntimeError:  # there can be no more threads
        return function(*args)
    done.acquire()
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


class _Outcome:
    """The result or exception of a call in another thread."""

    value: Any = None
    error: BaseException | None = None

    def run(self, done: Any, context: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Call `function` and release the lock `done`."""
        try:
            self.value = context.run(function, *args)
        except BaseException as error:  # raised in the waiting thread
            self.error = error
        finally:
            done.release()
