"""Calls of NumPy on proxies: kinds of operands, results, errors."""

# ruff: noqa: E501 - programs are as users write them
from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import jitla
from tests.tracing.sameness import same

PROGRAMS = {
    "masked": """
@jit
def f(a, b):
    y=a+b
    z=b*2+a
    w=(b+1)*a
    w+=b
    a[0]=b[1]+b[2]
    return y,z,w,np.ma.masked_where(b>1,b*2), np.ma.sum(a*b), (b*2).view(np.ma.MaskedArray)
def make():
    return np.ma.array([1.,2.,3.],mask=[0,1,0]), np.arange(3.)
""",
    "matrix": """
@jit
def f(a, b):
    return a*b, b@a, a@b, np.asmatrix(b+1), b*a, (b+1)*a, a.I*(b*3)
def make():
    return np.matrix([[1.,2.],[3.,4.]]), np.eye(2)
""",
    "subclass": """
class S(np.ndarray): pass
@jit
def f(a, b):
    y=a+b
    z=(b*2)+a
    b2=b*2
    b2+=a
    return y,z,b2,(b*2).view(S),np.asanyarray(b+1),(b+1).view(type=S), type(a+b).__name__
def make():
    return np.arange(3.).view(S), np.arange(3.)
""",
    "subclass2": """
class U:
    __array_priority__=10
    def __init__(s,v): s.v=v
    def __array_ufunc__(s,u,m,*i,**k): return ('uf',u.__name__,m,[type(x).__name__ for x in i])
    def __array_function__(s,f,t,a,k): return ('fn',f.__name__)

@jit
def f(a, b):
    return (b+1)+a, np.add(b*2,a), (b*2).dot(1), np.sum(a)
def make():
    return U(np.arange(3.)), np.arange(3.)
""",
    "radd": """
class U:
    __array_ufunc__=None
    def __radd__(s,o): return 'radd '+type(o).__name__
    def __rmul__(s,o): return 'rmul'
    def __add__(s,o): return 'add'
    def __rmatmul__(s,o): return 'rm'
    def __eq__(s,o): return 'eq'
    __hash__=None

@jit
def f(a, b):
    return (b+1)+a, (b+1)*a, a+(b+1), (b*2)@a, (b*2)==a, (b+1).sum()+a
def make():
    return U(), np.arange(3.)
""",
    "radd2": """
class U:
    def __radd__(s,o): return 'radd '+type(o).__name__
    def __rsub__(s,o): return 'rsub'

@jit
def f(a, b):
    return (b+1)+a, (b*2)-a, (b+1).sum()+a
def make():
    return U(), np.arange(3.)
""",
    "arraylike": """
class U:
    def __array__(s,dtype=None,copy=None): return np.array([1.,2.,3.])

@jit
def f(a, b):
    return (b+1)+a, np.add(b*2,a), np.sum(a), a*1 if 0 else 1
def make():
    return U(), np.arange(3.)
""",
    "object2": """
@jit
def f(a, b):
    y=b*2+a
    z=a*(b+1)
    a+=b
    w=b*1
    w+=a.astype(float)
    return y,z,a,w,(b+1).astype(object),[type(v).__name__ for v in (b+1).astype(object)]
def make():
    return np.array([1,2,3],dtype=object), np.arange(3.)
""",
    "str": """
@jit
def f(a, b):
    return a=='x', np.char.add(a,'q'), b[a=='x']+1, (b*2).astype(str), np.where(b>1,a,'n')
def make():
    return np.array(['x','yy','z']), np.arange(3.)
""",
    "datetime": """
@jit
def f(a, b):
    d=a-a[0]
    x=b*2
    return d, d/np.timedelta64(1,'D')+x, a+(b*2).astype('m8[D]'), (x+1).astype(int)+np.array([1,2],'m8[s]'), a>a[0]
def make():
    return np.array(['2020-01-01','2021-01-05'],dtype='M8[D]'), np.arange(2.)
""",
    "struct": """
@jit
def f(a, b):
    a['x']=b+1
    a['x']+=b*2
    y=a['x']*b
    a['i'][0]=7
    a[0]=(5,6.)
    r=a.view(np.recarray)
    r.x=b*5
    return a,y,a['x'].sum(),r.x
def make():
    return np.array([(1,2.),(3,4.)],dtype=[('i','i4'),('x','f8')]), np.arange(2.)
""",
    "f16": """
@jit
def f(a, b):
    y=a*2
    y+=b
    return y,a+b,(a*3).sum(),(a*3).mean(),a+np.float32(1),a*1e10,np.exp(a), a.astype('f4')+b
def make():
    return np.arange(3).astype('f2'), np.arange(3.)
""",
    "ld": """
@jit
def f(a, b):
    y=a*2
    y+=b
    return y,a+b,(b*a).sum(),b+np.longdouble(1), (b+1).astype('g')
def make():
    return np.arange(3).astype('g'), np.arange(3.)
""",
    "memmap": """
import tempfile
def _mm():
    m=np.memmap(tempfile.TemporaryFile(),dtype='f8',mode='w+',shape=(3,)); m[:]=[1,2,3]; return m

@jit
def f(a, b):
    y=a*2+b
    a[:]=b*3
    a+=1
    b[:]=a*2
    return type(y).__name__,y,a,type(a[1:]).__name__,a.sum(), type(np.exp(a)).__name__
def make():
    return _mm(), np.arange(3.)
""",
    "frombuffer": """
@jit
def f(a, b):
    y=a*2+b
    a[:]=b*3
    a+=1
    return y,a,a.sum()
def make():
    return np.frombuffer(bytearray(24)), np.arange(3.)
""",
    "hugeint": """
@jit
def f(a, b):
    r=[]
    for k in (2**63, 2**64, -2**63, 2**100, -2**63-1):
        for x in (a*1,b*1,(a*1).astype('u8'),(a*1).astype('i1'), a.sum(), b.sum(), a>1):
            for op in ('+','*','==','<','&'):
                try: r.append(eval('x'+op+'k',{'x':x,'k':k}))
                except Exception as e: r.append((type(e).__name__,str(e)))
    return r
def make():
    return np.arange(3), np.arange(3.)
""",
    "hugeint2": """
@jit
def f(a, b):
    r=[]
    for k in (2**63, 2**64, -2**63, 2**100, 300, -1):
        for x in (a*1,b*1,(a*1).astype('u8'),(a*1).astype('i1'), a.sum(), b.sum(), a>1):
            for op in (lambda p,q:p+q, lambda p,q:q*p, lambda p,q:p==q, lambda p,q:p<q, lambda p,q: p&q, lambda p,q: p**q if abs(q)<5 else 0, lambda p,q: q-p, lambda p,q: np.maximum(p,q), lambda p,q: np.where(p>0,p,q), lambda p,q: np.clip(p,q,q), lambda p,q: p//q, lambda p,q:p%q, lambda p,q:p<<q if abs(q)<70 else 0):
                try: r.append(op(x,k))
                except Exception as e: r.append((type(e).__name__,str(e)))
    return r
def make():
    return np.arange(3), np.arange(3.)
""",
    "sparse": """
from scipy import sparse
def _sp(): return sparse.csr_array(np.array([[1.,0,2],[0,0,3],[4,0,0]]))
@jit
def f(a, b):
    y=a@b
    z=a*2
    w=a.T@(b+1)
    u=a.multiply(b+1)
    v=a+a
    t=(b+1)@a
    q=a.dot(b*2)
    b2=b*1
    b2+=a@b
    return y,z.toarray(),w,u.toarray(),v.toarray(),t,q,b2,a.sum(axis=1),type(a).__name__,(b*2)*a if 0 else 1
def make():
    return _sp(), np.arange(3.)
""",
    "sparsem": """
from scipy import sparse
def _sp(): return sparse.csr_matrix(np.array([[1.,0,2],[0,0,3],[4,0,0]]))
@jit
def f(a, b):
    y=a@b
    z=a*(b+1)
    w=(b+1)*a
    t=(b+1)@a
    return y,z,w,t,a.sum(axis=1),(b+1)*a.T, a.sum()*b
def make():
    return _sp(), np.arange(3.)
""",
    "intdiv0": """
def make(): return np.array([1,0,3]), np.array([0,2,0])

@jit
def f(a, b):
    return a//b, a%b, b//0, 1//b, a//1, (a.sum())//0 if 0 else 1, -a, a**2, a/b
""",
    "pownegerr": """
def make(): return np.array([1,0,3]), np.array([0,2,0])

@jit
def f(a, b):
    x=a+1
    return x**-1
""",
    "shifterr": """
@jit
def f(a, b):
    x=a+b
    return x<<1
""",
    "booladd": """
def make(): return np.array([True,False]), np.array([True,True])

@jit
def f(a, b):
    r=[a+b,a*b,a&b,a|b,a^b,~a,a.sum(),a.mean(),a==b,a<b,a/b,a+1,a*2.,a+True,a.sum()+True, a.any()+1, a.all() & True, (a.any() and b.all())]
    try: a-b
    except TypeError as e: r.append(str(e))
    try: -a
    except TypeError as e: r.append(str(e))
    return r
""",
    "exc4": """
@jit
def f(a, b):
    x=a*b
    x=x+1

    y = x @ np.ones((5,5))
    return y
""",
    "ufmeth": """
@jit
def f(a, b):
    x=a+b
    np.add.at(x,[0,0,1],1)
    return x,np.add.reduce(x),np.add.accumulate(x),np.multiply.outer(x,a),np.add.reduceat(x,[0,3]),np.maximum.reduce([a,b,x]),np.subtract.reduce(x), np.logical_or.reduce(x>0)
""",
    "ufat2": """
@jit
def f(a, b):
    y=a*1
    z=y+b
    np.add.at(y,[0,0,1],b[:3])
    return y,z
""",
    "outtuple": """
@jit
def f(a, b):
    x=a+b
    f_,i_=np.empty(6),np.empty(6)
    r=np.modf(x,f_,i_)
    r2=np.modf(x, out=(f_,None))
    return f_,i_,r[0] is f_, r2[1], np.divmod(x,2), np.frexp(x)
""",
    "where": """
@jit
def f(a, b):
    x=a+b
    o=np.zeros(6)
    np.add(x,1,out=o,where=x>0)
    return o, np.add.reduce(x, where=x>0), np.sum(x, where=x>0, initial=3)
""",
    "saveload": """
@jit
def f(a, b):
    import io
    x=a+b
    f_=io.BytesIO()
    np.save(f_,x); np.savez(f_,x=x)
    f_.seek(0)
    s=io.StringIO(); np.savetxt(s,x)
    return np.load(f_), s.getvalue()
""",
    "testing": """
@jit
def f(a, b):
    x=a+b
    np.testing.assert_allclose(x,b+a)
    np.testing.assert_array_equal(x,x)
    try: np.testing.assert_allclose(x,x+1)
    except AssertionError as e: m=str(e)
    return m
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_same(program: str) -> None:
    same(program)


ZEROS = np.array([-0.0, 0.0, -2.0, 2.0, np.nan, 1.0])
BOUNDS = [-0.0, np.float64(0.0), np.array(-0.0), ZEROS[[1]], ZEROS[[0]], ZEROS[::-1].copy(), ZEROS[:, None],
          ZEROS.astype("f4")]


@pytest.mark.parametrize("x", [ZEROS, ZEROS[:1], ZEROS[:, None] * np.ones(40), ZEROS.astype("f4")],
                         ids=lambda x: f"{x.shape} {x.dtype}")
def test_limits_that_equal_a_zero_give_it_the_sign_numpy_gives_it(x):
    def limited(x, low, high):
        return np.clip(x, low, high)

    fast = jitla.jit(limited)
    tried = 0
    for low, high in product(BOUNDS, repeat=2):
        try:
            wanted = limited(x, low, high)
        except ValueError:
            continue  # shapes that do not fit
        made = fast(x, low, high)
        assert made.dtype == wanted.dtype and np.array_equal(made, wanted, equal_nan=True)
        known = ~np.isnan(wanted)
        assert (np.signbit(made) == np.signbit(wanted))[known].all(), (low, high)
        tried += 1
    assert tried > 20
