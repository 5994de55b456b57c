"""NumPy functions and where they write."""

# ruff: noqa: E501 - programs are as users write them
from __future__ import annotations

import numpy as np
import pytest

import jitla
from tests.tracing.sameness import same

PROGRAMS = {
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


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_same(program: str) -> None:
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
