"""What twins do at calls, stores, loops and contexts."""

# ruff: noqa: E501 - programs are as users write them
from __future__ import annotations

import pytest

from tests.tracing.sameness import same

COLLECTIONS = """
from collections import UserDict, defaultdict, OrderedDict, deque, Counter, ChainMap
u=UserDict(); dd=defaultdict(list); od=OrderedDict(); dq=deque(maxlen=3); cm=ChainMap({})
class L(list): pass
class D(dict): pass
l=L([0]); d=D(); pl=[0]; pd={}
@jit
def f(a,b):
    BODY
def state(): return dict(u),dict(dd),dict(od),list(dq),dict(cm),list(l),dict(d),pl,pd
"""

PROGRAMS = {
    "zipmap": """
@jit
def f(a, b):
    return list(zip(a+b, a)), list(map(lambda v: v*2, a+b)), list(filter(lambda v: v>0, a-b)), [p*q for p,q in zip(a,b)], list(map(lambda v: v*2, [a,b]))
""",
    "reduce": """
@jit
def f(a, b):
    import functools
    return functools.reduce(lambda p,q: p*q+1, [a,b,a]), functools.partial(np.add, a)(b), functools.partial(lambda p,q: p-q, q=b)(a+1)
""",
    "nested": """
@jit
def g(x): return x*2+1
@jit
def h(x, y=3): return g(x)+y
@jit
def f(a,b):
    u=h(a, y=b)
    v=g(u)
    return u, v, g(h(b))
""",
    "recursion": """
@jit
def f(a,b,n=5):
    if n==0: return a
    return f(a*0.5+b, b, n-1)+a
""",
    "methods": """
class A:
    k=2.0
    def __init__(self): self.w=np.ones(6)
    @jit
    def m(self, x):
        self.w = self.w*0.5+x
        return self.w
    @classmethod
    @jit
    def c(cls, x): return x*cls.k
    @jit
    @classmethod
    def c2(cls, x): return x*cls.k
    @staticmethod
    @jit
    def s(x): return x+1
    @property
    @jit
    def p(self): return self.w*3
    @jit
    def __call__(self, x): return x-self.w
    @jit
    def __add__(self, o): return self.w+o
o=A()
def f(a,b):
    return o.m(a), A.c(a), o.c2(b), A.s(a), o.s(a), o.p, o(a), o+b, A.m(o, b), o.w
""",
    "callable": """
class A:
    def __call__(self, x, y): return x*y+1
f=jit(A())
""",
    "dataclass": """
from dataclasses import dataclass, field, replace
@dataclass
class D:
    x: object
    y: object = None
@dataclass(frozen=True)
class Fz:
    x: object
@jit
def f(a,b):
    d=D(a+b, a*b)
    d.y = d.y+1
    e=replace(d, x=a-b)
    z=Fz(a*3)
    return d.x, d.y, e.x, e.y, z.x, type(d.x).__name__, d.__dict__, vars(z)
""",
    "namedtuple": """
from typing import NamedTuple
class N(NamedTuple):
    x: object
    y: object = 1
@jit
def f(a,b):
    n=N(a+b, a*b)
    m=n._replace(x=a)
    return n.x, n, m, n[0]+m.y, N(x=a+1), type(n).__name__
""",
    "namedtuple2": """
from collections import namedtuple
N=namedtuple('N','x y')
@jit
def f(a,b):
    return N((a+b).sum(), [a*2])
""",
    "ctx": """
from contextlib import contextmanager
log=[]
@contextmanager
def c(x):
    log.append('in')
    x += 1
    yield x*2
    x += 10
    log.append('out')
@jit
def f(a,b):
    y=a*1
    z=y+b
    with c(y) as w:
        u=z+w+y
    return y,z,u,w,log
""",
    "ctxmulti": """
from contextlib import contextmanager, ExitStack, nullcontext, suppress, closing
@contextmanager
def sc(x):
    x*=2
    try: yield x
    except ValueError: x+=100
    finally: x*=3
@jit
def f(a,b):
    y=a*1
    with sc(y) as p, sc(b) as q:
        z=y*b+p
        raise ValueError
    with ExitStack() as s:
        s.enter_context(sc(y))
        s.callback(y.fill, 3)
        w=y+z
    with nullcontext(y*2) as n: v=n+1
    with suppress(KeyError): {}[1]
    return y,z,w,v,b
""",
    "ctxlock": """
@jit
def f(a, b):
    import threading, tempfile, io
    l=threading.Lock()
    x=a+b
    with l: x=x*2
    with io.StringIO() as s:
        s.write(str(x)); t=s.getvalue()
    with l as m: y=x+1
    return x,t,y,m
""",
    "ctxbad2": """
@jit
def f(a, b):
    with 3: pass
""",
    "ctxself": """
class W:
    def __init__(s): s.g=np.zeros(6)
    def __enter__(s): s.g[:]=1; return s
    def __exit__(s,*e): s.g[:]=0
w=W()
@jit
def f(a,b):
    with w:
        y=w.g*a
    z=w.g*a
    return y,z
""",
    "ctxloop": """
from contextlib import contextmanager
@contextmanager
def sc(x): yield x
@jit
def f(a,b):
    y=a
    for i in range(4):
        with sc(b) as q:
            if i==1: continue
            y=y+q
            if i==2: break
    return y
@jit
def g(a):
    with sc(a) as q: return q*2
""",
    "converted": """
class Holder:
    def __init__(self, x): self.x = x
    def __array__(self, dtype=None, copy=None): self.x[0] += 2.0; return np.ones(6)
@jit
def f(a, b):
    o = Holder(a)
    s = a * 2
    b[:] = o
    t = a * 3
    b += o
    u = a * 4
    b[:3], c = np.ones(6, object)[:3], np.ones(6, object)
    c[:] = o
    v = a * 5
    c += o
    return s, t, u, v, a, b, c
""",
    "match": """
@jit
def f(a, b):

    x=a+b
    match x:
        case [p,*q]: r=1
        case _: r=2
    match (x, x.sum()):
        case (u, float(v)): s=v
        case (u, v): s=0
    match {'k': x}:
        case {'k': k}: t=k
    match x:
        case np.ndarray(shape=sh): w=sh
    match x.shape:
        case (n,): n
    return r,s,t,w,n
""",
    "star": """
@jit
def g(*args, k=2, **kw):
    return args, kw, sum(args)*k
@jit
def f(a,b):
    r=g(a,b,*[a+1], k=3, **{'z': a*b})
    return r
""",
    "defaults": """
W=np.ones(6)
@jit
def g(x, w=W, *, v=W):
    w += x
    return w*v
@jit
def f(a,b):
    return g(a), g(b, w=a+1)
def state(): return W,
""",
    "walrus": """
@jit
def f(a, b):
    if (s:=(a+b).sum())>0: r=s*2
    else: r=s
    l=[y:=v*2 for v in a]
    return r,s,l,y
""",
    "global": """
G=np.ones(6); H=None
@jit
def f(a,b):
    global G,H
    G=G*0.5+a
    H=(G*b).sum()
    G+=1
    return G*2
def state(): return G,H
""",
    "del": """
@jit
def f(a, b):
    x=a+b
    y=x*2
    del x
    z=y+1
    del y
    try:
        x
    except NameError as e:
        m=str(e)
    return z,m
""",
    "attrs": """
class O: pass
o=O()
@jit
def f(a,b):
    o.x=a+b
    o.y=(a*b).sum()
    o.l=[a+1,(b*2,)]
    o.d={'k':a*3}
    o.d['m']=a*4
    o.l[0]=b*7
    o.l.append(a-1)
    setattr(o,'z',a+5)
    o.__dict__['q']=a*6
    vars(o)['r']=a*8
    return o.x+1
def state(): return sorted(vars(o)), [vars(o)[k] for k in sorted(vars(o))]
""",
    "prop": """
class O:
    @property
    def x(self): return self._x
    @x.setter
    def x(self,v): self._x=v; self.t=type(v).__name__; self._x+=1
    def __setattr__(self,k,v): object.__setattr__(self,k,v); object.__setattr__(self,'last',k)
o=O()
@jit
def f(a,b):
    o.x=a+b
    o.w=a*2
    return o.x*2
def state(): return o._x, o.t, o.last, o.w
""",
    "slots": """
class O:
    __slots__=('x','y')
o=O()
@jit
def f(a,b):
    o.x=a+b
    o.y=o.x*2
    o.x+=1
    return o.x
def state(): return o.x,o.y
""",
    "classattr": """
class O: x=None
@jit
def f(a,b):
    O.x=a+b
    O.x+=1
    f_.y=a*2
    return O.x
def f_(): pass
def state(): return O.x, getattr(f_,'y',None)
""",
    "userdict": """
from collections import UserDict, defaultdict, OrderedDict, deque, Counter, ChainMap
u=UserDict(); dd=defaultdict(list); od=OrderedDict(); dq=deque(maxlen=3); cm=ChainMap({})
class L(list): pass
class D(dict): pass
l=L([0]); d=D()
@jit
def f(a,b):
    u['k']=a+b
    dd['x'].append(a*2)
    dd['y']=a*3
    od['z']=b*2
    dq.append(a+1); dq.appendleft(b+1); dq[0]=a*9
    cm['q']=a*4
    l[0]=a*5; l.append(b*5); d['h']=a*6; l+= [a*7]
    d.update(v=a*8); d.setdefault('w', a*9); d|={'g':a}
    c=Counter(); c['a']=a.sum(); c['a']+=1
    return u['k']+1, dd['x'][0], dict(c)
def state(): return dict(u),dict(dd),dict(od),list(dq),dict(cm),list(l),dict(d)
""",
    "closure": """
def outer():
    s=np.zeros(6); hist=[]
    @jit
    def g(a):
        nonlocal s
        s = s*0.9+a
        s += 1
        hist.append(s*2)
        hist.extend([s, s.sum()])
        return s
    return g, lambda: (s, hist)
g,st=outer()
def f(a,b): return g(a), g(b)
def state(): return st()
""",
    "retlam": """
@jit
def g(a, b):
    x=a+b
    return (lambda y=x: y*2), (lambda: x), [lambda v=v: v for v in (x,a)]

def f(a,b): p,q,r=g(a,b); return p(), q(), [k() for k in r], type(p.__defaults__[0]).__name__
""",
    "argcell": """
@jit
def g(a, b):
    return lambda: a*2, lambda: a
def f(a,b):
    p,q=g(a,b); return p(), q() is a
""",
    "argcellhelper": """
def h(x): return lambda k: x*k
@jit
def g(a,b): return h(a+b), h(a)
def f(a,b):
    p,q=g(a,b); return p(2), q(3)
""",
    "argdefcell": """
class A:
    def m(self, x):
        self.cb = lambda: x+1
        return self.cb()
o=A()
@jit
def g(a,b): return o.m(a+b)
def f(a,b):
    r=g(a,b); return r, o.cb()
""",
    "listret": r"""
import functools
class H:
    hist=[]
import types
ns={}
exec("hist=[]\ndef get(): return hist\ndef pair(t=([],)): return t", ns)
get=ns['get']
@functools.lru_cache
def cached(): return [1,2]
@jit
def f(a,b):
    l=get(); l.append((a+b).sum()); l.append(a)
    c=cached(); c.append(3)
    return l, len(c)
def state(): return get(), cached()
""",
    "tupid": r"""
ns={}
exec("seen=[]\ndef put(t): seen.append(t); return t", ns)
put=ns['put']; seen=ns['seen']
@jit
def f(a,b):
    t=(1,(2,3)); l=[1,2]
    u=put(t); w=put(l)
    return u is t, w is l, put((a+b,))[0]+1
def state(): return seen
""",
    "lists": """
@jit
def f(a, b):
    l=[a*1,b*1]
    l[0]+=1
    l[1]=l[0]*2
    l[0:1]=[a*3,b*4]
    del l[0]
    l.insert(0,a*5)
    m=l.pop()
    l.sort(key=lambda v: v.sum())
    l.reverse()
    return l,m,l.index(l[0]) if 0 else 0, a in [1] if 0 else 0, len(l)
""",
    "lrucache": """
import functools
@functools.lru_cache
def g(n): return np.arange(n)*1.
@functools.cached_property
def z(self): return 1
class A:
    @functools.cached_property
    def w(self): return np.ones(6)*2
o=A()
@jit
def f(a,b):
    g(6)[0]+=1
    x=g(6)+a
    o.w[1]+=1
    y=o.w*a
    o.w*=2
    return x,y,o.w
def state(): return g(6),o.w
""",
    "augattr": """
@jit
def f(a,b):
    o=Box(w=a.copy(),v=np.zeros(6)); h=[]
    for i in range(4):
        g=o.w*2-b
        o.v=0.9*o.v+g
        o.w-=0.1*o.v
        h.append(o.w); h.append((g*g).sum())
        o.best=o.w if i==1 else getattr(o,'best',None)
    return o,h
""",
    "argscontainer": """
@jit
def g(d,l,t,o):
    y=d['x']*2+l[0]+t[0]+o.x
    d['x']+=1; l[0]*=2; o.x-=1
    d['n']=y; l.append(y); o.y=y*2
    z=d['x']+l[0]+o.x+t[0]
    t[0][:]=0
    return y,z
def f(a,b):
    o=Box(x=a.copy()); d={'x':b.copy()}; l=[a*2]; t=(b*3,)
    return g(d,l,t,o),g(d,l,t,o),d,l,t,o
""",
    "kwmut": """
@jit
def g(**kw):
    kw['q']=kw['a']*2
    return kw
@jit
def g2(*args):
    l=list(args); l[0]=l[0]+1
    return l, args
def f(a,b): return g(a=a,b=b), g2(a,b), g(a=a)['a'] is a
""",
    "recclosure": """
@jit
def f(a, b):
    def rec(n,x): return x if n==0 else rec(n-1,x*2+b)
    return rec(5,a)
""",
    "deco": """
import functools, time
def d(fn):
    @functools.wraps(fn)
    def w(*args,**k):
        r=fn(*args,**k)
        return r*2
    return w
@jit
@d
def f(a,b): return a+b
""",
    "deco2": """
import functools
def d(fn):
    @functools.wraps(fn)
    def w(*args,**k):
        args[0][0]=5
        r=fn(*args,**k)
        args[0][1]=7
        return r*2
    return w
@d
@jit
def f(a,b): return a+b
""",
    "partialjit": """
import functools
@jit
def g(k,a,b): return a*k+b
f=functools.partial(g,3)
""",
    "lambdajit": """
f=jit(lambda a,b: (a*b)[::-1]+a)
""",
    "loader_for": """
ns={}
exec('''
import numpy as np
class Loader:
    def __init__(s): s.buf=np.zeros(6); s.n=0
    def __iter__(s): s.n=0; return s
    def __next__(s):
        s.n+=1
        if s.n>3: raise StopIteration
        s.buf[:]=s.n; return s.buf
    def __len__(s): return 3
    def __getitem__(s,i):
        if i>2: raise IndexError
        s.buf[:]=i*10; return s.buf
    @property
    def cur(s): s.buf+=1; return s.buf
def gen():
    buf=np.zeros(6)
    for i in range(3):
        buf+=i+1; yield buf
''', ns)
Loader=ns['Loader']; gen=ns['gen']

@jit
def f(a, b):
    h=a*0
    for x in Loader(): h=h+x*b
    return h
""",
    "loader_enum": """
ns={}
exec('''
import numpy as np
class Loader:
    def __init__(s): s.buf=np.zeros(6); s.n=0
    def __iter__(s): s.n=0; return s
    def __next__(s):
        s.n+=1
        if s.n>3: raise StopIteration
        s.buf[:]=s.n; return s.buf
    def __len__(s): return 3
    def __getitem__(s,i):
        if i>2: raise IndexError
        s.buf[:]=i*10; return s.buf
    @property
    def cur(s): s.buf+=1; return s.buf
def gen():
    buf=np.zeros(6)
    for i in range(3):
        buf+=i+1; yield buf
''', ns)
Loader=ns['Loader']; gen=ns['gen']

@jit
def f(a, b):
    h=a*0
    r=[]
    for i,x in enumerate(Loader()):
        y=x*b
        h=h+y*i
        r.append(y)
    return h,r
""",
    "loader_zip": """
ns={}
exec('''
import numpy as np
class Loader:
    def __init__(s): s.buf=np.zeros(6); s.n=0
    def __iter__(s): s.n=0; return s
    def __next__(s):
        s.n+=1
        if s.n>3: raise StopIteration
        s.buf[:]=s.n; return s.buf
    def __len__(s): return 3
    def __getitem__(s,i):
        if i>2: raise IndexError
        s.buf[:]=i*10; return s.buf
    @property
    def cur(s): s.buf+=1; return s.buf
def gen():
    buf=np.zeros(6)
    for i in range(3):
        buf+=i+1; yield buf
''', ns)
Loader=ns['Loader']; gen=ns['gen']

@jit
def f(a, b):
    l=[]
    for x,v in zip(Loader(),[1,2,3]):
        y=x*b+v
        l+=[y]
    return l
""",
    "loader_next": """
ns={}
exec('''
import numpy as np
class Loader:
    def __init__(s): s.buf=np.zeros(6); s.n=0
    def __iter__(s): s.n=0; return s
    def __next__(s):
        s.n+=1
        if s.n>3: raise StopIteration
        s.buf[:]=s.n; return s.buf
    def __len__(s): return 3
    def __getitem__(s,i):
        if i>2: raise IndexError
        s.buf[:]=i*10; return s.buf
    @property
    def cur(s): s.buf+=1; return s.buf
def gen():
    buf=np.zeros(6)
    for i in range(3):
        buf+=i+1; yield buf
''', ns)
Loader=ns['Loader']; gen=ns['gen']

@jit
def f(a, b):
    it=iter(Loader())
    x=next(it)
    y=x*b
    x=next(it)
    z=x*b
    return y,z
""",
    "loader_gennext": """
ns={}
exec('''
import numpy as np
class Loader:
    def __init__(s): s.buf=np.zeros(6); s.n=0
    def __iter__(s): s.n=0; return s
    def __next__(s):
        s.n+=1
        if s.n>3: raise StopIteration
        s.buf[:]=s.n; return s.buf
    def __len__(s): return 3
    def __getitem__(s,i):
        if i>2: raise IndexError
        s.buf[:]=i*10; return s.buf
    @property
    def cur(s): s.buf+=1; return s.buf
def gen():
    buf=np.zeros(6)
    for i in range(3):
        buf+=i+1; yield buf
''', ns)
Loader=ns['Loader']; gen=ns['gen']

@jit
def f(a, b):
    it=gen()
    x=next(it)
    y=x*b
    x=next(it)
    z=x*b
    return y,z,[q*b for q in gen()], sum(q*b for q in gen()), list(map(lambda q: q*b, gen()))
""",
    "loader_ghost": """
ns={}
exec('''
import numpy as np
class Loader:
    def __init__(s): s.buf=np.zeros(6); s.n=0
    def __iter__(s): s.n=0; return s
    def __next__(s):
        s.n+=1
        if s.n>3: raise StopIteration
        s.buf[:]=s.n; return s.buf
    def __len__(s): return 3
    def __getitem__(s,i):
        if i>2: raise IndexError
        s.buf[:]=i*10; return s.buf
    @property
    def cur(s): s.buf+=1; return s.buf
def gen():
    buf=np.zeros(6)
    for i in range(3):
        buf+=i+1; yield buf
''', ns)
Loader=ns['Loader']; gen=ns['gen']

@jit
def f(a, b):
    L=Loader()
    it=iter(L)
    x=next(it)
    y=x*b
    s=(y*2).sum()
    if s>1e9: return y
    x=next(it)
    z=x+1
    t=z.sum()
    return y,t,s
""",
    "loader_unpack": """
ns={}
exec('''
import numpy as np
class Loader:
    def __init__(s): s.buf=np.zeros(6); s.n=0
    def __iter__(s): s.n=0; return s
    def __next__(s):
        s.n+=1
        if s.n>3: raise StopIteration
        s.buf[:]=s.n; return s.buf
    def __len__(s): return 3
    def __getitem__(s,i):
        if i>2: raise IndexError
        s.buf[:]=i*10; return s.buf
    @property
    def cur(s): s.buf+=1; return s.buf
def gen():
    buf=np.zeros(6)
    for i in range(3):
        buf+=i+1; yield buf
''', ns)
Loader=ns['Loader']; gen=ns['gen']

@jit
def f(a, b):
    x,y,z=gen()
    return x+b,y,z
""",
    "loader_star": """
ns={}
exec('''
import numpy as np
class Loader:
    def __init__(s): s.buf=np.zeros(6); s.n=0
    def __iter__(s): s.n=0; return s
    def __next__(s):
        s.n+=1
        if s.n>3: raise StopIteration
        s.buf[:]=s.n; return s.buf
    def __len__(s): return 3
    def __getitem__(s,i):
        if i>2: raise IndexError
        s.buf[:]=i*10; return s.buf
    @property
    def cur(s): s.buf+=1; return s.buf
def gen():
    buf=np.zeros(6)
    for i in range(3):
        buf+=i+1; yield buf
''', ns)
Loader=ns['Loader']; gen=ns['gen']

@jit
def f(a, b):
    l=[*gen()]
    return l[0]+b, np.array(l)
""",
    "loader_min": """
ns={}
exec('''
import numpy as np
class Loader:
    def __init__(s): s.buf=np.zeros(6); s.n=0
    def __iter__(s): s.n=0; return s
    def __next__(s):
        s.n+=1
        if s.n>3: raise StopIteration
        s.buf[:]=s.n; return s.buf
    def __len__(s): return 3
    def __getitem__(s,i):
        if i>2: raise IndexError
        s.buf[:]=i*10; return s.buf
    @property
    def cur(s): s.buf+=1; return s.buf
def gen():
    buf=np.zeros(6)
    for i in range(3):
        buf+=i+1; yield buf
''', ns)
Loader=ns['Loader']; gen=ns['gen']

@jit
def f(a, b):
    L=Loader()
    y=L.buf*b+1
    m=sum(L)
    q=L.buf*b
    n=max(Loader(),key=lambda v: v[0])
    return y,m,q,n
""",
    "loader_len": """
ns={}
exec('''
import numpy as np
class Loader:
    def __init__(s): s.buf=np.zeros(6); s.n=0
    def __iter__(s): s.n=0; return s
    def __next__(s):
        s.n+=1
        if s.n>3: raise StopIteration
        s.buf[:]=s.n; return s.buf
    def __len__(s): return 3
    def __getitem__(s,i):
        if i>2: raise IndexError
        s.buf[:]=i*10; return s.buf
    @property
    def cur(s): s.buf+=1; return s.buf
def gen():
    buf=np.zeros(6)
    for i in range(3):
        buf+=i+1; yield buf
''', ns)
Loader=ns['Loader']; gen=ns['gen']

@jit
def f(a, b):
    y=a+b
    return [len(L) for L in [Loader()]], y in [1] if 0 else 1, tuple(y), tuple(Loader())[0]+b
""",
    "exitstack": """
@jit
def f(a, b):
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        x=a+b
        y=np.sqrt(np.abs(x))
    with np.printoptions(precision=2):
        s=str(x)
    return y,s,str(x)
""",
    "ifexp": """
@jit
def f(a, b):
    return (a if (a.sum()>b.sum()) else b)+1, [k for k in (a,b) if k.sum()>0], sum(v.sum() for v in (a,b)), max((a,b),key=lambda v: v.sum()), sorted([a,b],key=np.sum)[0], next(v for v in (a,b))*2
""",
    "isprox": """
class O: pass
o=O()
@jit
def f(a,b):
    o.x=a
    y=a+b
    o.y=y
    l=[y]
    d={'k':a}
    return o.x is a, o.y is y, l[0] is y, d['k'] is a, y is not a, l.index(y) if 0 else 0, a is b
""",
    "selfarg": """
@jit
def g(o):
    o['x']=o['x']*2+1
    o['l'][0]=o['x'].sum()
    return o
def f(a,b):
    d={'x':a,'l':[0]}; return g(d), g(d) is d
""",
    "stopiter": """
@jit
def f(a, b):
    x=a+b
    it=iter([x])
    next(it)
    return next(it, x*2), next(iter([]), x)
""",
    "sleepwhile": """
@jit
def f(a, b):
    i=0
    x=a
    while True:
        i+=1
        x=x*0.9+b
        if i>5: break
        if i%2: continue
        x=x-1
    else: x=0
    return x
""",
    "frozen": """
from dataclasses import dataclass
@dataclass(frozen=True)
class D: x: object=None
o=D()
@jit
def f(a,b): o.x=a+b
""",
    **{name: COLLECTIONS.replace("BODY", body) for name, body in {
        "c0": "u['k']=a+b",
        "c1": "dd['x'].append(a*2)",
        "c2": "dd['y']=a*3",
        "c3": "od['z']=b*2",
        "c4": "dq.append(a+1); dq.appendleft(b+1); dq[0]=a*9",
        "c5": "cm['q']=a*4",
        "c6": "l[0]=a*5; l.append(b*5)",
        "c7": "d['h']=a*6",
        "c8": "global l; l+= [a*7]",
        "c9": "d.update(v=a*8); d.setdefault('w', a*9)",
        "c10": "global d; d|={'g':a}",
        "c11": "c=Counter(); c['a']=a.sum(); c['a']+=1; return dict(c)",
        "c12": "pl[0]=a+b; pl.insert(0,1); pl[2]=a; pl.pop(0); pl.reverse()",
        "c13": "pd['a']=a+b; pd['b']=pd.pop('a'); pd.update(c=a*2); pd.setdefault('d',a*3); v=pd.get('b'); return v*2",
        "c14": "pl[0]=[a+b]; pl[0].append(a); pl.extend([a,b*2]); pl.append([a*3]); pl[0]+=[a*5]; del pl[2:]",
        "c15": "pl[:]=[a*2,b]; pl[0], pl[1] = pl[1], pl[0]; pl.append((a*2,)); pl.append({'x':a*2})",
    }.items()},
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_hooked_statements_behave_as_plain_ones(program: str) -> None:
    same(program)
