"""NumPy functions on pending arrays: results, errors, writes, functions written in Python."""

# ruff: noqa: E501 - programs are as users write them

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import jitla
from tests.tracing.sameness import same

# Calls of NumPy on proxies: kinds of operands, results, errors.

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
def test_numpy_functions_give_numpys_results(program: str) -> None:
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


# NumPy functions and where they write.

FUNCTIONS_PROGRAMS = {
    "rounded": """
@jit
def f(a, b):
    x=a*31.4159
    m=np.outer(a,b)*9
    return np.round(x)+1, x.round(2), np.around(x,decimals=-1)*b, np.round(m), np.round(m,1), m.T.round(), x.round(9)
""",
    "integerpowers": """
@jit
def f(a, b):
    i=(a*1000).astype(np.int32)
    u=i.astype(np.uint8)
    return i**3, i**4+1, u**3, np.power(u,4)*2, i**5, i[0]**3, pow(i,3)
""",
    "outpos": """
@jit
def f(a, b):
    x=a+b
    o=np.empty(6)
    r=np.add(x,1,o)
    s=np.sqrt(np.abs(x),o[::-1])
    np.multiply(o,2,out=o)
    return x,o,r is o, s
""",
    "outself": """
@jit
def f(a, b):
    x=a+b
    r=np.add(x,1,out=x)
    y=x*2
    np.exp(x, x)
    return x,y,r is x
""",
    "outkw": """
@jit
def f(a, b):
    o=a*1
    y=o+b
    np.copyto(dst=o,src=b)
    z=o*2
    np.nan_to_num(o,copy=False,nan=1)
    np.clip(o,-1,1,o)
    np.cumsum(b,0,None,o)
    w=o+1
    np.take(b,[0,1,2,3,4,5],0,o)
    np.dot(np.outer(a,b),b,o)
    np.round(b,1,o)
    np.median(o,overwrite_input=True)
    return o,y,z,w
""",
    "outforeign": """
class O:
    def __init__(s): s.x=np.arange(6.); s.y=np.ones(6)
@jit
def f(a,b):
    o=O()
    y=o.x*a
    np.cumsum(o.y,0,None,o.x)
    z=o.x*a
    np.nan_to_num(o.x,False)
    np.add(o.y,1,o.x)
    w=o.x*a
    np.put(o.x,[0],5); np.place(o.x,o.x>3,1)
    v=o.x+a
    np.fill_diagonal(o.x.reshape(2,3),8)
    np.clip(o.x,0,1,out=o.x)
    u=o.x+a
    o.x.sort(); o.x[::-1].sort(); o.x.partition(2);
    t=o.x+a
    np.random.default_rng(1).shuffle(o.x)
    s=o.x+a
    o.x.put([1],[3]); o.x.fill(2)
    np.add.at(o.x,[0],1); np.multiply.at(o.x,[1,1],2)
    r=o.x*a
    np.einsum('i,i->i',o.y,o.y,out=o.x)
    q=o.x*a
    o.x.sum(out=np.zeros(())) ; o.y.cumsum(0,None,o.x); o.y.cumsum(out=o.x);
    return y,z,w,v,u,t,s,r,q,o.x
""",
    "methout": """
@jit
def f(a, b):
    x=a+b
    o=np.zeros(6)
    x.clip(0,1,o)
    y=o+1
    x.cumsum(out=o)
    z=o+1
    x.round(1,o)
    t=np.zeros(())
    x.sum(out=t)
    x.dot(np.eye(6),o)
    x.take([0]*6,out=o)
    x.mean(out=t)
    return o,y,z,t, x.max(out=t) is t
""",
    "outerr": """
@jit
def f(a, b):
    o=np.empty(3)
    np.add(a+b,1,out=o)
""",
    "cumsum": """
@jit
def f(a, b):
    x=a+b
    return np.cumsum(x),x.cumsum(),np.cumprod(x),x.cumprod(),x.cumprod(0,None,np.empty(x.shape)),np.cumprod(np.outer(x,a),1)*2,np.cumprod(np.outer(x,a).T,-2),np.cumprod(x>0),np.cumprod(x*1j),np.diff(x),np.gradient(x),np.trapezoid(x),np.convolve(x,a),np.interp(x,a,b),np.histogram(x),np.percentile(x,30),np.median(x),np.unique(x),np.sort(x),np.argsort(x),x.argsort(),np.searchsorted(np.sort(x),a)
""",
    "npmisc": """
@jit
def f(a, b):
    x=a+b
    return np.isscalar(x.sum()), np.ndim(x), np.size(x), np.shape(x), np.result_type(x,np.float32(1)), np.can_cast(x.dtype,'f4'), np.iterable(x), np.may_share_memory(x,a), np.shares_memory(x,x), np.array_equal(x,x), np.allclose(x,x+1e-12), np.isclose(x,a), np.round(np.linalg.norm(x), 9), np.linalg.solve(np.eye(6)*2,x), np.fft.fft(x), np.round(np.einsum('i,i',x,a), 9), np.einsum('ii->i',np.outer(x,a)), np.tensordot(x,a,1), np.kron(x,a)[:3], np.save.__name__, np.array2string(x), np.issubdtype(x.dtype,np.floating), np.iinfo((x>0).astype(int).dtype).max, np.nonzero(x), np.argwhere(x>0), np.take(x,[0,1]), x.take([1]), np.put_along_axis.__name__, np.roll(x,1), np.tile(x,2), np.repeat(x,2), x.repeat(2), np.pad(x,1), np.trace(np.outer(x,x)), np.select([x>0],[x]), np.piecewise(x,[x>0],[lambda v: v*2, 0]), np.meshgrid(x,a), np.ix_([0],[1]), np.nan_to_num(x), np.real(x), np.around(x,1), x.round(1), np.ptp(x), np.average(x,weights=np.abs(a)), np.round(np.cov(x,a),9), np.cross(x[:3],a[:3]), np.flip(x), np.lexsort((x,a)), np.digitize(x,np.sort(a)), np.bincount((x>0).astype(int)), np.polyfit(a,x,1), np.polyval([1,2],x), np.squeeze(x[None]), np.expand_dims(x,0), np.broadcast_to(x,(2,6)), np.moveaxis(np.outer(x,a),0,1), np.split(x,2), np.array_split(x,4), np.block([[x],[a]]), np.isin(x,a), np.count_nonzero(x>0), np.extract(x>0,x), np.copyto.__name__, np.vander(x[:2]), np.tril(np.outer(x,a)), np.unwrap(x), np.sinc(x), np.i0(x), np.quantile(x,.5), np.nanmean(x), np.nansum(x), np.cumprod(x), np.ediff1d(x), np.emath.sqrt(x), np.apply_over_axes(np.sum,np.outer(x,a),[0]), np.diagonal(np.outer(x,a)), np.diag(x), np.triu_indices(2), np.indices((2,2))
""",
    "arrfn": """
@jit
def f(a, b):
    x=a+b
    return np.array(x), np.asarray(x) is x, np.array(x,copy=False) is x, np.array([x,x]), np.asarray(x,dtype='f4'), np.array([x.sum(),1]), np.stack([x,a]), np.vstack((x,a)), np.hstack([x,[1.]]), np.column_stack([x,a]), np.array(x.tolist()), np.asarray([x.sum(), a.sum()]), np.array(x.sum()), np.asfortranarray(x), np.require(x, requirements='C') is x, np.ascontiguousarray(x) is x
""",
    "layers": """
@jit
def f(a, b):
    x=a+b; m=np.outer(x,a)
    return np.dstack([x,a]), np.dstack((m,m*2)), np.dstack([m[:,:,None],m.T]), np.tril(m,-1), np.triu(m*2,2), np.triu(np.stack([m,m]),k=-1), np.tril(m).sum(axis=1), np.triu(x), np.tril(m>0).dtype
""",
    "vectorize": """
@jit
def f(a, b):
    g=np.vectorize(lambda p,q: p+q if p>0 else p-q)
    return g(a+b, a)
""",
    "aaa": """
@jit
def f(a, b):
    x=np.outer(a,b)
    return np.apply_along_axis(lambda r: r-r.mean(), 1, x), np.apply_along_axis(np.sum, 0, x)
""",
    "frompyfunc": """
@jit
def f(a, b):
    g=np.frompyfunc(lambda p,q: p+q, 2, 1)
    return g(a+b, a), g.reduce(a+b)
""",
    "fromiter": """
@jit
def f(a, b):
    return np.fromiter((v*2 for v in a+b), float), np.fromiter(iter(a*b), dtype=np.float32)
""",
    "steps": """
def tried(f, *args):
    try:
        return f(*args)
    except (TypeError, ValueError) as error:
        return type(error), str(error)
@jit
def f(a, b):
    kept=[]
    x=a*2
    for stack in (np.vstack, np.hstack, np.column_stack, np.stack, np.dstack):
        kept.append(tried(stack, (v for v in (x, b))))
        kept.append(tried(stack, map(np.sin, (x, b))))
    try:
        np.vstack(np.arange(3) for _ in range(2))
    except TypeError as error:
        kept.append(str(error))
    try:
        np.concatenate(v for v in (x, b))
    except TypeError as error:
        kept.append(str(error))
    return kept, np.sum([v for v in x]), np.ndim(v for v in b)
""",
    "einsumones": """
@jit
def f(a, b):
    m=np.outer(a, b)
    return (np.einsum('ij,ij->j', m, m[:1]), np.einsum('ij,j->i', m, b[:1]), np.einsum('i,i', a, b[-1:]),
            np.einsum('ij,jk', m[:, :1], m), np.einsum('ij,ik->ijk', m[:1], m)+1)
""",
    "rng": """
@jit
def f(a, b):
    r=np.random.default_rng(3)
    x=r.normal(a+b, np.abs(a))
    r.shuffle(x)
    y=x*2
    r.shuffle(y)
    return x, y, r.permutation(a*2), r.choice(a+b, 3), r.normal(size=3)+x[:3]
""",
    "rng2": """
@jit
def f(a, b):
    r=np.random.RandomState(3)
    x=a*2
    r.shuffle(x)
    return x, r.randn(3)*x[:3]
""",
}


