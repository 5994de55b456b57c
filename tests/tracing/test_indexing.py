"""Indexing: views and items, masks and index arrays, writes and scatters, gathers: NumPy's results."""

# ruff: noqa: E501 - programs are as users write them

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import jitla
from jitla.codegen import LlvmBackend
from jitla.config import TracingThresholds
from jitla.tracing import gather as bounded
from jitla.tracing import gather as gathers
from jitla.tracing import indexing
from jitla.tracing.numpy_api import functions as scatters
from jitla.tracing.site import Site
from tests.tracing.sameness import same

# Parts of arrays: views, items, in-place operations, containers without proxies.

PROGRAMS = {
    "views": """
@jit
def f(a, b):
    x=a+b
    y=x[1:5]
    z=y[::2]
    z+=10
    y[...]=y*2
    x[-1]=0
    return x,y,z
""",
    "views2": """
@jit
def f(a, b):
    x=np.outer(a,b)
    t=x.T
    r=t[1:]
    r[0,:]=7
    q=r.reshape(-1)
    q+=1
    w=x.ravel()
    w*=2
    return x,t,r,q,w
""",
    "ellipsis": """
@jit
def f(a, b):
    x=a+b
    y=x[...]
    y+=1
    z=x[()]
    z*=2
    w=x[None]
    w-=1
    return x,y,z,w, x[...,0], x[0][()]
""",
    "flat": """
@jit
def f(a, b):
    x=a+b
    x.flat[2]=9
    x.flat=x.flat
    l=list(x.flat)
    x.flat[1:3]+=1
    f=x.flat
    x*=2
    return x,l,next(f), x.flat[0]
""",
    "flatset": """
@jit
def f(a, b):
    x=a+b
    x.flat=[1,2]
    y=a*1
    y.flat=3
    return x,y
""",
    "nditer": """
@jit
def f(a, b):
    x=a+b
    for v in np.nditer(x, op_flags=['readwrite']): v[...]=v*2
    it=np.nditer([x,None])
    for p,q in it: q[...]=p+1
    return x, it.operands[1]
""",
    "ndenum": """
@jit
def f(a, b):
    x=a+b
    return [(i,v) for i,v in np.ndenumerate(x)], list(np.ndindex(x.shape)), list(np.broadcast(x, a))
""",
    "sharedctor": """
@jit
def f(a, b):
    x=a+b
    y=x.view()
    y+=1
    z=np.asarray(x)
    z*=2
    w=np.lib.stride_tricks.as_strided(x,(3,),(16,))
    w[0]=100
    u=np.ndarray((6,),buffer=x)
    u[1]=50
    v=np.frombuffer(x)
    q=memoryview(x)
    t=x.reshape(2,3)
    t[0,0]=-1
    x+=1
    return x,y,z,w,u,v,np.array(q),t
""",
    "viewofarg": """
@jit
def f(a, b):
    v=a[1:4]
    w=a[::-1]
    x=v*2+w[:3]
    v+=x
    w[0]=99
    return v,w,x,a, v.base is a, (a+b)[1:].base is None
""",
    "signalling": """
@jit
def f(a, b):
    x=a*1
    x[2:]+=x[:-2]
    x[1:]=x[:-1]*2
    x[::-1]+=x
    x*=x[::-1]
    x[[0,0,1]]+=1
    x[x>0]*=2
    x[x>0]=x[x>0]+a[:(x>0).sum()]
    return x
""",
    "idxfancy": """
@jit
def f(a, b):
    x=a+b
    return x[[0,1]], x[np.array([True]*6)], x[x>0], x[np.argsort(x)], x[(1,)], x[[True]*6], x[np.int64(2)], x[a.argmax()], x[True], x[None,1:], x[...,None,:2], x[::-2], x[-1], x[1:(a>0).sum()], x[slice(1,3)], x[range(2)], x[:][1:][::-1]
""",
    "idxerr": """
@jit
def f(a, b):
    x=a+b
    return x[1,2]
""",
    "idxerr2": """
@jit
def f(a, b):
    x=a+b
    return x['k']
""",
    "idxerr3": """
@jit
def f(a, b):
    x=a+b
    x[10]=1
""",
    "idxerr4": """
@jit
def f(a, b):
    x=a+b
    return x[1.5]
""",
    "castiadd": """
@jit
def f(a, b):
    x=(a*10).astype(int)
    x[0]=2.7
    x[1:3]=a[1:3]*5
    y=(a*10).astype('f4')
    y+=b
    return x,y
""",
    "bcasterr": """
@jit
def f(a, b):
    x=a+b
    x+=np.ones((2,6))
""",
    "bcasterr2": """
@jit
def f(a, b):
    x=a+b
    x[:3]=a
""",
    "strict_dt": """
@jit
def f(a, b):
    x=(a*10).astype(int)
    x+=1.5
""",
    "setattrarr": """
@jit
def f(a, b):
    x=a+b
    x.shape=(2,3)
    y=x*2
    y.shape=6
    a.shape=(3,2)
    z=a+1
    a.shape=6
    return x,y,z,a.strides
""",
    "dtypeset": """
@jit
def f(a, b):
    x=a+b
    x.dtype='i8'
    y=x+1
    return x,y
""",
    "resize": """
@jit
def f(a, b):
    x=a*1
    x.resize((8,),refcheck=False)
    y=x+1
    x.resize((2,2),refcheck=False)
    return x+0,y,np.resize(a+b,(3,4))
""",
    "swap": """
@jit
def f(a, b):
    x,y=a*1,b*1
    for _ in range(4): x,y=y,x+y
    x[0],x[1]=x[1],x[0]
    x[[0,1]]=x[[1,0]]
    a[:],b[:]=b.copy(),a.copy()
    x[:3],x[3:]=x[3:],x[:3]
    return x,y
""",
    "dictlit": """
@jit
def f(a, b):
    d={a.sum(): a+b, 'k': a*b}
    return d
""",
    "setlit": """
@jit
def f(a, b):
    return {a.sum(), b.sum()} == {a.sum(), b.sum()}, list({a.sum()})
""",
    "cyc": """
@jit
def f(a, b):
    x=a+b
    l=[x]
    l.append(l)
    d={'x':x}
    d['d']=d
    return l[0],d['x'],len([l]),str(len(l))
""",
    "cyc2": """
@jit
def g(a, b):
    x=a+b
    l=[x]
    l.append(l)
    return l
def f(a,b):
    l=g(a,b); return l[0], l[1] is l
""",
    "setops": """
@jit
def f(a, b):
    s={a.sum(), b.sum()}
    s|={a.max()}
    t=frozenset(s)
    return s, t, s & {a.sum()}, (a.sum(),) , {1,2}
""",
    "dictlazykey": """
@jit
def f(a, b):
    k=a.sum()
    d={k:1}
    d[k]+=1
    e={**d, b.sum(): a}
    return d[k], k in d, d, e
""",
    "retmisc": """
@jit
def g(a, b):
    import functools, types, collections
    x=a+b
    return slice(x.sum(),None), functools.partial(np.add,x), types.SimpleNamespace(x=x), collections.deque([x]), frozenset([x.sum()]), x[:0], memoryview(x), (x,)*2, [[x]]*2, {x.sum()}, range(3), x.shape, x.dtype, Ellipsis, bytes(x), x.data

def f(a,b):
    r=g(a,b)
    return type(r[0].start).__name__, r[1](1), r[2].x, list(r[3]), [type(k).__name__ for k in r[4]], r[5], np.array(r[6]), r[7], r[8], [type(k).__name__ for k in r[9]], r[14], np.array(r[15])
""",
    "unpack": """
@jit
def f(a, b):
    p,q,*r=a+b
    (u,v),w=np.outer(a[:2],b[:2]), 3
    x,y=np.outer(a[:2],b[:2])
    return p,q,r,u,v,w,x,y,[*a], (*b,), {**{'k':a}}
""",
    "unpackerr": """
@jit
def f(a, b):
    p,q=a+b
""",
    "0d": """
@jit
def f(a, b):
    y=a+b
    z=a*2
    a+=1
    a[...]=5
    a[()]+=2
    b*=a
    return y,z,a,b,type(a*1).__name__, a.sum(), a.item(), float(a), a[()], a.reshape(1)+b, np.array(2.)*np.array(3.), np.sum(a), a<5, bool(a)
def make():
    return np.array(3.), np.arange(3.)
""",
    "empty": """
@jit
def f(a, b):
    return a+1,a.sum(),a.sum(0),a.prod(1),a@b,b@a,(a*2).T,a.mean() if a.size else 0,np.concatenate([a,a+1]),(a>0).all(),(a>0).any(),a.reshape(3,0),a.reshape(-1,3)
def make():
    return np.empty((0,3)), np.empty((3,0))
""",
    "ro": """
def _ro():
    x=np.arange(3.); x.flags.writeable=False; return x
@jit
def f(a, b):
    y=a*2+b
    try:
        a+=1
    except ValueError as e: m=str(e)
    try:
        a[:]=y
    except ValueError as e: n=str(e)
    try:
        np.add(b,1,out=a)
    except ValueError as e: o=str(e)
    return y,m,n,o,a[1:].flags.writeable
def make():
    return _ro(), np.arange(3.)
""",
    "ro2": """
@jit
def f(a, b):
    y=a*2+b
    y.flags.writeable=False
    try:
        y+=1
    except ValueError as e: m=str(e)
    try:
        y[0]=1
    except ValueError as e: n=str(e)
    a.setflags(write=False)
    try:
        a+=1
    except ValueError as e: o=str(e)
    a.setflags(write=True)
    return y,m,n,o
def make():
    return np.arange(3.), np.arange(3.)
""",
    "ro3": """
def _ro():
    x=np.arange(3.); x.flags.writeable=False; return x
@jit
def f(a, b):
    b+=1
def make():
    return np.arange(3.), _ro()
""",
    "listlit": """
@jit
def f(a, b):
    d=[a+b, (a*2, a*b), {'u': a-b}]
    return d
""",
    "dictkey": """
@jit
def f(a, b):
    d={}
    d[a.sum()]=1
    d[(a+b).sum()]=a*2
    return [type(k).__name__ for k in d], d
""",
    "unhash2": """
@jit
def f(a, b):
    d={}
    d[[1]]=a+b
""",
    "lstidx": """
@jit
def f(a, b):
    l=[1]
    l[5]=a+b
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_indexing_gives_numpys_results(program: str) -> None:
    same(program)


@pytest.mark.parametrize("layouts", ["FC", "CF", "FF", "CC", "TC", "CT"])
def test_the_order_of_a_pending_target_stays(layouts):
    def orders(x, y, turn):
        v = (x.T if turn else x) * 2.0
        v += y
        w = v * 3.0
        w -= v[:1]
        return v, w

    rng = np.random.default_rng(0)
    x, y = (np.asarray(rng.normal(size=(4, 4)), order=o.replace("T", "C")) for o in layouts)
    given = x, y.T if layouts[1] == "T" else y, layouts[0] == "T"
    for made, wanted in zip(jitla.jit(orders)(*given), orders(*given), strict=True):
        assert made.strides == wanted.strides and (made == wanted).all()


def test_policy_floats_as_indices_of_what_is_not_traced():
    @jitla.jit
    def f(x, i):
        return x[i]

    half = np.arange(2).astype("f2")
    for x in (half, half.astype("f8")):
        for function in (f, f.__wrapped__):
            with pytest.raises(IndexError):
                function(x, np.zeros(2))
    assert f(half, np.zeros(0)).shape == (0,)
    with pytest.raises(IndexError):
        f.__wrapped__(half, np.zeros(0))
    with pytest.raises(IndexError):
        f(half.astype("f8"), np.zeros(0))


# What masks and indices name is read where it is used: NumPy's results, also if something is written between.

MAKE = """
def make():
    rng = np.random.default_rng(0)
    return rng.random(3000), rng.random(3000), rng.integers(0, 40, 3000), rng.random(3000) > 0.4
"""
LATER = {
    "cells": "return a[m] * 2 + b[m], np.sqrt(a[m]), a[m]",
    "totals": "x = a[m]; return x.sum(), x.mean(), (x - b[m]).std(), x.max(), x.argmax(), x[m[:5].size:].sum()",
    "indices": "return a[g] * b[g], a[g - 40].sum(), (a[g] > b[g]).any()",
    "computed": "x = a * 2; k = x > 1; return x[k] + b[k], (x + 1)[k].sum(), k[k].sum()",
    "few": "k = a < 1e-3; return a[k] * 2, b[k].sum(), a[a < 0].sum(), a[a < 0] * 2, a[a >= 0] + b[a >= 0]",
    "kinds": "return [(a * 9).astype(t)[m] + b.astype(t)[m] for t in ('?', 'i1', 'u2', 'i4', 'f4', 'f8', 'c16')]",
    "vectors": "return np.sqrt(a[m]) / (b[m] + 1), (a[m] * 9 // 1) @ (b[m] * 9 // 1), np.outer(a[m][:3], b[m][:4]), np.sort(a[m]), np.cumsum(a[m])",
    "views": "x = a[m]; return x[::2] * 2, x[:-1] - x[1:], x[:, None] * np.arange(3.0), x.reshape(1, -1) + x[0], x[::-1]",
    "shapes": "x = a[m]; return len(x), x.shape, x.size, x.dtype, list(x[:3]), x.nbytes",
    "the table itself": "return a[g] + a, a[np.arange(3000) * 7 % 3000] * a",
    "key changes": "x = a[m] * 2; m[:7] = ~m[:7]; y = a[m]; m ^= a > 0.5; return x, y, a[m] + 1, m",
    "index changes": "x = a[g]; g += 1; y = a[g]; g[:] = 0; return x, y, a[g] - 1",
    "table changes": "x = a[m]; y = a[g] * 2; a[5:] = 7; a *= 2; return x, y, a[m], a[g] + x[0]",
    "what is read is written": "x = a[m]; x[3] = 5; y = b[m]; y *= x; x += y; return x, y, a, b",
    "into the table": "a[...] = a[g] * 2; b[1:] = b[g[1:]]; a += b[g]; return a, b",
    "into a part": "a[:1000] = a[g[:1000] + 1500] + 1; v = a[500:]; v[:] = v[g[:2500]]; return a, v",
    "in a loop": "t = 0.0\n    for _ in range(4):\n        k = a > t\n        t = t + a[k].mean() / 8\n        b = b + a[g]\n    return t, b",
    "warnings": "return a[m] / (b[m] - b[m]), np.log(a[g] - 1)",
    "printed": "x = a[m]; print(x[:3], x.sum()); print(f'{a[g].mean():.3f}'); return x",
    "kept": "d = {'x': a[m]}; l = [b[m]]; d['y'] = d['x'] - l[0]; return d, l",
}
TALLIED = {
    "weights": "k = g[m]; return np.bincount(k, a[m], 40), np.bincount(k, weights=a[m] * b[m], minlength=50), np.bincount(k, minlength=40)",
    "computed weights": "return np.bincount(g, a * 2), np.bincount(g, weights=a > 0.5), np.bincount(g, np.sqrt(a), 60)",
    "kinds": "return [np.bincount(g.astype(t)[m], a[m], 45) for t in ('i1', 'u1', 'i2', 'u2', 'i4', 'u4', 'i8')]",
    "weights of kinds": "return [np.bincount(g, (a * 99).astype(t) + b.astype(t)) for t in ('i1', 'u4', 'i8', 'f4', 'f8')]",
    "used": "s, n = np.bincount(g, a - b), np.bincount(g[m], minlength=41); return s / (n[:40] + 1), s.sum(), n.max(), (s * 2)[g[:5]]",
    "other labels": "h = g // 2; return np.bincount(h, a * 2), np.bincount(g, a * 2), np.bincount(g[m], b[m], 40)",
    "kept, too": "k = g[m]; x = a[m] * 2; s = np.bincount(k, x, 40); return s, k, x, x.sum()",
    "label changes": "s = np.bincount(g[m], a[m], 40); g[:9] = 55; t = np.bincount(g, a + 0); m[:] = True; return s, t, np.bincount(g[m], b[m], 60)",
    "weight changes": "s = np.bincount(g, a * 2); a[:] = 1; return s, np.bincount(g, a * 2)",
    "not a number": "w = np.where(a > 0.5, np.inf, a) - np.where(b > 0.5, np.inf, b); return np.bincount(g, w), np.bincount(g, -a * 0)",
}
LEFT = {
    "labels beyond are not read": "h = np.where(m, g, -1); k = h[m]; return np.bincount(k, a[m], 40), np.bincount(k, a[m])",
    "number of labels": "k = g[g < 7]; return np.bincount(k, a[g < 7]), np.bincount(k, a[g < 7], 3)",
    "labels below": "return np.bincount(g[m] - 1, a[m])",
    "too few weights": "return np.bincount(g[m], (a * 1)[g[:5]])",
    "minlength": "return np.bincount(g[m], a[m], -1)",
    "complex weights": "return np.bincount(g[m], a[m] * 1j)",
    "unsafe labels": "return np.bincount(g.astype('u8')[m], a[m], 40)",
    "two dimensions": "return np.bincount(g[m], (a[m])[:, None])",
    "too long a mask": "return a[:2999][m] * 2",
    "beyond": "return a[g + 2990] * 2",
    "below": "return a[g - 3001] * 2",
    "strided": "return a[::2][m[::2]] * 2, a[::-1][m].sum(), a.reshape(-1, 3)[m[:1000]] + 1, a[m[::-1]]",
    "an integer": "return a[np.int64(3)] * 2, a[True].shape, a[m, None].shape",
}


@pytest.fixture
def _few_are_enough():
    with jitla.options(thresholds=TracingThresholds(
            min_loop_indices=0, min_compiled_indices=0, min_positions=0, min_deferred_key_elements=0)):
        yield


@pytest.fixture
def picked(monkeypatch):
    """What was read later."""
    found = []
    plain = indexing.read_at

    def noted(session, table, key):
        made = plain(session, table, key)
        if made is not None:
            found.append(made.shape)
        assert not session.site.failures
        return made

    monkeypatch.setattr(indexing, "read_at", noted)
    return found


@pytest.mark.usefixtures("_few_are_enough")
@pytest.mark.parametrize("name", LATER)
def test_read_later(name, picked):
    same(f"{MAKE}\n@jit\ndef f(a, b, g, m):\n    {LATER[name]}\n", calls=3)
    assert picked


@pytest.mark.usefixtures("_few_are_enough")
@pytest.mark.parametrize("name", TALLIED)
def test_added_up_later(name, monkeypatch):
    recorded = []
    plain = scatters._record_bincount

    def noted(*args):
        made = plain(*args)
        recorded.append(made is not NotImplemented)
        return made

    monkeypatch.setattr(scatters, "_record_bincount", noted)
    same(f"{MAKE}\n@jit\ndef f(a, b, g, m):\n    {TALLIED[name]}\n", calls=3)
    assert any(recorded)


@pytest.mark.usefixtures("_few_are_enough")
@pytest.mark.parametrize("name", LEFT)
def test_left_to_numpy(name):
    same(f"{MAKE}\n@jit\ndef f(a, b, g, m):\n    {LEFT[name]}\n")


def columns(size, kept):
    rng = np.random.default_rng(size)
    return rng.integers(0, 6, size), rng.random(size), rng.random(size), rng.random(size) < kept


def query(g, x, y, m):
    g, x, y = g[m], x[m], y[m]
    z = x * (1.0 - y)
    return np.bincount(g, z, 6), np.bincount(g, z * (1.0 + y), 6), np.bincount(g, minlength=6)


@pytest.mark.usefixtures("_few_are_enough")
@pytest.mark.parametrize("size", [1, 2, 130, 2049, 100_003])
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 1.0])
def test_a_query_of_any_size(size, kept):
    jitted = jitla.jit(query)
    args = columns(size, kept)
    for _ in range(3):
        for found, wanted in zip(jitted(*args), query(*args), strict=True):
            assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()
    assert not jitted.stats()["failures"]


@pytest.mark.usefixtures("_few_are_enough")
def test_all_columns_of_a_query_are_read_once():
    jitted = jitla.jit(query)
    args = columns(100_003, 0.5)
    for _ in range(3):
        jitted(*args)
    (site,) = jitted.__jitla_state__.all_sites()
    kernels = [s for p in site.runs() for s in p.plan.steps if getattr(s, "template", "") == "Tally"]
    assert len(kernels) == 1 and len(kernels[0].outputs) == 3
    assert all(p.materialised == 0 for p in site.runs())


@pytest.mark.usefixtures("_few_are_enough")
def test_masks_that_keep_other_numbers_share_a_plan():
    @jitla.jit
    def f(x, y, m):
        return x[m] * y[m]

    rng = np.random.default_rng(0)
    x, y = rng.random(1000), rng.random(1000)
    for kept in (0.3, 0.4, 0.5, 0.6):
        m = rng.random(1000) < kept
        assert np.array_equal(f(x, y, m), x[m] * y[m])
    (site,) = f.__jitla_state__.all_sites()
    assert len(site.runs()) == 1


@pytest.mark.usefixtures("_few_are_enough")
def test_what_is_read_is_not_taken_for_what_lies_beside_it():
    """A table may have as many elements as there are positions."""
    @jitla.jit
    def f(x, w, i):
        return x[i] * w[i], (x[i] - w[i]).sum(), np.sqrt(x[i]) + w

    rng = np.random.default_rng(0)
    x, w, i = rng.random(5000), rng.random(5000), rng.integers(0, 5000, 5000)
    for _ in range(2):
        product, total, root = f(x, w, i)
        assert np.array_equal(product, x[i] * w[i]) and total == (x[i] - w[i]).sum()
        assert np.array_equal(root, np.sqrt(x[i]) + w)


# What several indices name together, rows and columns that one names, what is repeated or padded: NumPy's results.

GATHERS_MAKE = """
def make():
    rng = np.random.default_rng(0)
    return rng.random((9, 13, 4)), rng.integers(-9, 9, 17), rng.integers(-13, 13, 21), rng.integers(-4, 4, (17, 13)), rng.integers(0, 13, (17, 13)).astype('i4')
"""
GATHERS_LATER = {
    "rows": "return .75 * a[i] + .25 * a[i[::-1].copy()], a[i + 0].sum(), a[i]",
    "columns": "return a[:, j] * 2, a[:, j], a[:, :, k[0].copy()] + 1",
    "columns beside rows": "return a[:, j[:13].copy()] - a, a[:, i[:4] % 4].transpose(1, 0, 2) + 1, a[:, j].transpose(1, 0, 2)[::2] * 2",
    "several": "return a[i[:, None], np.arange(13), k] * 2 + a[i[:, None], np.arange(13), -1 - k]",
    "of some axes": "return a[i[:, None], m] * 2, a[:, m, k] * 2, a[:, m, k]",
    "computed": "return a[(i + 0)[:, None], np.minimum(m + 1, 12), k * 1] - 1, k * 1, a[i * 1] * 2",
    "aggregates": "x = a[i[:, None], m, k]; return x.sum(0), x.sum(1), (x * 2).sum(), a[:, j].sum(1), a[i].mean(axis=(0, 1)), x.argmax(1), a[i].max(2)",
    "kinds": "return [(a * 9).astype(t)[:, j[:9] + 0] + (a * 5).astype(t)[:, j[:9] + 0] for t in ('?', 'i1', 'u2', 'i4', 'f4', 'f8', 'c16')]",
    "indices of kinds": "return [a[i[:, None].astype(t) % 9, m.astype(t), k.astype(t) % 4] * 2 for t in ('i1', 'u1', 'i2', 'u4', 'i8')]",
    "a turned operand": "return a[i[:, None], m, k].T * 2 + a[:, :, 0].T[:, :1], a[i[:9]][:, j[:13] % 13] * a.transpose(1, 0, 2).copy().transpose(1, 0, 2)",
    "products": "x = (a[i[:, None], m, k] * 9) // 1; return x @ x.T",
    "the table changes": "x = a[i]; a[:3] = 7; y = a[:, j] * 2; a *= 2; return x, y, a",
    "an index changes": "x = a[i] * 1; i[:] = 0; y = a[i[:, None], m, k]; m[:] = 1; return x, y, a[i[:, None], m, k]",
    "into the table": "a[...] = a[i[:9]] * 2; a[:, :, 1] = a[i[:9, None], m[:9], k[:9]]; return a",
    "what is read is written": "x = a[i]; x[3] = 5; y = a[:, j]; y *= 2; return x, y, a",
    "repeated": "return np.repeat(a, 2, axis=1) * 2 + 1, np.repeat(a * 2, 3, axis=0) - 1, np.repeat(a, 2, -1), np.tile(a, (2, 1, 3)) + 1, np.tile(a, 2)",
    "padded": "return [np.pad(a, ((1, 2), (3, 20), (0, 5)), mode=t)[1:] * 2 for t in ('edge', 'wrap', 'reflect', 'symmetric')], np.pad(a * 2, 1, 'edge')",
    "padded and written": "p = np.pad(a, 1, mode='edge'); a[0] = 5; p[1] = 3; return p, a",
    "neighbours": "n = i[:, None]; l = k % 3; return a[n, m, l] * .5 + a[n, m, l + 1] * .25 + a[n - 1, m, 1 + l] + a[n, m, l - 1] * l + a[n, m, -4 + l], l",
    "neighbours of bytes": "n = i[:, None]; l = (k % 3).astype('i1'); u = l.astype('u1'); return [a[n, m, x] * 2 for x in (l + 1, l - 2, u + 1, l + -4, u)]",
    "a neighbour changes": "n = i[:, None]; l = k % 3; x = a[n, m, l] + a[n, m, l + 1]; l += 1; y = a[n, m, l] * 2; l[2:5] = -4; z = a[n, m, l] + 1; np.subtract(l, 1, out=l, where=l > 0); l.sort(); return x, y, z, a[n, m, l] * 2, l",
    "rows of a neighbour change": "n = i[:, None]; l = k % 3; x = a[n, m, l] * 2; r = l[3]; r[...] = 3; y = a[n, m, l] * 2; np.put(l, [1, 2], [-1, -2]); np.copyto(l[4], 1); return x, y, a[n, m, l] + 1, a[n, m, l - 1]",
    "neighbours added up": "z = np.zeros((17, 13), 'f4')\n    for d in (0, 1):\n        for e in (0, 1):\n            z += .5 * a[i[:, None] % 8 + d, m % 12 + e, k % 3 + d]\n    w = z\n    w -= a[i[:, None], m, k]\n    w *= z\n    return z, w is z",
    "in a loop": "t = 0.0\n    for n in range(4):\n        t = t + a[(i + n) % 9][:, :, ::-1].mean()\n        a = a[:, j[:13].copy()] + n\n    return t, a",
    "a warning": "return a[i] / (a[i] - a[i]), np.log(a[:, j] - 2)",
}
GATHERS_LEFT = {
    "beyond": "return a[i + 8] * 2",
    "below": "return a[:, j - 12]",
    "one of several beyond": "return a[i[:, None], m + 5, k]",
    "one of several below": "return a[i[:, None], m, k * 2]",
    "a neighbour beyond": "n = i[:, None]; l = k % 3; x = a[n, m, l] + a[n, m, l + 1]; return x, a[n, m, l + 2]",
    "a neighbour that was changed": "n = i[:, None]; l = k % 3; x = a[n, m, l] + a[n, m, l + 1]; l[0, 0] = 4; return x, a[n, m, l]",
    "a neighbour changed elsewhere": "n = i[:, None]; l = k % 3; x = a[n, m, l] + a[n, m, l + 1]; np.asarray(l)[0, 0] = 9; return x, a[n, m, l]",
    "a neighbour changed by others": "import ctypes\n    n = i[:, None]; l = k % 3; x = a[n, m, l] + a[n, m, l + 1]; ctypes.memset(l.ctypes.data, 3, 8); return x, a[n, m, l]",
    "bytes that wrap": "n = i[:, None]; l = (k % 3 + 120).astype('i1'); x = a[n, m, l - 119]; return x, a[n, m, l + 7]",
    "shapes that do not fit": "return a[i, j]",
    "caught": "try:\n        return a[i[:, None], m + 5, k]\n    except IndexError as error:\n        return str(error), a[i] * 2",
    "too many": "return a[i[:, None], m, k, k]",
    "axes between": "return a[i[:, None], :, k], a[None, i], a[..., k % 4], a[i, None], a[0, j], a[i[:9] > 0], a[i[:, None], m, 1]",
    "orders": "return np.asfortranarray(a)[i], a[np.asfortranarray(m) % 9], a[::-1][i], a[i[::-1]]",
    "lists and floats": "return a[[1, 2]], a[:, [3]], a[i * 1.0]",
    "repeats": "return np.repeat(a, 2), np.repeat(a, i % 2 + 1, axis=0)",
    "times": "return np.repeat(a, [1] * 13, axis=1), np.tile(a, (2, 1, 1, 1)), np.repeat(a, 0, 1), np.tile(a, 0)",
    "an axis that is not there": "return np.repeat(a, 2, axis=5)",
}


@pytest.fixture
def _gathers_few_are_enough(monkeypatch):
    plain = LlvmBackend.compile

    def compiled(*args):
        try:
            return plain(*args)
        except Exception as error:
            raise SystemExit(str(error)) from error  # NumPy would do it

    monkeypatch.setattr(LlvmBackend, "compile", compiled)
    with jitla.options(thresholds=TracingThresholds(min_gather_elements=1)):
        yield


def checking(most):
    """Check at most this many indices when they are recorded."""
    return jitla.options(thresholds=TracingThresholds(min_gather_elements=1, max_checked_indices=most))


@pytest.fixture
def taken(monkeypatch):
    """How often something was read later."""
    found = []
    plain = gathers._record_take

    def noted(*args):
        found.append(plain(*args))
        return found[-1]

    monkeypatch.setattr(gathers, "_record_take", noted)
    return found


@pytest.mark.usefixtures("_gathers_few_are_enough")
@pytest.mark.parametrize("looked_at", [1 << 16, 20])
@pytest.mark.parametrize("name", GATHERS_LATER)
def test_gathers_are_read_later(name, looked_at, taken):
    with checking(looked_at):
        same(f"{GATHERS_MAKE}\n@jit\ndef f(a, i, j, k, m):\n    {GATHERS_LATER[name]}\n")
    assert taken


@pytest.mark.usefixtures("_gathers_few_are_enough")
@pytest.mark.parametrize("looked_at", [1 << 16, 20])
@pytest.mark.parametrize("name", GATHERS_LEFT)
def test_gathers_that_are_left_to_numpy(name, looked_at):
    with checking(looked_at):
        same(f"{GATHERS_MAKE}\n@jit\ndef f(a, i, j, k, m):\n    {GATHERS_LEFT[name]}\n")


@pytest.mark.usefixtures("_gathers_few_are_enough")
def test_neighbours_of_one_place_cost_one_look(monkeypatch):
    looks = []
    plain = bounded._compute_bounds
    monkeypatch.setattr(bounded, "_compute_bounds", lambda *given: looks.append(1) or plain(*given))
    line = "m = m * 1; k = k % 3; a[0].sum() + k.sum(); return sum(a[i[:, None], m, k + n] * n for n in (0, 1, -2))"
    with checking(20):
        same(f"{GATHERS_MAKE}\n@jit\ndef f(a, i, j, k, m):\n    {line}\n", calls=1)
    assert len(looks) == 2


# Indices, masks and labels in decorated functions: NumPy's results and errors, and that loops of ours ran.

SCATTERS_MAKE = """
def make():
    rng = np.random.default_rng(0)
    return rng.random(3000), rng.integers(0, 40, 3000)
"""
DONE = {
    "table": ("take", "x = b * 2; return a[x], (a + 1)[x.reshape(3, -1)], x"),
    "rows": ("take", "return a.reshape(-1, 3)[b] * 2, np.take(a, b), a.take(b), np.take(a.reshape(-1, 2), b, axis=0)"),
    "bytes": ("take", "lut = (a[:256] * 100).astype('u1'); return lut[b.astype('u1')]"),
    "negative": ("take", "return a[b - 40], a[-b]"),
    "mask": ("compress", "m = a > 0.5; return a[m], (a * 2)[m].sum(), b[m] + 1, a[m].mean(), a.reshape(-1, 3)[b[:1000] > 5]"),
    "masks": ("compress", "x = a.reshape(30, 100); return x[x > 0.3], x[x > 2], x[x > -1]"),
    "counts": ("bincount", "return np.bincount(b), np.bincount(b * 1, minlength=99), np.bincount(b, None, 3)"),
    "weights": ("bincount", "w = a * 3; return np.bincount(b, w), np.bincount(b, weights=a > 0.5, minlength=7)"),
    "histogram": ("histogram", "return np.histogram(a), np.histogram(a * 2, 7, (0.1, 1)), np.histogram(a, bins=3, range=[0, 0.5], density=None)"),
    "at": ("add_at", "t = np.zeros(40); np.add.at(t, b, a); np.add.at(t, b, 1); u = t * 2; np.add.at(u, b - 40, a * 1.5); return t, u"),
    "at whole": ("add_at", "t = np.zeros(40, int); v = t[1:]; np.add.at(t, b, 2); return t, v + 1"),
    "running": ("running", "x = a.reshape(-1, 30); y = np.cumsum(x, axis=0); x = x * 2 - 1; z = x.cumsum(0); x[1] = 7; return y, z, x, np.cumsum(b.reshape(3, 10, 100), axis=-3)"),
}
SCATTERS_LEFT = {
    "running too far": "return np.cumsum(a.reshape(-1, 30) * 1e308, axis=0)",
    "running otherwise": "x = a.reshape(-1, 30); return np.cumsum(x, axis=1), np.cumsum(x), np.cumsum(x.T, axis=0), np.cumsum(x > 0.5, axis=0), x.cumsum(0, dtype='f4')",
    "beyond": "return a[b + 2990]",
    "below": "return a[b - 3001]",
    "mask too long": "return a[:2999][a > 0.5]",
    "labels below": "return np.bincount(b - 1)",
    "no labels": "return np.bincount(a)",
    "weights too short": "return np.bincount(b, a[1:])",
    "minlength": "return np.bincount(b, minlength=-1)",
    "range": "return np.histogram(a, 5, (1, 0))",
    "not finite": "return np.histogram(np.log(a - a))",
    "many bins": "return np.histogram(a, 1000, (1.0, 1.0 + 1e-15))",
    "take": "return a.take(b, mode='wrap'), np.take(a, b, axis=1)",
    "take beyond": "return np.take(a, b * 100)",
    "at beyond": "np.add.at(a, b + 2980, 1.0)",
    "at too few": "np.add.at(a, b, np.ones(7))",
    "at a constant": "a.flags.writeable = False; np.add.at(a, b, 1.0)",
    "overflow": "t = np.full(40, 1e308); np.add.at(t, b, a * 1e308); return t",
    "others": "return np.take(a, b.astype('u8')) if a.size else 0",
    "at others": "t = np.zeros(40, 'f4'); np.add.at(t, b, 0.1); np.add.at(t, b, a); u = np.zeros(40, complex); np.add.at(u, b, a); return t, u",
    "density": "return np.histogram(a, density=True), np.histogram(a, weights=b), np.histogram(a, 'auto'), np.histogram(b)",
}


@pytest.fixture
def _scatters_few_are_enough():
    with jitla.options(thresholds=TracingThresholds(
            min_loop_indices=0, min_compiled_indices=0, min_column_scan_elements=0)):
        yield


@pytest.fixture
def loops(monkeypatch):
    """Names of the loops that did what they were asked for."""
    done = []
    plain = Site.run_index_loop

    def noted(site, name, *args):
        found = plain(site, name, *args)
        if found is not None and found is not False:
            done.append(name)
        assert not site.failures
        return found

    monkeypatch.setattr(Site, "run_index_loop", noted)
    return done


@pytest.mark.usefixtures("_scatters_few_are_enough")
@pytest.mark.parametrize("name", DONE)
def test_done_at_once(name, loops):
    loop, body = DONE[name]
    same(f"{SCATTERS_MAKE}\n@jit\ndef f(a, b):\n    {body}\n")
    assert loop in loops


@pytest.mark.usefixtures("_scatters_few_are_enough")
@pytest.mark.parametrize("name", SCATTERS_LEFT)
def test_scatters_that_are_left_to_numpy(name, loops):
    same(f"{SCATTERS_MAKE}\n@jit\ndef f(a, b):\n    {SCATTERS_LEFT[name]}\n")


@pytest.mark.usefixtures("_scatters_few_are_enough")
def test_what_is_read_late_is_read_before_values_are_added():
    same(f"""{SCATTERS_MAKE}
@jit
def f(a, b):
    x = a + 1
    y = a[:50] * 2
    np.add.at(a, b, 1.0)
    return x, y, a
""")


@pytest.mark.usefixtures("_scatters_few_are_enough")
def test_what_is_added_to_itself():
    same(f"""{SCATTERS_MAKE}
@jit
def f(a, b):
    np.add.at(a, b, a)
    np.add.at(b, b, 1)
    np.add.at(a, b % 10, a[:3000] * 1)
    return a, b
""")


@pytest.mark.usefixtures("_scatters_few_are_enough")
def test_few_indices_are_not_worth_a_loop():
    asked = []
    site = Site("f", None, False, lambda: asked.append(1), thresholds=TracingThresholds(
        min_loop_indices=1000, min_compiled_indices=2000))
    assert site.run_index_loop("take", 999, np.ones(3), np.zeros(999, int)) is None and not asked
    assert site.run_index_loop("take", 1000, np.ones(3), np.zeros(1000, int)) is None and not asked
    assert site.run_index_loop("take", 1000, np.ones(3), np.zeros(1000, int)) is None and asked
    assert len(site.failures) == 1  # None has no loops


@pytest.mark.usefixtures("_scatters_few_are_enough")
def test_a_loop_that_fails_is_numpys_and_is_counted(monkeypatch):
    class Broken:
        def take(self, *args):
            raise MemoryError("no code")

    @jitla.jit
    def f(a, b):
        return a[b]

    a, b = np.arange(5.0), np.arange(5)
    f(a, b)
    for site in f.__jitla_state__.all_sites():
        monkeypatch.setattr(site, "_indexed", Broken)
    assert np.array_equal(f(a, b), a) and f.stats()["failures"] == 1


@pytest.mark.usefixtures("_scatters_few_are_enough")
def test_warnings_of_sums_are_numpys():
    @jitla.jit
    def f(t, b, a):
        np.add.at(t, b, a)
        return t

    with warnings.catch_warnings(record=True) as wanted:
        warnings.simplefilter("always")
        plain = np.full(4, 1e308)
        np.add.at(plain, np.arange(4), np.full(4, 1e308))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        mine = f(np.full(4, 1e308), np.arange(4), np.full(4, 1e308))
    assert [str(w.message) for w in found] == [str(w.message) for w in wanted]
    assert np.array_equal(plain, mine)


@pytest.mark.usefixtures("_scatters_few_are_enough")
@pytest.mark.parametrize("kind", ["?", "u1", "i8", "f4", "f8", "c16"])
def test_what_is_not_zero_is_counted_with_what_computes_it(kind):
    same(f"""
def make():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (20, 30)).astype('{kind}')
    y = x.astype('f8')
    y[3, 4], y[3, 5] = np.nan, -0.0
    return x, y
