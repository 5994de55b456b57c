"""The options of jitla: an immutable record, its sources, and the value in force."""

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
from jitla.concurrency import fork_safe_lock
from jitla.errors import ConfigError, JitlaWarning
from jitla.introspection import restore_wrapper_code

__all__ = [
    "Config", "TracingThresholds", "cache_directory", "configure", "current", "describe",
    "from_environment", "openmp_threads", "options",
]

__version__ = "0.1.0"

_PREFIX = "JITLA_"
_SWITCH_VALUES = {"1": True, "true": True, "on": True, "yes": True,
           "0": False, "false": False, "off": False, "no": False, "": False}


def _choice(*allowed: str) -> Callable[[Any], Any]:
    """Return a check that accepts one of the words `allowed`."""

    def check(value: Any) -> Any:
        if value not in allowed:
            raise ValueError("one of " + ", ".join(map(repr, allowed)))
        return value

    return check


def _switch(value: Any) -> bool:
    """Accept a truth value; from the environment also the usual words for one."""
    if isinstance(value, str):
        value = _SWITCH_VALUES.get(value.strip().lower())
    if not isinstance(value, bool):
        raise ValueError("True or False (in the environment: 1, 0, true, false, on, off, yes, no)")
    return value


def _number(low: int, high: int) -> Callable[[Any], int]:
    """Return a check that accepts an integer from `low` to `high`."""

    def check(value: Any) -> int:
        if isinstance(value, str) and value.strip().isdecimal():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"an integer from {low} to {high}")
        return value

    return check


def _names(value: Any) -> str:
    """Accept names separated by commas; sorted, so that equal choices are equal."""
    if not isinstance(value, str) or not re.fullmatch(r"[\w\s,-]*", value):
        raise ValueError("names of rewrites separated by commas, as shown by explain")
    return ",".join(sorted({name.strip() for name in value.split(",")} - {""}))


def _machines(value: Any) -> str:
    """Accept names of machines separated by commas, the preferred one first; existence is checked later."""
    if not isinstance(value, str) or not re.fullmatch(r"[\w\s,-]*", value):
        raise ValueError("the name of a machine, such as 'vta-pynq', or several separated by commas")
    return ",".join(name.strip() for name in value.split(",") if name.strip())


def _ratio(low: float, high: float) -> Callable[[Any], float]:
    """Return a check that accepts a number from `low` to `high`."""

    def check(value: Any) -> float:
        with suppress(ValueError):
            value = float(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else value
        if not isinstance(value, float) or not low <= value <= high:
            raise ValueError(f"a number from {low} to {high}")
        return value

    return check


_SIZE_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SIZE_PATTERN = r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)"


def _size(value: Any) -> int:
    """Accept a number of bytes, or text such as "512MB"."""
    if isinstance(value, str):
        match = re.fullmatch(_SIZE_PATTERN, value.strip())
        if match and match[2].upper() in _SIZE_UNITS:
            value = int(float(match[1]) * _SIZE_UNITS[match[2].upper()])
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a number of bytes, or text such as '512MB' or '2GiB'; 0 for no limit")
    return value


def _text(value: Any) -> str:
    """Accept any text."""
    if not isinstance(value, str):
        raise ValueError("text returned by jitla.schedule")
    return value


def _thresholds(value: Any) -> TracingThresholds:
    """Accept thresholds of tracing."""
    if not isinstance(value, TracingThresholds):
        raise ValueError("an object of TracingThresholds")
    return value


def _path(value: Any) -> str:
    """Accept the path of a directory, which need not exist."""
    if not isinstance(value, (str, os.PathLike)) or isinstance(value, bytes):
        raise ValueError("the path of a directory, or an empty string for the user's cache")
    return str(os.fspath(value))