@pytest.mark.parametrize("program", FUNCTIONS_PROGRAMS.values(), ids=FUNCTIONS_PROGRAMS)
def test_functions_that_write(program: str) -> None:
    same(program)


def test_running_products_and_products_over_several_axes_are_recorded():
    @jitla.jit(compile="sync")
    def f(t, x):
        return np.cumprod(x * 2) + 1, (x + 1).cumprod(axis=0), np.tensordot(t * 2, t + 1, ((1, 2), (0, 1)))

    t, x = np.random.default_rng(1).random((5, 5, 5)), np.arange(4.0)
    for _ in range(3):
        for found, wanted in zip(f(t, x), f.__wrapped__(t, x), strict=True):
            assert found.tobytes() == wanted.tobytes()
    assert f.stats().fallbacks == 0


# NumPy's functions that NumPy writes in Python: jitted as plain, for operands of many kinds.

SUMS = [f"np.{name}(a{options})" for name in ("nansum", "nanmean", "nanvar", "nanstd", "nanmin", "nanmax")
        for options in ("", ", axis=0", ", -1, keepdims=True", ", axis=(0, 1)", ", axis=7")]
CALLS = [
    "np.nanvar(a, 0, None, None, 1)", "np.nanstd(a, ddof=40)", "np.nansum(a, out=np.zeros(6), axis=0)",
    "np.nanmean(a, where=a > 0)", "np.nanmean(a[:0], axis=0)", "np.nanmean(a, axis=0) + 1",
    "np.nan_to_num(a * 2)", "np.nan_to_num(a, nan=-1.0, posinf=3, neginf=0) + 1",
    "np.average(a)", "np.average(a, axis=0, weights=b)", "np.average(a, axis=0, weights=b[:, 0])",
    "np.average(a, weights=b * 0)", "np.average(a, axis=-1, keepdims=True, weights=b)",
    "np.cov(a)", "np.cov(a, rowvar=False)", "np.corrcoef(a[0])",
    "np.round(np.corrcoef(a.ravel(), b.ravel()), 9)",
    "np.polyval([1, 2, 3], a)", "np.polyval(b.ravel()[:3], a * 2)", "np.polyval([], a)",
    "np.polyval(np.array([1, 2], 'f4'), a)", "np.trapezoid(a.ravel(), b.ravel())", "np.trapezoid(a, b)",
    "np.trapezoid(a[0], dx=.5) + 1", "np.select([a > 0, a < -1], [a, b], 0)",
    "np.select([a > 0, a < -1], [1, 2])", "np.select([a > 0, b > 0], [1, 2.5], 3)",
    "np.select([a > 0], [a], b)", "np.select([a], [1])", "np.zeros_like(a)",
    "np.zeros_like((a * 2).T) + 1", "np.ones_like(a * 2, dtype=int)",
    "np.full_like(a * 2, 3)", "np.full_like(a, b[0, 0])", "np.zeros_like(a * 2, shape=(3,))",
    "np.zeros_like(a, order='F')", "np.squeeze(a[:1] * 2)", "np.squeeze(a[:1, :1])", "np.flip(a) + 1",
    "np.flip(a * 2, -1)", "np.flip(a, 3)", "np.fliplr(a) * b", "np.fliplr(a[0])", "np.flipud(a)",
    "np.vdot(a[0], b[0])", "np.vdot(a, b)", "np.split(a * 2, 2)[1] + 1", "np.split(a, [1, 9], axis=1)",
    "np.split(a, 5)",
]
COMPARED = [
    "np.isclose(a, b)", "np.isclose(a * 2, b, atol=1, rtol=0) & (a > 0)",
    "np.isclose(a, a * (1 + 1e-6))", "np.isclose(a, 0)", "np.isclose(0.5, a, 1)",
    "np.isclose(a, a, equal_nan=True)",
    "np.isclose(a, b[0])", "np.isclose(a, b[:3])", "np.isclose(a, np.nan)", "np.isclose(a, b, rtol=np.nan)",
    "np.isclose(a > 0, b)", "np.isclose(b, (a * 3 > 1).astype('i1'))", "np.isclose(a, a * 1e308)",
    "np.isclose(a * 1j, b)", "np.isclose(a[:0], b[:0])", "np.allclose(a, a + 1e-9)", "np.allclose(a, b)",
    "np.allclose(a * 2, a + a, equal_nan=True)", "np.array_equal(a * 2, a + a)", "np.array_equal(a, b)",
    "np.array_equal(a, b[:2])", "np.array_equal(a, a, equal_nan=True)", "np.array_equiv(a, a[:1])",
    "np.array_equiv(a, b)", "np.array_equal(a, 'word')", "np.cross(a[:, :3], b[:, 3:])",
    "np.cross(a[:, :3], b)",
    "np.cross(a[:, :3] * 2, b[:, :3]) + 1", "np.cross(a[0, :3], b[0, :3])", "np.cross(a[:3], b[:3], axis=0)",
    "np.cross(a[:, :3] * 1e200, b[:, :3] * 1e200)", "np.round(np.vecdot(a, b), 9)", "np.vecdot(a, b[:, 1:])",
    "np.round(np.vecdot(a[None] * 2, b[None]), 9)", "np.vecdot(a, b, axis=0)", "np.round(np.sinc(a * 2), 5)",
    "np.round(np.sinc(a - a), 9)", "np.round(np.sinc(a * 1e-320), 9)", "np.ptp(a)", "np.ptp(a * 1e308)",
    "np.ptp(a * 2, keepdims=True)", "np.ptp(a - np.inf)",
]
FORMS = {
    "single": "normal.astype('f4')", "missing": "missing", "integers": "(normal * 3).astype(int)",
    "infinite": "infinite", "spread": "np.broadcast_to(missing[:1], (4, 6))",
    "reversed and down": "np.asfortranarray(missing)[::-1, ::-1]",
    "zeros": "np.array([[0.0, -0.0, 1, 2, -0.0, 3]] * 4)",
}
HEAD = """
normal = np.random.default_rng(3).standard_normal((4, 6))
missing, infinite = normal.copy(), normal.copy()
missing[1, 2] = missing[2, 3] = np.nan
infinite[[1, 2, 3], [1, 1, 3]] = np.inf, -np.inf, np.inf
def make(): return {form}, normal
"""


