"""The options of jitla: one frozen record, its sources, and the value in force."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import field, fields, replace
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from jitla.classes import cached_property, dataclass
from jitla.concurrency import relock
from jitla.errors import ConfigError, JitlaWarning
from jitla.introspection.recursion import give_back

__all__ = [
    "Config", "cache_directory", "configure", "current", "describe", "from_environment", "openmp_threads",
    "options",
]

__version__ = "0.1.0"

_PREFIX = "JITLA_"
_SWITCH = {"1": True, "true": True, "on": True, "yes": True,
           "0": False, "false": False, "off": False, "no": False, "": False}


def _choice(*allowed: str) -> Callable[[Any], Any]:
    """Accept one of the words `allowed`."""

    def check(value: Any) -> Any:
        if value not in allowed:
            raise ValueError("one of " + ", ".join(map(repr, allowed)))
        return value

    return check


def _switch(value: Any) -> bool:
    """Accept a truth value; from the environment also the usual words for one."""
    if isinstance(value, str):
        value = _SWITCH.get(value.strip().lower())
    if not isinstance(value, bool):
        raise ValueError("True or False (in the environment: 1, 0, true, false, on, off, yes, no)")
    return value


def _number(low: int, high: int) -> Callable[[Any], int]:
    """Accept an integer from `low` to `high`."""

    def check(value: Any) -> int:
        if isinstance(value, str) and value.strip().isdecimal():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"an integer from {low} to {high}")
        return value

    return check


def _names(value: Any) -> str:
    """Accept names with commas between; in one order, so that equal choices are equal."""
    if not isinstance(value, str) or not re.fullmatch(r"[\w\s,-]*", value):
        raise ValueError("names of rewrites with commas between, as explain shows them")
    return ",".join(sorted({name.strip() for name in value.split(",")} - {""}))


def _machines(value: Any) -> str:
    """Accept names with commas between, the one that is preferred first; which there are is known later."""
    if not isinstance(value, str) or not re.fullmatch(r"[\w\s,-]*", value):
        raise ValueError("the name of a machine, such as 'vta-pynq', or several with commas between")
    return ",".join(name.strip() for name in value.split(",") if name.strip())


def _ratio(low: float, high: float) -> Callable[[Any], float]:
    """Accept a number from `low` to `high`."""

    def check(value: Any) -> float:
        with suppress(ValueError):
            value = float(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else value
        if not isinstance(value, float) or not low <= value <= high:
            raise ValueError(f"a number from {low} to {high}")
        return value

    return check


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SIZE = r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)"


def _size(value: Any) -> int:
    """Accept a number of bytes, or text such as "512MB"."""
    if isinstance(value, str):
        found = re.fullmatch(_SIZE, value.strip())
        if found and found[2].upper() in _UNITS:
            value = int(float(found[1]) * _UNITS[found[2].upper()])
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a number of bytes, or text such as '512MB' or '2GiB'; 0 for no limit")
    return value


def _text(value: Any) -> str:
    """Accept any text."""
    if not isinstance(value, str):
        raise ValueError("text that jitla.schedule has written")
    return value


def _path(value: Any) -> str:
    """Accept the path of a directory, which need not be there yet."""
    if not isinstance(value, (str, os.PathLike)) or isinstance(value, bytes):
        raise ValueError("the path of a directory, or an empty string for the user's cache")
    return str(os.fspath(value))


def _option(default: Any, check: Callable[[Any], Any], doc: str, neutral: bool = False) -> Any:
    """Describe an option; what is compiled, and what was learnt, does not depend on a `neutral` one."""
    return field(default=default, metadata={"check": check, "doc": doc, "neutral": neutral})


@dataclass(frozen=True)
class Config:
    """The options in force; configs that differ in neutral options only share one `epoch`.

    That is part of every cache key.
    """

    numerics: str = _option(
        "numpy", _choice("strict", "numpy", "relaxed"),
        "which differences to NumPy's bits are allowed: none; roundings with no worse bound; more")
    strict: bool = _option(
        False, _switch, "raise UnsupportedError instead of handing an operation to NumPy")
    fallback: str = _option(
        "silent", _choice("silent", "warn"),
        "what is done where NumPy runs an operation: nothing; a FallbackWarning, once for each line",
        neutral=True)
    verify: bool = _option(
        False, _switch, "also run NumPy, compare, and raise VerificationError where they differ")
    compile: str = _option(
        "auto", _choice("auto", "background", "sync", "off"),
        "which calls run compiled code: those that are faster than NumPy's; all, once it is there; all;"
        " none")
    fusion: str = _option(
        "cost", _choice("cost", "none", "patterns", "all", "no-redundancy"),
        "which operators share a loop: the cheapest plan, or one by a rule of thumb")
    estimator: str = _option(
        "weighted", _choice("meta", "worst", "mnc", "weighted"),
        "how nonzeros of products are estimated: spread evenly; the bound; by sketches; these with weights")
    without_rules: str = _option(
        "", _names, "rewrites that are left out, names with commas between; empty: none")
    rewrites: bool = _option(
        True, _switch, "put cheaper operators in the place of others, where that means the same")
    search_bound: float = _option(
        1.05, _ratio(1.0, 10.0),
        "how much worse than the best a step of the search for rewrites may be; 1.0: it only gets better")
    search_steps: int = _option(
        60, _number(0, 1_000_000), "how many times the search for rewrites goes on from what it found")
    search_ms: int = _option(
        20, _number(0, 1_000_000),
        "milliseconds that the search for rewrites may take, the first plan among them; 0: there is none")
    search_from_us: int = _option(
        100, _number(0, 1_000_000_000), "predicted microseconds from which on a block is worth a search")
    memory_limit: int = _option(
        0, _size, "bytes that the results and intermediates of one block may take; 0: any number")
    invariants: str = _option(
        "cost", _choice("cost", "all", "none"),
        "which values that stay the same from run to run of a block are kept, and which other forms of "
        "matrices that stay the same: those that pay; all; none")
    invariants_limit: int = _option(
        256 << 20, _size, "bytes that such values may take in a call; never more than a tenth of memory")
    num_threads: int = _option(
        0, _number(0, 1024), "threads of one kernel; 0: OMP_NUM_THREADS, else all processors allowed")
    cpu: str = _option(
        "", _choice("", "x86-64-v2", "x86-64-v3", "x86-64-v4"),
        "level of processors that kernels are made for; empty: the one that is here")
    accelerator: str = _option(
        "", _machines, "simulated machines that parts of programs may run on, names with commas between")
    placement: str = _option(
        "cost", _choice("cost", "forced", "split"),
        "which parts run on an accelerator: those predicted to be faster there; all; some rows of all")
    schedules: str = _option(
        "", _text, "how kernels are cut up and run, as jitla.schedule has pinned it; empty: as is chosen")
    tune_after_ms: int = _option(
        0, _number(0, 1_000_000_000),
        "milliseconds that a kernel has run in all, after which it is tuned behind the program; 0: never")
    disable: bool = _option(
        False, _switch, "jit returns the function itself (read when the function is decorated)")
    recompile: bool = _option(
        True, _switch, "make plans and kernels for what is new; if not, NumPy does that", neutral=True)
    progress: bool = _option(
        True, _switch, "say on standard error, after a second, that a call waits for the compiler",
        neutral=True)
    log: str = _option(
        "", _choice("", "compile"), "what is written to standard error: nothing; all that is compiled",
        neutral=True)
    events: int = _option(1000, _number(0, 1_000_000), "how many events are remembered for explain")
    cache_dir: str = _option(
        "", _path, "where machine code and what was measured are kept; empty: in the user's cache")
    disk_cache: bool = _option(
        True, _switch, "keep machine code from process to process")
    disk_cache_limit: int = _option(
        256 << 20, _size, "bytes of machine code that are kept; what was not used for longest goes")

    _epoch: ClassVar[int]

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, _checked(f.name, getattr(self, f.name), f.name))
        with _NUMBERING:
            key = tuple(getattr(self, f.name) for f in fields(self) if not f.metadata["neutral"])
            object.__setattr__(self, "_epoch", _EPOCHS.setdefault(key, len(_EPOCHS)))

    @cached_property
    def epoch(self) -> int:
        """Small integer that stands for this value: changes with each change, returns with it."""
        return self._epoch

    def with_changes(self, changes: Mapping[str, Any]) -> Config:
        """Return this config with `changes`; unknown names and values raise `ConfigError`."""
        return _changed(self, changes) if changes else self


_CHECKS: dict[str, Callable[[Any], Any]] = {f.name: f.metadata["check"] for f in fields(Config)}
_EPOCHS: dict[tuple[Any, ...], int] = {}
_NUMBERING = relock()
_CHANGE = relock()


def _checked(name: str, value: Any, shown: str) -> Any:
    """Return the accepted form of `value` for option `name`, or raise in terms of `shown`."""
    try:
        return _CHECKS[name](value)
    except (TypeError, ValueError) as wrong:
        raise ConfigError(f"{shown}={value!r} is not possible; use {wrong}") from None


def _changed(base: Config, changes: Mapping[str, Any]) -> Config:
    """Return `base` with `changes`; unknown names raise and say which are known."""
    for name in changes:
        if name not in _CHECKS:
            raise ConfigError(f"there is no option {name!r}; known are {', '.join(_CHECKS)}")
    try:
        return _replaced(base, tuple(changes), *changes.values())
    except TypeError:  # a value that has no hash
        return replace(base, **changes)


@lru_cache(64, typed=True)
def _replaced(base: Config, names: tuple[str, ...], *values: Any) -> Config:
    """Return `base` with other values: blocks of options are often entered again and again."""
    return replace(base, **dict(zip(names, values, strict=True)))


def from_environment(environ: Mapping[str, str]) -> Config:
    """Return the config that the ``JITLA_*`` variables in `environ` ask for."""
    changes = {}
    for variable in sorted(v for v in environ if v.startswith(_PREFIX)):
        name = variable.removeprefix(_PREFIX).lower()
        if name in _CHECKS:
            changes[name] = _checked(name, environ[variable], variable)
        else:
            known = ", ".join(_PREFIX + n.upper() for n in _CHECKS)
            warnings.warn(f"{variable} is not known to jitla and ignored; known are {known}",
                          JitlaWarning, stacklevel=2)
    return Config(**changes)


# The config of the process, alone in a list: code that runs in every call reads it there.
PROCESS: list[Config] = [from_environment(os.environ)]
_LOCAL: ContextVar[Config | None] = ContextVar("jitla_config", default=None)


local = _LOCAL.get  # the config of the innermost `options`, or None


def in_force() -> tuple[Config, Config | None]:
    """Return the config of the process, and that of the innermost `options`, if any."""
    return PROCESS[0], local()


def current() -> Config:
    """Return the config in force here: that of the innermost `options`, else the process's."""
    return _LOCAL.get() or PROCESS[0]