@dataclass(frozen=True)
class TracingThresholds:
    """Sizes and times at which tracing changes what it does. Only tests pass others than the defaults."""

    # What a site keeps: exact blocks, in number and in entries (an entry takes about 1 KB), and classes; and
    # the number of classes above which slice bounds of pending values are no longer part of a block's key.
    max_exact_blocks: int = 4096
    max_exact_entries: int = 1 << 15
    max_classes: int = 1024
    many_classes: int = 64
    # Pending operations above which a block ends at the next possible point. The time of planning grows
    # faster than linearly, and one more materialised value costs little beside this many operations.
    max_pending_operations: int = 256
    # Bytes of arrays that only the open block keeps alive, above which it is closed; and bytes of results
    # that trigger that check, which takes as long as making smaller ones.
    max_entered_bytes: int = 1 << 28
    min_counted_bytes: int = 1 << 20
    # Indices for which NumPy is as fast as the launch of a compiled loop; and as compiling it, milliseconds.
    min_loop_indices: int = 1 << 13
    min_compiled_indices: int = 1 << 20
    # Elements read by a gather: for fewer, NumPy is as fast. Indices up to this number are checked when they
    # are recorded, not by operations of the block.
    min_gather_elements: int = 1 << 15
    max_checked_indices: int = 1 << 16
    # Elements of a mask or of labels: for fewer, finding the positions first costs more than it saves.
    # Selected elements: NumPy reads fewer as fast.
    min_deferred_key_elements: int = 1 << 18
    min_positions: int = 1 << 13
    # Elements of an in-place operation: with fewer the analysis takes longer than a kernel.
    min_update_elements: int = 1 << 15
    # Elements for which a compiled scan down columns is worth a materialisation.
    min_column_scan_elements: int = 1 << 18
    # Entries of a sparse matrix, or elements of a dense operand: below, SciPy is as fast. Such calls are
    # recorded; those that fall back to SciPy are counted.
    min_sparse_elements: int = 1 << 16
    min_counted_sparse_entries: int = 1 << 16
    # Nanoseconds of replays that report floating-point warnings, before flag tests are compiled.
    min_replay_ns: float = 3e7
    # Estimated seconds of a run: shorter blocks are not watched for invariants, longer ones split at once.
    min_watched_seconds: float = 5e-6
    min_split_seconds: float = 5e-4


def _declare_option(
    default: Any, check: Callable[[Any], Any], doc: str, neutral: bool = False, internal: bool = False,
) -> Any:
    """Declare an option; compiled code and profiles do not depend on a `neutral` one.

    Texts for users and the environment leave out an `internal` one.
    """
    return field(default=default, metadata={
        "check": check, "doc": doc, "neutral": neutral, "internal": internal})


