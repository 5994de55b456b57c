"""Beginning and end of calls: errors, generators, coroutines, threads."""

# ruff: noqa: E501 - programs are as users write them
from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.tracing.boundary import MIN_RELEASE_COUNT
from jitla.tracing.frames import LOCAL
from tests.fuzz.arrays import Box
from tests.tracing.sameness import same

PROGRAMS = {
    "try": """
@jit
def f(a, b):
    x=a+b
    try:
        y=x+np.ones(7)
    except ValueError as e:
        y=str(e)
    finally:
        z=x*2
    return y,z
""",
    "try2": """
@jit
def f(a, b):
    x=a+b
    for i in range(3):
        try:
            if i==1: raise KeyError(x)
            x=x*2
        except KeyError as e:
            x=e.args[0]+1
        else:
            x=x-1
        finally:
            x=x*3
    return x
""",
    "exc": """
@jit
def f(a, b):
    x=a+b
    raise ValueError(x, x.sum())
""",
    "exc2": """
@jit
def f(a, b):
    x=a+b
    e=ValueError('m')
    e.payload=x
    raise e
""",
    "exc3": """
@jit
def f(a, b):
    return (a+b)[100]
""",
    "excctx": """
@jit
def g(a, b):
    x=a+b
    try:
        raise ValueError(x)
    except ValueError as e:
        raise KeyError([x]) from e
def f(a,b):
    try: g(a,b)
    except KeyError as e: return type(e.args[0][0]).__name__, type(e.__cause__.args[0]).__name__, e.args[0][0], e.__cause__.args[0]
""",
    "excuser": """
class E(Exception):
    def __init__(self,x,y): super().__init__(x); self.x=x; self.y=y

@jit
def g(a, b):
    x=a+b
    raise E(x,(a*2).sum())
def f(a,b):
    try: g(a,b)
    except E as e: return type(e.args[0]).__name__, type(e.x).__name__, type(e.y).__name__, e.x, e.y
""",
    "assert": """
@jit
def g(a, b):
    x=a+b
    assert x.shape==(6,), x
    assert (x<0).all(), (x, x.sum())
def f(a,b):
    try: g(a,b)
    except AssertionError as e: return type(e.args[0]).__name__, [type(k).__name__ for k in e.args[0]], e.args[0][0]
""",
    "attrexc": """
class O: pass
o=O(); d={}; l=[0,0]
@jit
def f(a,b):
    o.x=a+b
    d['k']=a*2
    l[1]=b+1
    d['k2']=[a*3]
    raise KeyError('z')
def state(): return o.x, d, l
""",
    "attrexc2": """
class O: pass
o=O(); d={}
@jit
def f(a,b):
    o.x=a+b
    d['k']=o.x@np.ones((7,7)) if 0 else a*2
    o.y=np.add(a, np.ones(4))
def state(): return o.x, d
""",
    "slotexc": """
class O:
    def __setattr__(s,k,v):
        object.__setattr__(s,k,v)
class R:
    __slots__=('x',)
o=O(); r=R(); d={}
@jit
def f(a,b):
    r.x=a+b; d['x']=a*2
    r.y=3
def state(): return r.x,d
""",
    "gen": """
@jit
def f(a,b):
    x=a
    for i in range(3):
        x=x*2+b
        yield x
    return x
g=f
def f(a,b):
    it=g(a,b); r=[]
    while True:
        try: r.append(next(it))
        except StopIteration as s: return r, s.value
""",
    "genclose": """
log=[]
@jit
def g(a,b):
    x=a+b
    try:
        while True:
            x=x*2
            yield x
    except GeneratorExit:
        log.append(x+1); raise
    finally:
        log.append(x*3)
def f(a,b):
    it=g(a,b); r=[next(it),next(it)]; it.close()
    return r, log, list(it)
""",
    "genclose2": """
log=[]
@jit
def g(a,b):
    x=a+b
    try:
        yield x
    finally:
        log.append(x*3)
def f(a,b):
    it=g(a,b); r=next(it); del it
    return r, log
""",
    "genthrow": """
@jit
def g(a,b):
    x=a+b
    while True:
        try:
            s = yield x
            x = x+s
        except ValueError as e:
            x = x*10+e.args[0]
def f(a,b):
    it=g(a,b); r=[next(it),it.send(a),it.throw(ValueError(b)),it.send(1)]
    try: it.throw(KeyError('k'))
    except KeyError as e: r.append(str(e))
    return r
""",
    "genfrom": """
@jit
def h(a):
    y=a*2
    z = yield y
    return y+z
@jit
def g(a,b):
    x=a+b
    w = yield from h(x)
    yield w*2
    yield from (v for v in w[:2])
    yield from [x, w]
    return w
def f(a,b):
    it=g(a,b); r=[next(it), it.send(b)]
    return r+list(it)
""",
    "genfrom2": """
def h(a):
    for i in range(3):
        a = a*2
        z = yield a
        if z is not None: a=a+z
    return a+1
@jit
def g(a,b):
    x=a+b
    w = yield from h(x)
    x += w
    yield x
def f(a,b):
    it=g(a,b); r=[next(it), it.send(b)]
    try: r.append(it.throw(KeyError('x')))
    except KeyError: r.append('ke')
    it=g(a,b)
    return r, list(it)
""",
    "gencallerwrites": """
@jit
def g(a,b):
    x=a*2
    yield 0
    yield x
    y=a+b
    yield None
    yield y, (a*b)
def f(a,b):
    it=g(a,b); r=[]
    for v in it:
        r.append(v); a+=1; b*=2
    return r
""",
    "genintraced": """
def g(a):
    x=a*2
    while True:
        s=yield x
        x=x+1 if s is None else x+s
@jit
def f(a,b):
    it=g(a); r=[next(it), next(it)]
    a+=1
    r.append(it.send(b*2)); b+=3
    r.append(next(it))
    it.close()
    return r, [v for v,_ in zip(g(b), range(3))]
""",
    "coro": """
import asyncio
async def h(a):
    await asyncio.sleep(0)
    return a*2
@jit
async def g(a,b):
    x=a+b
    y=await h(x)
    x+=1
    await asyncio.sleep(0)
    z=await asyncio.gather(h(y), h(x))
    return x,y,z
def f(a,b):
    async def main():
        return await asyncio.gather(g(a,b), g(b,a))
    return asyncio.run(main())
""",
    "coro2": """
import asyncio
@jit
async def g(a,b):
    x=a+b
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        return x*2
def f(a,b):
    async def main():
        t=asyncio.create_task(g(a,b)); await asyncio.sleep(0); t.cancel()
        return await t
    return asyncio.run(main())
""",
    "corowith": """
import asyncio
class C:
    def __init__(s,x): s.x=x
    async def __aenter__(s): s.x+=1; return s.x
    async def __aexit__(s,*e): s.x*=3
class It:
    def __init__(s,x): s.x=x; s.i=0
    def __aiter__(s): return s
    async def __anext__(s):
        s.i+=1
        if s.i>3: raise StopAsyncIteration
        s.x+=s.i; return s.x
@jit
async def g(a,b):
    y=a+b
    async with C(y) as w:
        z=w*2
        u=y+z
    r=[]
    async for v in It(a):
        r.append(v*2+y)
    q=[v+a async for v in It(b)]
    return y,z,u,w,r,q
def f(a,b): return asyncio.run(g(a,b))
""",
    "threadsinside": """
@jit
def f(a, b):

    import threading
    x=a+b
    out=[]
    def w(k):
        for _ in range(50):
            out.append((x*k).sum())
    ts=[threading.Thread(target=w,args=(k,)) for k in range(4)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    return sorted(out), x
""",
    "executor": """
@jit
def f(a, b):

    from concurrent.futures import ThreadPoolExecutor
    x=a+b
    with ThreadPoolExecutor(3) as p:
        r=list(p.map(lambda k: (x*k+b).sum(), range(20)))
        q=p.submit(np.add, x, b).result()
    return r,q
""",
    "minimize": """
@jit
def f(a, b):
    from scipy.optimize import minimize
    r=minimize(lambda p: ((p-a)**2).sum()+ (b*b).sum(), np.zeros(6))
    return np.round(r.x,4), r.success
""",
    "minimize2": """
@jit
def loss(p, a):
    d=p-a
    return (d*d).sum()
@jit
def f(a,b):
    from scipy.optimize import minimize
    r=minimize(loss, np.zeros(6), args=(a,))
    return np.round(r.x,4)
""",
    "minimize3": """
@jit
def loss(p, a):
    d=p-a
    return (d*d).sum(), 2*d
def f(a,b):
    from scipy.optimize import minimize
    r=minimize(loss, np.zeros(6), args=(a,), jac=True)
    return np.round(r.x,6), type(r.fun).__name__
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_calls_behave_as_plain_calls(program: str) -> None:
    same(program)


class Batches:
    """Makes a new array at each step, as a loader of data does."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[np.ndarray]:
        return map(lambda i: np.full(1000, float(i)), range(self.count))


def test_arrays_from_outside_are_let_go() -> None:
    seen: list[int] = []

    @jitla.jit
    def train(batches: Batches, w: np.ndarray) -> float:
        total = 0.0
        for x in batches:
            total = total + (x * w).sum()
            look()
        return total

    def look() -> None:
        session = LOCAL.session
        seen.append(len(session.boundary.foreigners) if session is not None else 0)

    w = np.ones(1000)
    assert train(Batches(100), w) == train.__wrapped__(Batches(100), w)
    assert max(seen) <= 2 * MIN_RELEASE_COUNT


def test_a_session_that_serves_again_knows_nothing_of_the_call_before() -> None:
    @jitla.jit
    def step(x: np.ndarray, fail: bool) -> tuple[float, np.ndarray]:
        doubled = x * 2.0
        total = float(doubled.sum())  # `doubled` is not written: it may stay behind as a ghost
        if fail:
            raise KeyError("asked for")
        return total, x + total

    for n in (3, 4, 3):
        x = np.arange(float(n))
        total, moved = step(x, False)
        assert total == 2 * x.sum()
        assert moved.tolist() == (x + total).tolist()
        with pytest.raises(KeyError):
            step(x, True)
    sites = step.__jitla_state__.all_sites()
    assert not any(site.idle for site in sites)  # the session of a call that failed is left
    step(x, False)
    for session in [site.idle.pop() for site in sites]:
        tape, boundary = session.tape, session.boundary
        held = (tape.ops, tape.nodes, tape.leaves, tape.scalars, tape.entered, tape.views,
                session.closer.rematerialisable, boundary.foreigners, boundary.slots)
        assert not any(held)


def test_a_generator_that_is_returned_holds_arrays() -> None:
    @jitla.jit
    def keep(x: np.ndarray) -> Iterator[float]:
        def totals(y: np.ndarray) -> Iterator[float]:
            for i in range(3):
                yield float((y * float(i)).sum())

        return totals(x + 1.0)

    x = np.arange(4.0)
    kept = [keep(x + n) for n in range(3)]
    assert all(type(each.gi_frame.f_locals["y"]) is np.ndarray for each in kept)
    assert list(zip(*kept, strict=True)) == [(0.0, 0.0, 0.0), (10.0, 14.0, 18.0), (20.0, 28.0, 36.0)]


def test_a_call_inside_a_call_has_a_session_of_its_own() -> None:
    @jitla.jit
    def outer(x: np.ndarray, n: int) -> float:
        return float((x * float(n)).sum()) + (hidden[0](x, n - 1) if n else 0.0)

    hidden = [lambda x, n: list(map(outer, [x], [n]))[0]]
    x = np.arange(4.0)
    assert outer(x, 3) == outer.__wrapped__(x, 3) == 36.0


def test_stores_into_one_place_take_one_slot() -> None:
    seen: list[int] = []

    @jitla.jit
    def loop(box: Box, n: int) -> None:
        box.v = np.zeros(10)
        for _ in range(n):
            box.v = box.v * 0.9 + 1
            box.d["k"] = box.v.sum()
            look()

    def look() -> None:
        session = LOCAL.session
        seen.append(len(session.boundary.slots) if session is not None else 0)

    loop(Box(d={}), 50)
    assert max(seen) <= 2


def test_a_place_that_cannot_be_filled_hides_no_error() -> None:
    class Stubborn:
        pass

    held = Stubborn()

    @jitla.jit
    def f(a: np.ndarray, box: Box) -> None:
        held.x = a * 2
        box.y = a + 1
        Stubborn.__setattr__ = refuse  # type: ignore[assignment]
        raise KeyError("mine")

    def refuse(self: Any, name: str, value: Any) -> None:
        raise RuntimeError("no")

    box = Box()
    with pytest.raises(KeyError, match="mine"):
        f(np.ones(3), box)
    assert type(box.y) is np.ndarray


@pytest.mark.threads
def test_one_function_in_many_threads() -> None:
    state = np.arange(500.0)

    @jitla.jit
    def f(a: np.ndarray, k: float) -> tuple[np.ndarray, float]:
        y = a * k + state
        h = np.zeros_like(a)
        for i in range(5):
            h[i * 10 : (i + 1) * 10] += y[i * 10 : (i + 1) * 10] * k
            y = np.sqrt(np.abs(y)) + h
        return y, y.sum()

    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for i in range(20):
            a, k = rng.normal(size=500), float(rng.normal())
            expected, actual = f.__wrapped__(a, k), f(a, k)
            if not np.array_equal(expected[0], actual[0]) or not np.isclose(expected[1], actual[1]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class Stop(BaseException):
    """What a signal raises in the middle of a call."""


@pytest.mark.timing
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_an_interrupt_leaves_whole_arrays() -> None:
    def interrupt(*_: Any) -> None:
        raise Stop

    @jitla.jit
    def f(w: np.ndarray, box: Box) -> int:
        i = 0
        try:
            while True:
                y = w * 2
                w += 1
                box.y = y
                i += 1
        except Stop:
            return i

    # The timer of CPU time: the other one belongs to the test runner. It comes again, because what is
    # raised in a weak reference's callback is lost.
    before = signal.signal(signal.SIGVTALRM, interrupt)
    try:
        for k in range(40):
            w, box = np.zeros(5000), Box(y=np.zeros(1))
            try:
                signal.setitimer(signal.ITIMER_VIRTUAL, 1e-3 + 5e-5 * k, 0.1)
                count = f(w, box)
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            except Stop:  # it came before the loop, or once more after it
                continue
            assert (w == w[0]).all()
            assert w[0] in (count, count + 1)
            assert type(box.y) is np.ndarray
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
