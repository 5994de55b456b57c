"""What all modules begin with, and small functions and classes that they have where they are named."""

from __future__ import annotations

HEAD = '''\
import contextlib
import contextvars
import copy
import functools
import gc
import heapq
import io
import itertools
import operator
import pickle
import signal
import sys
import threading
import types
import warnings
import weakref
from collections import deque, namedtuple
from concurrent import futures
from dataclasses import dataclass

import numpy as np

LOG = []
OUT = io.StringIO()
TABLE = {}
LAST = HELD = None
SHOWN = []  # warnings: their order, and those of values that nobody reads, may differ
LOCK = threading.Semaphore(100)  # threads inside one another do not wait for each other
RANGE = np.arange(SIZE).astype("KIND")


class Problem(Exception):
    pass


class Box:
    shared = None

    def __init__(self):
        self.a = RANGE * 2.0
        self.b = 1.5
        self.z = self.gen = None
        self.d, self.l, self.h, self.st, self.dq = {}, [0.5], [], set(), deque(maxlen=3)


def log(*event):
    LOG.append(event)


def fit(value, like):
    if isinstance(value, np.ndarray) and value.shape == RANGE.shape:
        return value
    return like


k0 = Box()
'''
# Lines of handlers, finalizers and callbacks.
HANDLER = (
    "log('h', k0.b)", "TABLE['h'] = quiet(np.arange(5.0) + len(LOG))", "k0.z = quiet(np.arange(4.0))",
    "k0.b = 2.5",
    "log('h', type(k0.a).__name__, type(LAST).__name__)", "k0.l.append(quiet(np.arange(3.0)).sum())",
    "log(k0.d.get('k') is None)", "k0.d['k'] = quiet(RANGE)", "k0.a = None", "k0.a = RANGE + 1.0", "pass",
    "k0.l[-1] = None",
    "Box.shared = quiet(RANGE)", "log('t', k0.l[-1])", "log('h', [type(t).__name__ for t in k0.d.values()])",
)
HELPERS = {
    "Pair": 'Pair = namedtuple("Pair", "a b")\n',
    "Data": "@dataclass\nclass Data:\n    a: object\n    b: object\n",
    "Slotted": """\
class Slotted(Box):
    __slots__ = ("u", "w")

    def __init__(self):
        super().__init__()
        self.u = self.a
        self.w = None
""",
    "Field": """\
class Field:
    def __set_name__(self, owner, name):
        self.name = "_" + name
    DECO
    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return instance.__dict__.get(self.name)
    DECO
    def __set__(self, instance, value):
        log("field", self.name)
        instance.__dict__[self.name] = value
    def __delete__(self, instance):
        instance.__dict__.pop(self.name, None)
""",
    "VAR": 'VAR = contextvars.ContextVar("VAR", default=None)\n',
    "float_of": "def float_of(x):\n    return float(x[0])\n",
    "helper": "DECO\ndef helper(x, k):\n    helper.last = x * 0.5\n    k.b = x.sum()\n    return x\n",
    "keep": "DECO\ndef keep(k, name, value):\n    setattr(k, name, value)\n",
    "remember": "DECO\ndef remember(x):\n    global HELD\n    HELD = x\n",
    "recall": "DECO\ndef recall():\n    return HELD\n",
    "drive": "DECO\ndef drive(f, x, n):\n    for turn in range(n):\n        x = f(x) * 0.5\n    return x\n",
    "twice": "def twice(f):\n    DECO\n    def inner(x):\n        return f(f(x))\n    return inner\n",
    "solve": """\
def solve(g, x):
    low = best = None
    for turn in range(3):
        value = g(x + turn)
        if best is None or value < best:
            low, best = turn, value
    return best
""",
    "Later": """\
class Later:
    def __init__(self, f):
        self.f = f
    DECO
    def go(self, x):
        self.x = x
        self.out = self.f(x)
        return self.out
""",
    "Ctx": """\
class Ctx:
    def __init__(self, k, x):
        self.k, self.x = k, x
    DECO
    def __enter__(self):
        self.k.b = self.x.sum()
        return self.x * 2.0
    DECO
    def __exit__(self, kind, error, traceback):
        self.k.z = self.x + 1.0
        if error is not None:
            self.error = error.args
            log("error", self.error)
        return False
""",
    "Swallow": """\
class Swallow:
    def __init__(self, k):
        self.k = k
    def __enter__(self):
        return self
    DECO
    def __exit__(self, kind, error, traceback):
        self.k.err = error
        return kind is Problem
""",
    "scope": """\
@contextlib.contextmanager
DECO
def scope(k, value):
    before = k.b
    k.b = value
    try:
        yield value
    finally:
        k.b = before
        log("scope", k.b)
""",
    "walk": """\
DECO
def walk(x, k):
    k.b = x.sum()
    yield x * 2.0
    k.z = x
    try:
        yield x + k.b
    finally:
        log("walk", k.b)
""",
    "talk": """\
DECO
def talk(x, k):
    while True:
        try:
            got = yield x
            x = x + got
        except Problem as problem:
            k.err = problem.args
            return x
        finally:
            k.z = x
""",
    "chain": "DECO\ndef chain(x, k):\n    yield from walk(x, k)\n    k.b = x[0]\n"
        "    yield from [x, x * 0.5]\n",
    "Steps": """\
class Steps:
    def __init__(self, x, n):
        self.x, self.n = x, n
    def __iter__(self):
        return self
    DECO
    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        self.x = self.x * 0.5
        return self.x
    DECO
    def total(self):
        total = None
        for each in self:
            total = each if total is None else total + each
        return total
""",
    "later": "DECO\nasync def later(x, k):\n    k.b = x.sum()\n    return x * 2.0\n",
    "await_": """\
def await_(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
""",
    "quiet": "DECO\ndef quiet(x):\n    y = x * 2.0 + 1.0\n    y[0] = y.sum()\n    return y\n",
    "Gone": """\
class Gone:
    def __init__(self, a, b):
        self.a, self.b = a, b
    DECO
    def __del__(self):
        log("gone", self.b)
        HANDLER
""",
    # set again when it has run: else one might begin in the midst of another, and so on
    "on_timer": "__going, __timed = [], deque(maxlen=3)\n\n\ndef on_timer(number, frame):\n"
                "    __timed.append(quiet(np.arange(5.0)))\n    if __going:\n"
                "        signal.setitimer(signal.ITIMER_REAL, 0.0007)\n",
    "Lurker": """\
class Lurker:
    def __init__(self, a):
        self.a, self.me = a, self
    DECO
    def __del__(self):
        quiet(np.arange(6.0))
""",
    "on_error": "def on_error(kind, flag):\n    log(kind, flag)\n    HANDLER\n",
    "WRITER": """\
class Writer:
    DECO
    def write(self, text):
        log(text)
        HANDLER


WRITER = Writer()
""",
    # Called when the block is computed (docs/differences.md): not in the log, whose order is compared.
    "show": "def show(message, category, filename, lineno, file=None, line=None):\n"
        "    SHOWN.append(str(message))\n    HANDLER\n",
    "Stream": """\
class Stream:
    def write(self, text):
        log("w", text)
        HANDLER
        return len(text)
    def flush(self):
        pass
""",
    "signal": "def on_signal(number, frame):\n    log('signal')\n    HANDLER\n\n\n"
              "signal.signal(signal.SIGUSR1, on_signal)\n",
    "in_thread": """\
def in_thread(f):
    found = []
    def go():
        try:
            found.append(f())
        except Exception as error:
            found.append(error)
    thread = threading.Thread(target=go)
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]
""",
}