@dataclass(frozen=True)
class Config:
    """The values of all options; configs that differ in neutral options only have equal `epoch`.

    The epoch is part of every cache key.
    """

    numerics: str = _declare_option(
        "numpy", _choice("strict", "numpy", "relaxed"),
        "which differences to NumPy's bits are allowed: none; roundings with no worse bound; more")
    strict: bool = _declare_option(
        False, _switch, "raise UnsupportedError instead of falling back to NumPy")
    fallback: str = _declare_option(
        "silent", _choice("silent", "warn"),
        "what a fallback of an operation to NumPy does: nothing; a FallbackWarning, once for each line",
        neutral=True)
    verify: bool = _declare_option(
        False, _switch, "also run NumPy, compare, and raise VerificationError where they differ")
    compile: str = _declare_option(
        "auto", _choice("auto", "background", "sync", "off"),
        "which calls run compiled code: those faster than NumPy; all, once it is compiled; all; none")
    fusion: str = _declare_option(
        "cost", _choice("cost", "none", "patterns", "all", "no-redundancy"),
        "which operators share a loop: the cheapest plan, or one by a rule of thumb")
    estimator: str = _declare_option(
        "weighted", _choice("meta", "worst", "mnc", "weighted"),
        "how nonzeros of products are estimated: evenly spread; upper bound; sketches; weighted sketches")
    without_rules: str = _declare_option(
        "", _names, "disabled rewrites, names separated by commas; empty: none")
    rewrites: bool = _declare_option(
        True, _switch, "replace operators by cheaper equivalent ones")
    search_bound: float = _declare_option(
        1.05, _ratio(1.0, 10.0),
        "how much worse than the best a step of the search for rewrites may be; 1.0: it only gets better")
    search_steps: int = _declare_option(
        60, _number(0, 1_000_000), "most steps of the search for rewrites")
    search_ms: int = _declare_option(
        20, _number(0, 1_000_000),
        "milliseconds that the search for rewrites may take, the first plan included; 0: no search")
    search_from_us: int = _declare_option(
        100, _number(0, 1_000_000_000), "predicted microseconds from which on a block is worth a search")
    memory_limit: int = _declare_option(
        0, _size, "bytes that the results and intermediates of one block may take; 0: no limit")
    invariants: str = _declare_option(
        "cost", _choice("cost", "all", "none"),
        "which values that are equal in all runs of a block are hoisted: those that pay; all; none")
    invariants_limit: int = _declare_option(
        256 << 20, _size, "bytes of hoisted values in a call; never more than a tenth of memory")
    num_threads: int = _declare_option(
        0, _number(0, 1024), "threads of one kernel; 0: OMP_NUM_THREADS, else all processors allowed")
    cpu: str = _declare_option(
        "", _choice("", "x86-64-v2", "x86-64-v3", "x86-64-v4"),
        "processor level that kernels are compiled for; empty: this processor")
    accelerator: str = _declare_option(
        "", _machines, "simulated machines that parts of programs may run on, names separated by commas")
    placement: str = _declare_option(
        "cost", _choice("cost", "forced", "split"),
        "which parts run on an accelerator: those predicted to be faster there; all; some rows of each")
    schedules: str = _declare_option(
        "", _text, "schedules of kernels, as pinned by jitla.schedule; empty: chosen automatically")
    tune_after_ms: int = _declare_option(
        0, _number(0, 1_000_000_000),
        "total milliseconds of a kernel after which it is tuned in the background; 0: never")
    disable: bool = _declare_option(
        False, _switch, "jit returns the function itself (read when the function is decorated)")
    recompile: bool = _declare_option(
        True, _switch, "make plans and kernels for new blocks; if not, they run in NumPy", neutral=True)
    progress: bool = _declare_option(
        True, _switch, "report on standard error, after a second, that a call waits for the compiler",
        neutral=True)
    log: str = _declare_option(
        "", _choice("", "compile"), "log on standard error: nothing; every compilation",
        neutral=True)
    events: int = _declare_option(1000, _number(0, 1_000_000), "number of events kept for explain")
    cache_dir: str = _declare_option(
        "", _path, "directory of cached machine code and measurements; empty: in the user's cache")
    disk_cache: bool = _declare_option(
        True, _switch, "cache machine code on disk")
    disk_cache_limit: int = _declare_option(
        256 << 20, _size, "bytes of machine code on disk; least recently used entries are evicted")
    thresholds: TracingThresholds = _declare_option(
        TracingThresholds(), _thresholds, "sizes and times at which tracing changes what it does",
        internal=True)

    _epoch: ClassVar[int]

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, _checked(f.name, getattr(self, f.name), f.name))
        with _EPOCH_LOCK:
            key = tuple(getattr(self, f.name) for f in fields(self) if not f.metadata["neutral"])
            object.__setattr__(self, "_epoch", _EPOCHS.setdefault(key, len(_EPOCHS)))

    @cached_property
    def epoch(self) -> int:
        """Small integer that identifies this value: it changes with the value, and returns with it."""
        return self._epoch

    def with_changes(self, changes: Mapping[str, Any]) -> Config:
        """Return this config with `changes`; unknown names and values raise `ConfigError`."""
        return _changed(self, changes) if changes else self


