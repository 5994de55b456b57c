"""Parts of arrays: views, items, in-place operations, containers without proxies."""

# ruff: noqa: E501 - programs are as users write them
from __future__ import annotations

import numpy as np
import pytest

import jitla
from tests.tracing.sameness import same

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
def test_same(program: str) -> None:
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
