"""Compilation of LLVM text to machine code, and targets to compile for."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Protocol
from weakref import WeakValueDictionary

import llvmlite
import llvmlite.binding as llvm

from jitla.classes import cached_property
from jitla.codegen.native.routines import routine_symbols_in
from jitla.codegen.native.symbols import loop_symbols_in
from jitla.codegen.passes import optimise
from jitla.codegen.target import PART, Target
from jitla.compile_stats import COMPILING
from jitla.concurrency import (
    acquire_before_fork,
    fork_safe_lock,
    is_orphaned_by_fork,
)
from jitla.config import __version__
from jitla.errors import BackendError
from jitla.process.resources import (
    call_with_deep_stack,
    require_mapping,
    require_memory,
)

__all__ = ["host_target", "lacking", "level_target"]


#: With AVX-512 vectors of 32 bytes gain nearly as much by its masks and registers; those of 64 are slower
#: where loads cross cache lines and in products of few columns.
_VECTORS = (("avx", 32), ("avx2", 32))
#: What every level of x86-64 adds to the one before.
_LEVELS = {
    "x86-64-v2": ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),
    "x86-64-v4": ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
}


def host_target() -> Target:
    """Describe the processor this runs on."""
    found = llvm.get_host_cpu_features()
    features = frozenset(name for name, on in found.items() if on)
    return _described(llvm.get_host_cpu_name(), features)


def level_target(level: str) -> Target:
    """Describe the processors of a level of x86-64, such as "x86-64-v3"."""
    names = list(_LEVELS)
    return _described(level, frozenset(f for n in names[:names.index(level) + 1] for f in _LEVELS[n]))


def lacking(target: Target) -> tuple[str, ...]:
    """Return what the processor this runs on would need to run code for `target`."""
    host = host_target()
    foreign = () if host.triple.startswith("x86_64") or target.cpu not in _LEVELS else ("x86-64",)
    return (*foreign, *sorted(target.features - host.features))


def _described(cpu: str, features: frozenset[str]) -> Target:
    width = max((size for name, size in _VECTORS if name in features), default=16)
    return Target(llvm.get_process_triple(), cpu, features, width)


# Nobody is in LLVM but who has it: a fork meanwhile would leave its memory half written.
_INSIDE = getattr(getattr(llvm.ffi.lib, "_lock", None), "_lock", None) or fork_safe_lock()
acquire_before_fork(_INSIDE)
_PARTS = re.compile(PART.replace("{}", r"(\d)"))
# Bytes that LLVM takes at most: for any code, and for each of a text; for loading any object.
FOR_CODE, FOR_TEXT, FOR_LOADING = 32 << 20, 64, 8 << 20

Text = str | Callable[[], str]


def modules(text: str) -> list[tuple[int | None, str]]:
    """Return the modules of `text`, each with the level it is compiled at: the usual one if None."""
    first, *others = _PARTS.split(text)
    levels, texts = map(int, others[::2]), others[1::2]
    return [*([(None, first)] if first else []), *zip(levels, texts, strict=True)]


class Objects(dict[str, bytes]):
    """Object bytes by content key: the latest, at most `max_count` objects and `max_bytes` bytes."""

    def __init__(self, max_count: int = 4096, max_bytes: int = 64 << 20) -> None:
        super().__init__()
        self.max_count, self.max_bytes = max_count, max_bytes
        self.nbytes = 0

    def __setitem__(self, key: str, data: bytes) -> None:
        self.nbytes += len(data) - len(self.pop(key, b""))
        super().__setitem__(key, data)
        while len(self) > self.max_count or self.nbytes > self.max_bytes and len(self) > 1:
            self.nbytes -= len(self.pop(next(iter(self))))


class ObjectCache(Protocol):
    """Keeps object bytes from process to process; never fails. `maker` says what they came from and for."""

    def get(self, key: str, maker: str) -> bytes | None:
        """Return what is kept under `key`."""
        ...

    def put(self, key: str, maker: str, code: bytes) -> None:
        """Keep `code`."""
        ...


class Library:
    """A loaded object; its functions live as long as this does."""

    __slots__ = ("addresses", "objects", "_text", "_tracker", "__weakref__")

    def __init__(self, tracker: Any, names: tuple[str, ...], objects: list[bytes], text: Text = "") -> None:
        self.objects = objects
        self._text = text
        self._tracker = tracker
        self.addresses: dict[str, int] = {name: tracker[name] for name in names}

    @property
    def text(self) -> str:
        """The IR that it was made of, written again if it was not needed."""
        return self._text if isinstance(self._text, str) else self._text()


class Jit:
    """Compiles and loads modules; `objects` maps content keys to object bytes.

    Everything that enters LLVM happens under one lock; LLVM starts on first use. `level` is LLVM's
    for code generation: 0 compiles five times as fast as 2. Parts of a text behind a line `PART` are
    modules of their own, of the level that it names. `target` is the host unless given. `shelf` returns
    what keeps objects from process to process, None where nothing does; `writers` says who writes texts: what
    they write follows from words that are given with it, so that objects are found by those.
    """

    def __init__(
        self, objects: dict[str, bytes] | None = None, level: int = 2, target: Target | None = None,
        shelf: Callable[[], ObjectCache | None] = lambda: None, writers: Callable[[], str] | None = None,
    ) -> None:
        self._writers = writers
        self._level = level
        self._wanted = target
        self._shelf = shelf
        self.objects = Objects() if objects is None else objects
        self._lock = fork_safe_lock()
        self._numbers = itertools.count()
        self._loaded: WeakValueDictionary[str, Library] = WeakValueDictionary()
        self._engine: Any = None
        self._target: Target | None = None

    @property
    def target(self) -> Target:
        """The processor code is made for."""
        if self._target is None:
            with self._lock:
                if self._target is None:
                    self._start()
        assert self._target is not None
        return self._target

    def _start(self) -> None:
        require_memory(FOR_CODE)
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = self._wanted or host_target()
        self._engine = call_with_deep_stack(llvm.create_lljit_compiler,
                                            _machine(target, self._level, "jitdefault"))
        self._target = target

    @cached_property
    def maker(self) -> str:
        """What makes objects here, and for which processor."""
        host, version = self.target, ".".join(map(str, llvm.llvm_version_info))
        programs = f"jitla {__version__} llvmlite {llvmlite.__version__} LLVM {version}"
        return f"{programs} {host.triple} {host.cpu} {host.feature_string}"

    def key(self, text: str, level: int | None = None) -> str:
        """Return the content key of the object made from `text` here."""
        chosen = self._level if level is None else level
        return hashlib.sha256(f"{self.maker}\0{chosen}\0{text}".encode()).hexdigest()

    def compile(self, text: str, level: int | None = None) -> bytes:
        """Return object bytes for the one module `text`, from the caches where possible."""
        key = self.key(text, level)
        data = self.objects.get(key)
        if data is None:
            with self._lock:
                data = self.objects.get(key)
                if data is None:
                    data = self.objects[key] = self._made(key, text, level)
        return data

    def _made(self, key: str, text: str, level: int | None) -> bytes:
        shelf = self._shelf()
        data = None if shelf is None else shelf.get(key, self.maker)
        if data is None:
            data = self._emit(text, self._level if level is None else level)
            if shelf is not None:
                shelf.put(key, self.maker, data)
        return data

    def _emit(self, text: str, level: int) -> bytes:
        COMPILING.current.require_allowed()
        if is_orphaned_by_fork(_INSIDE):
            raise BackendError("the compiler was at work when this process was forked")
        require_memory(FOR_CODE + FOR_TEXT * len(text))
        data: bytes = call_with_deep_stack(_object, text, self.target, level)
        COMPILING.current.count_kernel(len(data))
        return data

    def load(self, text: Text, names: tuple[str, ...], words: tuple[Any, ...] = ()) -> Library:
        """Return the modules of `text`, compiled and loaded, with the addresses of `names`.

        A text that follows from `words` and from who writes texts is written only if no object is kept.
        """
        found = self._by_words(text, names, words) if words else None
        if found is not None:
            return found
        written = text if isinstance(text, str) else text()
        key, parts = self.key(written), modules(written)
        library = self._loaded.get(key)
        if library is not None:
            COMPILING.current.count_kernel(None)
        else:
            before = COMPILING.current.compiled
            objects = [self.compile(part, level) for level, part in parts]
            if COMPILING.current.compiled == before:
                COMPILING.current.count_kernel(None)
            library = self._linked(key, objects, names, written)
        if words:
            self._tell(words, [key, *[self.key(part, level) for level, part in parts]])
        return library

    def load_quickly(self, text: str, names: tuple[str, ...]) -> Library:
        """Return the module `text` as code without optimisation, which is not kept."""
        with self._lock:
            return self._link([self._emit(text, 0)], names, text)

    def part_keys(self, text: str) -> tuple[str, ...]:
        """Return the content keys of the objects of `text`."""
        return tuple(self.key(part, level) for level, part in modules(text))

    def is_cached(self, keys: tuple[str, ...]) -> bool:
        """Return whether objects are kept."""
        shelf = self._shelf()
        return all(key in self.objects or shelf is not None and self._known(key, shelf) is not None
                   for key in keys)

    def load_cached(self, keys: tuple[str, ...], names: tuple[str, ...]) -> Library | None:
        """Return the kept objects, loaded, with the addresses of `names`; None if one is not kept."""
        shelf = self._shelf()
        objects = [] if shelf is None else [data for data in (self._known(key, shelf) for key in keys)
                                            if data is not None]
        if not objects or len(objects) < len(keys):
            return None
        with self._lock:
            self.target  # noqa: B018  (starts LLVM)
            return self._link(objects, names)

    def _linked(self, key: str, objects: list[bytes], names: tuple[str, ...], text: Text) -> Library:
        with self._lock:
            library = self._loaded.get(key)
            if library is None:
                library = self._loaded[key] = self._link(objects, names, text)
        return library

    def _by_words(self, text: Text, names: tuple[str, ...], words: tuple[Any, ...]) -> Library | None:
        """Return what is kept of the text that follows from `words`; None if there is a part missing."""
        shelf = self._shelf()
        if shelf is None or self._writers is None:
            return None
        told = shelf.get(self.key(repr(words)), self._writers())
        key, *parts = ("",) if told is None else told.decode("utf-8").split()
        library = self._loaded.get(key)
        if library is None:
            objects = [data for data in (self._known(part, shelf) for part in parts) if data is not None]
            if not parts or len(objects) < len(parts):
                return None
            library = self._linked(key, objects, names, text)
        COMPILING.current.count_kernel(None)
        return library

    def _known(self, key: str, shelf: ObjectCache) -> bytes | None:
        data = self.objects.get(key)
        if data is None:
            data = shelf.get(key, self.maker)
            if data is not None:
                self.objects[key] = data
        return data

    def _tell(self, words: tuple[Any, ...], keys: list[str]) -> None:
        """Keep by which keys a text and its parts are found."""
        shelf = self._shelf()
        if shelf is not None and self._writers is not None:
            shelf.put(self.key(repr(words)), self._writers(), " ".join(keys).encode())

    def adopt(self, data: bytes, name: str, symbols: Mapping[str, int]) -> Library:
        """Load an object that another compiler has made, with the address of its function `name`.

        It may call what lies at the addresses of `symbols`.
        """
        with self._lock:
            if self._engine is None:
                self._start()
            return self._link([data], (name,), symbols=symbols)

    def assembly(self, text: str) -> str:
        """Return what the modules of `text` are compiled to, as assembly language."""
        return "".join(self._listing(part, self._level if level is None else level)
                       for level, part in modules(text))

    def _listing(self, text: str, level: int) -> str:
        with llvm.parse_assembly(text) as module:
            emitter = _emitter(self.target, level)
            optimise(text, module, emitter)
            found: str = emitter.emit_assembly(module)
            return found

    def _link(
        self, objects: list[bytes], names: tuple[str, ...], text: Text = "",
        symbols: Mapping[str, int] | None = None,
    ) -> Library:
        require_memory(FOR_LOADING + 2 * sum(map(len, objects)))
        require_mapping()
        builder = llvm.JITLibraryBuilder().add_current_process()
        addresses = {**loop_symbols_in(objects), **routine_symbols_in(objects), **(symbols or {})}
        for name, address in addresses.items():
            builder = builder.import_symbol(name, address)
        for data in objects:
            builder = builder.add_object_img(data)
        for name in names:
            builder = builder.export_symbol(name)
        try:
            tracker = call_with_deep_stack(builder.link, self._engine, f"jitla{next(self._numbers)}")
        except RuntimeError as error:
            raise BackendError(f"LLVM cannot load an object: {error}") from error
        return Library(tracker, names, objects, text)


def _object(text: str, target: Target, level: int) -> bytes:
    """Return the object that LLVM makes of a module."""
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise BackendError(f"LLVM rejects a module: {error}") from error
    with module:
        emitter = _emitter(target, level)
        optimise(text, module, emitter)
        data: bytes = emitter.emit_object(module)
        return data


@cache
def _emitter(target: Target, level: int) -> Any:
    # it holds tables that take LLVM a millisecond; llvmlite lets one thread in at a time
    return _machine(target, level, "default")


def _machine(target: Target, level: int, model: str) -> Any:
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.feature_string, opt=level, reloc="pic", codemodel=model)