@pytest.mark.parametrize("name", FORMS)
def test_they_mean_what_numpy_means(name: str):
    alike(name, SUMS + CALLS)


@pytest.mark.parametrize("name", ["single", "integers", "infinite", "spread"])
def test_arrays_are_compared_as_numpy_compares_them(name: str):
    alike(name, COMPARED)


def alike(name: str, calls: list[str]) -> None:
    """Fail if one of the calls gives anything else jitted than plain."""
    lines = []
    for call in calls:
        lines += ["    try:", f"        found.append({call})", "    except Exception as error:",
                  "        found.append((type(error), str(error)))"]
    program = ["@jit", "def f(a, b):", "    found = []", *lines, "    return found", ""]
    same(HEAD.format(form=FORMS[name]) + "\n".join(program), calls=1)


def test_they_are_no_reason_to_leave_loops():
    """Nothing is handed to NumPy, and what is in memory is read by kernels."""
    def f(x, y):
        clean = np.nan_to_num(x * y)
        level = np.nanmean(x) + np.average(x, weights=y)
        return np.polyval([2, 1, 0], clean) - level, np.select([x > level, y > 0.5], [1.0, 2.0], 3.0)

    rng = np.random.default_rng(0)
    given = rng.random(5000), rng.random(5000)
    fast = jitla.jit(f, compile="sync")
    for one, other in zip(fast(*given), f(*given), strict=True):
        assert np.array_equal(one, other)
    assert fast.stats()["fallbacks"] == 0 and fast.stats()["kernel_runs"] > 2


@pytest.mark.parametrize("dtype", ["i1", "u1", "u8", "f2", "f4"])
def test_numbers_to_choose_are_cast_as_numpy_casts_them(dtype: str):
    """It makes arrays of them: what does not fit wraps around, is refused, or warns where it is chosen."""
    calls = [f"np.select([a > 1, a > 100], [a, {n}], {m})"
             for n, m in ((3, 0), (300, 7), (-3, 0), (1e300, 0), (np.pi, -1), (2**70, 0))]
    lines = []
    for call in (*calls, "np.average(a, axis=5)", "np.average(a, weights=a, axis=(0, 5))",
                 "np.average(a, axis=(0, -2))", "np.nan_to_num(a, nan=None)"):
        lines += ["    try:", f"        found.append({call})", "    except Exception as error:",
                  "        found.append((type(error), str(error)))"]
    make = f"def make(): return (np.arange(6).reshape(2, 3).astype('{dtype}'),)"
    same("\n".join([make, "@jit", "def f(a):", "    found = []", *lines, "    return found", ""]), calls=1)