@jit
def f(x, y):
    z = x == y
    n = np.count_nonzero(x)
    log = [n, n + 1, np.count_nonzero(y * 2), np.count_nonzero(z), np.count_nonzero(y > 0.5) / n]
    log += [np.count_nonzero(v, axis=k) for v in (x, y, z, y > 0) for k in (0, 1, -1, (0, 1), ())]
    log += [np.count_nonzero(x, keepdims=True), np.count_nonzero(x[:0]), np.count_nonzero(y[0, 0])]
    return log, np.count_nonzero(y, axis=1, keepdims=True), np.count_nonzero([n, 0])
""")


@pytest.mark.usefixtures("_scatters_few_are_enough")
@pytest.mark.parametrize("kind", ["?", "i4", "c8"])
def test_counts_of_repeated_rows_lie_as_numpys(kind):
    @jitla.jit
    def counts(x):
        return np.count_nonzero(x, axis=-1, keepdims=True), np.count_nonzero(x, axis=1), np.count_nonzero(x)

    row = np.arange(6).reshape(2, 3).astype(kind)
    for x in (np.broadcast_to(row, (50, 2, 3)), np.broadcast_to(row[0], (50, 3)), row):
        for found, wanted in zip(counts(x), counts.__wrapped__(x), strict=True):
            assert np.array_equal(found, wanted) and np.asarray(found).strides == np.asarray(wanted).strides


@pytest.mark.usefixtures("_scatters_few_are_enough")
@pytest.mark.parametrize("size", [10, 3000, 20_000])
@pytest.mark.parametrize("body", [
    "np.take(x, i)", "x.take(i)", "x[i]", "x[x > 0.5]", "np.bincount(i)", "np.bincount(i, x, 5)", "np.histogram(x)",
    "np.histogram(x, 7, (0, 2))", "np.add.at(x, i, 1.0)"])
@pytest.mark.parametrize("least", [0, 1 << 13])
def test_what_there_is_an_entry_for_is_no_fallback_whatever_its_size(body, size, least, tmp_path):
    thresholds = TracingThresholds(min_loop_indices=least, min_compiled_indices=least)
    names: dict = {"np": np}
    (tmp_path / "f.py").write_text(f"def f(x, i):\n    return {body}\n")
    exec(compile((tmp_path / "f.py").read_text(), str(tmp_path / "f.py"), "exec"), names)
    fast = jitla.jit(names["f"], strict=True)
    for step in (1, 2):  # loops want contiguous memory
        x, i = np.random.default_rng(0).random(step * size)[::step], np.arange(step * size)[::step] % size
        for _ in range(2):
            with jitla.options(thresholds=thresholds):
                found = fast(x.copy() if step == 1 else x, i)
            wanted = names["f"](x.copy() if step == 1 else x, i)
            for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (found, wanted)), strict=True):
                assert np.array_equal(a, b)
    assert fast.stats()["fallbacks"] == 0


@pytest.mark.usefixtures("_scatters_few_are_enough")
def test_loops_are_explained():
    @jitla.jit
    def f(x, i):
        return x[i], np.bincount(i, x)

    x, i = np.random.default_rng(0).random(4000), np.arange(4000)
    for _ in range(3):
        f(x, i)
    f(np.repeat(x, 2)[::2], i)
    text, line = str(jitla.explain(f)), f.__wrapped__.__code__.co_firstlineno + 2
    place = f"test_indexing.py:{line}"
    assert "== run immediately: 2 places\n" in text
    assert re.search(r"L\d  take 4000 float64, 3 runs, 96 kB each, took [0-9.]+ .?s each, 1 time by NumPy\n", text)
    assert re.search(rf"L\d  bincount 4000 int64, .*\n +{place}  bincount  \| return x\[i\], np.bincount", text)
    table = jitla.coverage()
    assert f"{place}  take" in table and "handed to NumPy" in table
    record = jitla.explain(f).record
    assert [loop.by_numpy for loop in sorted(record.loops, key=lambda loop: loop.operation)] == [1, 1]
    assert all(loop.count == 3 and loop.seconds > 0 for loop in record.loops)
    f.cache_clear()
    assert not jitla.explain(f).record.loops


@pytest.mark.usefixtures("_scatters_few_are_enough")
def test_strict_sums_have_numpys_order():
    rng = np.random.default_rng(1)
    labels, weights = rng.integers(0, 50, 300_000), rng.standard_normal(300_000)

    def sums(b, w):
        t = np.zeros(50)
        np.add.at(t, b, w)
        return np.bincount(b, w), t

    wanted = sums(labels, weights)
    strict = jitla.jit(sums, numerics="strict", compile="sync")
    for found, want in zip(strict(labels, weights), wanted, strict=True):
        assert found.tobytes() == want.tobytes()
    for threads in (1, 2):
        with jitla.options(num_threads=threads):
            usual = jitla.jit(sums, compile="sync")(labels, weights)
        for found, want in zip(usual, wanted, strict=True):
            np.testing.assert_allclose(found, want, rtol=0, atol=1e-8)
            assert found.tobytes() != want.tobytes()  # else the other way was not asked for