_CHECKS: dict[str, Callable[[Any], Any]] = {f.name: f.metadata["check"] for f in fields(Config)}
_PUBLIC_NAMES = [f.name for f in fields(Config) if not f.metadata["internal"]]
_EPOCHS: dict[tuple[Any, ...], int] = {}
_EPOCH_LOCK = fork_safe_lock()
_CHANGE_LOCK = fork_safe_lock()


def _checked(name: str, value: Any, shown: str) -> Any:
    """Return the normalised `value` of option `name`; errors call it `shown`."""
    try:
        return _CHECKS[name](value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{shown}={value!r} is not possible; use {error}") from None


def _changed(base: Config, changes: Mapping[str, Any]) -> Config:
    """Return `base` with `changes`; the error for an unknown name lists the known ones."""
    for name in changes:
        if name not in _CHECKS:
            raise ConfigError(f"there is no option {name!r}; known are {', '.join(_PUBLIC_NAMES)}")
    try:
        return _cached_replace(base, tuple(changes), *changes.values())
    except TypeError:  # an unhashable value
        return replace(base, **changes)


@lru_cache(64, typed=True)
def _cached_replace(base: Config, names: tuple[str, ...], *values: Any) -> Config:
    """Return `base` with other values; cached, because blocks of options are entered repeatedly."""
    return replace(base, **dict(zip(names, values, strict=True)))


def from_environment(environ: Mapping[str, str]) -> Config:
    """Return the config set by the ``JITLA_*`` variables in `environ`."""
    changes = {}
    for variable in sorted(v for v in environ if v.startswith(_PREFIX)):
        name = variable.removeprefix(_PREFIX).lower()
        if name in _PUBLIC_NAMES:
            changes[name] = _checked(name, environ[variable], variable)
        else:
            valid = ", ".join(_PREFIX + n.upper() for n in _PUBLIC_NAMES)
            warnings.warn(f"{variable} is not known to jitla and ignored; known are {valid}",
                          JitlaWarning, stacklevel=2)
    return Config(**changes)


# The config of the process, in a list, which the code of every call reads.
PROCESS_CONFIG: list[Config] = [from_environment(os.environ)]
_LOCAL_CONFIG: ContextVar[Config | None] = ContextVar("jitla_config", default=None)


local_config = _LOCAL_CONFIG.get  # the config of the innermost `options`, or None


def configs_in_force() -> tuple[Config, Config | None]:
    """Return the config of the process, and that of the innermost `options`, if any."""
    return PROCESS_CONFIG[0], local_config()


def current() -> Config:
    """Return the config in force: that of the innermost `options`, else the process's."""
    return _LOCAL_CONFIG.get() or PROCESS_CONFIG[0]


def openmp_threads() -> int:
    """Return the thread count in ``OMP_NUM_THREADS``, which job schedulers set; 0 if unset."""
    outermost = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(outermost) if outermost.isdecimal() else 0


def cache_directory(config: Config) -> str:
    """Return the directory of the disk cache; it need not exist."""
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
    # Without a home directory nothing is cached: a relative path would depend on the working directory.
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
    with _CHANGE_LOCK:
        PROCESS_CONFIG[0] = _changed(PROCESS_CONFIG[0], changes)
        restore_wrapper_code()
        return PROCESS_CONFIG[0]


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
    token = _LOCAL_CONFIG.set(new)
    try:
        restore_wrapper_code()
        yield new
    finally:
        _LOCAL_CONFIG.reset(token)
        restore_wrapper_code()


def describe() -> str:
    """Return a table of all options: name, value in force, default, meaning."""
    config = current()
    rows = [f"{f.name:<12} {getattr(config, f.name)!r:<10} (default {f.default!r}, "
            f"{_PREFIX}{f.name.upper()})  {f.metadata['doc']}"
            for f in fields(Config) if not f.metadata["internal"]]
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
    thresholds: TracingThresholds


class _Options(ModuleType):
    """Module class that lets ``jitla.config.numerics`` be read and set like an attribute."""

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
        return sorted({*super().__dir__(), *_PUBLIC_NAMES})


sys.modules[__name__].__class__ = _Options