def openmp_threads() -> int:
    """Return what ``OMP_NUM_THREADS`` asks for, which whoever shares out processors sets; 0: nothing."""
    outermost = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(outermost) if outermost.isdecimal() else 0


def cache_directory(config: Config) -> str:
    """Return where files are kept from process to process; it need not be there."""
    if config.cache_dir:
        return config.cache_dir
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        base = base if os.path.isabs(base) else "~/.cache"
    base = os.path.expanduser(base)
    # Without a home nothing is kept: a relative path would mean the directory the program happens to run in.
    return os.path.join(base, "jitla") if os.path.isabs(base) else os.devnull


def configure(**changes: Any) -> Config:
    """Change options for the whole process and return the new config.

    Code inside a ``with options(...)`` block keeps what that block set. ``jitla.config.num_threads = 1``
    is the same as ``jitla.configure(num_threads=1)``.

    Parameters
    ----------
    **changes
        Option names with their new values; `jitla.config.describe` lists them.

    Raises
    ------
    ConfigError
        If there is no such option, or it has no such value; nothing is changed then.
    """
    with _CHANGE:
        PROCESS[0] = _changed(PROCESS[0], changes)
        give_back()
        return PROCESS[0]


@contextmanager
def options(**changes: Any) -> Iterator[Config]:
    """Change options inside a ``with`` block, for this thread and its asynchronous tasks only.

    Parameters
    ----------
    **changes
        Option names with their new values; `jitla.config.describe` lists them.

    Raises
    ------
    ConfigError
        If there is no such option, or it has no such value; nothing is changed then.
    """
    new = _changed(current(), changes)
    token = _LOCAL.set(new)
    try:
        give_back()
        yield new
    finally:
        _LOCAL.reset(token)
        give_back()


def describe() -> str:
    """Return a table of all options: name, value in force, default, meaning."""
    now = current()
    rows = [f"{f.name:<12} {getattr(now, f.name)!r:<10} (default {f.default!r}, "
            f"{_PREFIX}{f.name.upper()})  {f.metadata['doc']}" for f in fields(Config)]
    return "\n".join(rows)


if TYPE_CHECKING:  # what `_Options` below adds to this module, for type checkers and editors
    numerics: str
    strict: bool
    fallback: str
    verify: bool
    compile: str
    fusion: str
    estimator: str
    without_rules: str
    rewrites: bool
    search_bound: float
    search_steps: int
    search_ms: int
    search_from_us: int
    memory_limit: int
    invariants: str
    invariants_limit: int
    num_threads: int
    cpu: str
    accelerator: str
    placement: str
    schedules: str
    tune_after_ms: int
    disable: bool
    recompile: bool
    progress: bool
    log: str
    events: int
    cache_dir: str
    disk_cache: bool
    disk_cache_limit: int


class _Options(ModuleType):
    """Lets ``jitla.config.numerics`` be read and set like an attribute."""

    def __getattr__(self, name: str) -> Any:
        if name in _CHECKS:
            return getattr(current(), name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _CHECKS:
            configure(**{name: value})
        elif name.startswith("_") or name in self.__dict__:
            super().__setattr__(name, value)
        else:
            _changed(current(), {name: value})

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_CHECKS})


sys.modules[__name__].__class__ = _Options
