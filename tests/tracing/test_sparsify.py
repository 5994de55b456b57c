"""Dense matrices that are mostly zero: kept as compressed rows, with the behaviour of the matrix."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.errors import TraceError
from jitla.tracing import Sparsified, skipping_pays
from jitla.tracing.sparse import sparsify as sparsified
from jitla.tracing.sparse.sparsify import array_of, sparsified_rows

# What stands for a matrix that is mostly zero does what the matrix does, in traced code and elsewhere.

M, N = 90, 70


def matrix(dtype: str = "f8", seed: int = 1, density: float = 0.04) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = (rng.integers(-8, 9, (M, N)) / 4 * (rng.random((M, N)) < density) + 0.0).astype(dtype)
    x[3, 5], x[7, 0] = -0.0, 0.5
    return x


def both(x: np.ndarray) -> tuple[np.ndarray, Any]:
    """The array, and what stands for it."""
    made = sparsified_rows(x)
    assert made is not None and type(made) is Sparsified
    return x, made


def agree(found: Any, wanted: Any, rounding: bool = True) -> None:
    if isinstance(wanted, tuple):
        assert isinstance(found, tuple) and len(found) == len(wanted)
        for f, w in zip(found, wanted, strict=True):
            agree(f, w, rounding)
        return
    if type(found) is Sparsified:
        assert type(wanted) is np.ndarray and found.shape == wanted.shape and found.dtype == wanted.dtype
        found = array_of(found)
    assert type(found) is type(wanted), (type(found), type(wanted))
    if isinstance(wanted, np.ndarray):
        assert (found.dtype, found.shape, found.strides) == (wanted.dtype, wanted.shape, wanted.strides)
        assert found.flags.owndata == wanted.flags.owndata
    if isinstance(wanted, np.ndarray | np.generic) and rounding and wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-4 if wanted.dtype == "f4" else 1e-12)
    else:
        np.testing.assert_array_equal(found, wanted)


VECTORS = {"v": N, "u": M}


def operands(dtype: str, seed: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    made = {name: rng.integers(-9, 10, n) / 8 for name, n in VECTORS.items()}
    made |= {"V": rng.random((N, 3)), "U": rng.random((2, M)), "W": rng.random((M, N))}
    return {name: x.astype(dtype) for name, x in made.items()}


EXPRESSIONS = [
    "x @ v", "v @ x.T", "u @ x", "x.T @ u", "x @ V", "U @ x", "x.T @ U.T", "V.T @ x.T", "x.dot(v)",
    "np.dot(x, v)", "np.matmul(u, x)", "np.dot(U, x)", "x.T.dot(u)", "x.T @ (u * (x @ v))",
    "(x > 0.25) @ v", "(x * 2) @ v", "(x / 3) @ V", "abs(x) @ v", "np.sqrt(np.abs(x)) @ v",
    "np.minimum(x, 1) @ v", "u @ (x ** 2)", "np.log1p(np.abs(x)).T @ u", "(x != 0) @ np.ones(len(v))",
    "-x @ v", "(x + 1) @ v", "np.exp(x) @ v", "x * W", "x + W", "(x * -2) @ v", "x - x", "x @ x.T",
    "x.T @ x", "(x.T @ x) @ v", "x @ x.T @ u", "(x @ abs(x).T) * 2",
    "x.sum()", "x.sum(0)", "x.max(1)", "np.sum(x, axis=1)", "x.mean()", "np.count_nonzero(x)", "x[3]",
    "x[2:4, 1]",
    "x[x > 1]", "x.copy()", "x.astype('f4') @ v", "x.reshape(-1)[:9] + 1", "np.where(x > 0, x, 1)",
    "np.vstack([x, x])", "np.concatenate((x, W))", "len(x)", "x.shape", "x.size", "x.tolist()[3]",
    "np.asarray(x)[3] * 2", "list(x)[2] + 1", "float(x[7, 0])", "x.ravel()[5]", "np.linalg.norm(x)",
    "(x * 3)[7, :2]", "(x > 0).sum()", "(x * 2 + x).sum(1)", "x.nonzero()", "isinstance(x, np.ndarray)",
    "np.einsum('ij,j->i', x, v)", "x == 0", "np.isfinite(x).all()", "x @ v[:, None]", "x.T[3] @ u",
    "np.add.reduce(x, 0)", "np.multiply.outer(x[0], v[:3])", "round(float(x.max()), 2)",
    "x.flags.writeable is None",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_same_as_of_the_array(text: str, dtype: str) -> None:
    x, stands = both(matrix(dtype))
    given = operands(dtype)
    names: dict[str, Any] = {"np": np}
    exec(f"def f(x, v, u, V, U, W):\n    return {text}", names)
    f = names["f"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wanted = f(x, **given)
        for run in (f, jitla.jit(f, compile="sync")):
            for _ in range(2):
                agree(run(stands, **given), wanted)


@pytest.fixture
def products(monkeypatch):
    """Count products that leave zeros out."""
    seen = []

    def counting(x: Any, y: Any, **options: Any) -> Any:
        found = factors(x, y, **options)
        seen.append(found is not None)
        return found

    factors = sparsified._factors
    monkeypatch.setattr(sparsified, "_factors", counting)
    return seen


@pytest.mark.parametrize(("text", "left_out"), [
    ("x @ v", True), ("x.T @ u", True), ("u @ x", True), ("U @ x", True), ("(x > 1) @ v", True),
    ("np.log1p(abs(x)) @ v", True), ("(x * 2) @ v", True), ("np.maximum(x, -1) @ v", True),
    ("(x * -2) @ v", False), ("(x + 1) @ v", False), ("np.cos(x) @ v", False), ("(x >= 0) @ v", False),
    ("x @ (v / 0)", False), ("x @ (v * np.nan)", False), ("x @ (v * 1e308 * 9)", False),
    ("x @ v.astype(int)", False),
    ("(x / 0) @ v", False), ("np.power(x, 0) @ v", False), ("np.minimum(x, -1.0) @ v", False),
])
def test_zeros_are_left_out_where_that_is_sure(text: str, left_out: bool, products: list) -> None:
    x, stands = both(matrix())
    names: dict[str, Any] = {"np": np}
    exec(f"def f(x, v, u, U):\n    return {text}", names)
    f, given = names["f"], operands("f8")
    given = {k: given[k] for k in ("v", "u", "U")}
    for run in (f, jitla.jit(f, compile="sync")):
        products.clear()
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            found = run(stands, **given)
        with warnings.catch_warnings(record=True) as wanted:
            warnings.simplefilter("always")
            agree(found, f(x, **given))
        assert products[:1] == [left_out] or not left_out and not any(products)
        assert [(str(w.message), w.category, w.filename, w.lineno) for w in heard] == [
            (str(w.message), w.category, w.filename, w.lineno) for w in wanted]


def test_not_where_products_have_to_be_numpys(products: list) -> None:
    x, stands = both(matrix())
    v = operands("f8")["v"]
    product = jitla.jit(lambda x, v: x @ v, numerics="strict", compile="sync")
    assert (product(stands, v) == x @ v).all()
    with jitla.options(numerics="strict"):
        assert (stands @ v == x @ v).all()
    assert stands @ v is not None and products.pop()
    with np.errstate(under="warn"):  # whatever was in force the last time
        assert (stands @ v == x @ v).all()
    assert not any(products)
    assert stands.dot(v) is not None and products[-1]


def test_overflow_is_what_numpy_says() -> None:
    x, stands = both(matrix() * 1e200)
    v = np.full(N, 1e150)
    with np.errstate(all="ignore"):
        agree(stands @ v, x @ v)
    x[0] = 1e300
    with pytest.warns(RuntimeWarning, match="overflow encountered in matmul"):
        assert np.isinf(both(x)[1] @ np.full(N, 1e10)).any()


@pytest.mark.parametrize("write", [
    "x[0, 0] = 1", "x += 1", "x *= 2", "x[x > 0] = 0", "np.add(x, 1, out=x)", "x.sort()", "x.fill(3)",
    "x.T[0] = 2", "x[1:] = 0", "np.asarray(x)[0] = 3", "x.flags.writeable = True", "x.ravel()[0] = 1",
    "x.setflags(write=True)", "x.reshape(-1)[2] = 1", "np.copyto(x, 1)", "x.T.flags.writeable = True",
])
def test_nothing_writes_to_it(write: str) -> None:
    x, stands = both(matrix())
    before = x.tobytes()
    names: dict[str, Any] = {"np": np}
    exec(f"def f(x):\n    {write}", names)
    for run in (names["f"], jitla.jit(names["f"])):
        if "ravel" in write or "reshape" in write:
            with pytest.raises(ValueError, match="read-only"):
                run(stands)
        else:
            with pytest.raises(ValueError, match=r"read-only|WRITEABLE"):
                run(stands)
        assert array_of(stands).tobytes() == before


def test_what_is_made_of_it_is_an_array_of_its_own() -> None:
    def f(x: np.ndarray, v: np.ndarray) -> tuple:
        y = x * 2
        p = y @ v
        y[0] = 1
        t = y.T
        t[0] += 1
        y += 1
        z = abs(x)
        np.add(z, 1, out=z)
        return p, y @ v, y, z, z @ v

    x, stands = both(matrix())
    v = operands("f8")["v"]
    for run in (f, jitla.jit(f, compile="sync")):
        agree(run(stands, v), f(x, v))
    assert (stands == x).all()


def test_negative_zeros_and_elements_are_kept() -> None:
    x, stands = both(matrix())
    assert np.signbit(array_of(stands)[3, 5])
    doubled = stands * 2
    assert type(doubled) is Sparsified and array_of(doubled).tobytes() == (x * 2).tobytes()
    assert type(stands * -1) is np.ndarray and (stands * -1).tobytes() == (x * -1).tobytes()
    assert pickle.loads(pickle.dumps(stands)).tobytes() == x.tobytes()


def test_helpers_and_loops_get_it() -> None:
    def helper(x: Any, w: Any) -> Any:
        return x.T @ (x @ w)

    @jitla.jit(compile="sync")
    def descend(x: Any, w: Any) -> Any:
        for _ in range(4):
            w = w - 0.01 * helper(x, w)
        return w, x

    x, stands = both(matrix())
    w = operands("f8")["v"]
    found, same = descend(stands, w)
    assert same is stands
    agree(found, descend(x, w)[0])


def test_errors_are_numpys() -> None:
    x, stands = both(matrix())
    for text in ("x @ u", "x @ x", "np.dot(x, 'a')", "x + u", "x.nothing", "x @ 3", "float(x)", "bool(x)",
                 "hash(x)"):
        run = eval(f"lambda x, u: {text}", {"np": np})
        with pytest.raises(Exception) as wanted:
            run(x, operands("f8")["u"])
        for each in (run, jitla.jit(run)):
            with pytest.raises(type(wanted.value)) as found:
                each(stands, operands("f8")["u"])
            assert str(found.value) == str(wanted.value)


def thin(seed: int, density: float = 0.01, n: int = 400) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.random((n, n)) * (rng.random((n, n)) < density)


def test_products_of_two_stay_what_they_are_if_mostly_zero() -> None:
    (x, a), (y, b) = both(thin(1)), both(thin(2))
    v = np.linspace(1, 2, 400)
    for run in (lambda x, y: x @ y, lambda x, y: x.T @ y):
        for each in (run, jitla.jit(run, compile="sync")):
            found = each(a, b)
            assert type(found) is Sparsified
            agree(found, run(x, y))
    chain = jitla.jit(lambda x, y, v: (x @ y.T @ x) @ v, compile="sync")
    agree(chain(a, b, v), (x @ y.T @ x) @ v)


def test_products_of_two_that_are_full_are_arrays() -> None:
    (x, a), (y, b) = both(thin(1, 0.05)), both(thin(2, 0.05))
    agree(a @ b, x @ y)
    assert type(a @ b) is np.ndarray
    with jitla.options(numerics="strict"):
        assert (a @ b == x @ y).all()
    x[0, 0] = y[0, 0] = 1e300
    with np.errstate(over="ignore"):
        agree(both(x)[1] @ both(y)[1], x @ y)


def test_nonzeros_are_estimated_as_the_options_say() -> None:
    x, y = (sparsified.sketch_of(both(thin(seed))[1]._rows) for seed in (1, 2))
    wanted = np.count_nonzero(thin(1) @ thin(2))
    found = {}
    for method in ("meta", "worst", "mnc", "weighted"):
        with jitla.options(estimator=method):
            found[method] = sparsified.estimated_nonzeros(x, y)
    assert len(set(found.values())) == 4 and found["worst"] > 10 * wanted
    for method in ("meta", "mnc", "weighted"):
        assert found[method] == pytest.approx(wanted, rel=0.1)
    turned = sparsified.sketch_of(both(thin(1))[1].T._rows)
    assert (turned.rows == x.columns).all()


def test_what_pays() -> None:
    assert skipping_pays(10_000, 100, 1) and skipping_pays(10_000, 100, 64)
    assert not skipping_pays(10_000, 3000, 1) and not skipping_pays(10_000, 1000, 512)
    assert skipping_pays(1_000_000, 300_000, 1, loops=True)
    assert not skipping_pays(1_000_000, 600_000, 1, loops=True)
    assert not skipping_pays(10_000, 2_000, 1, loops=True)  # it is not worth beginning


STEPS = [
    "a = x * {k}", "a = abs(x)", "a = x > {k}", "a = np.sqrt(abs(x))", "a = np.clip(x, -{k}, {k})",
    "a = x.T.T",
    "a = np.minimum(x, {k})", "a = x ** 2", "a = x / {k}", "v = v + a.T @ u", "u = a @ v",
    "u = u * 0.5 + a @ v",
    "v = (u @ a) / 9", "V = V + (a.T @ U.T)[:, :1]", "a = x - {k}", "v = np.tanh(v)", "a = a * {k}",
    "u = u + a.sum(1)", "a = a.copy(); a[2] = {k}", "U = (a @ V).T[:2] / 50", "a = np.sign(a)", "a = -a",
]


def program(seed: int) -> str:
    rng = np.random.default_rng(seed)
    lines = [STEPS[rng.integers(len(STEPS))].format(k=rng.choice([0.5, 2, 1, 0.25, 3]))
             for _ in range(rng.integers(2, 9))]
    body = "\n    ".join(["a = x", *lines, "return a, u, v, U, V"])
    return f"def f(x, v, u, V, U):\n    {body}"


def differs(seed: int) -> None:
    """Raise if a random program does not give the same."""
    dtype = ("f4", "f8")[seed % 2]
    x, stands = both(matrix(dtype, seed))
    given = operands(dtype, seed)
    del given["W"]
    names: dict[str, Any] = {"np": np}
    exec(program(seed), names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted = names["f"](x, **given)
        except TypeError as error:  # a negative of bools
            with pytest.raises(TypeError, match=str(error)[:20]):
                jitla.jit(names["f"])(stands, **given)
            return
        for run in (names["f"], jitla.jit(names["f"], compile="sync")):
            found = run(stands, **given)
            for f, w in zip(found, wanted, strict=True):
                assert f.dtype == w.dtype and f.shape == w.shape and f.strides == w.strides, program(seed)
                size = float(np.abs(w[np.isfinite(w)]).max(initial=1))
                np.testing.assert_allclose(
                    np.asarray(f, float), np.asarray(w, float), rtol=1e-3 if dtype == "f4" else 1e-9,
                    atol=size * (1e-4 if dtype == "f4" else 1e-11), err_msg=program(seed))


@pytest.mark.parametrize("seed", range(25))
def test_random_programs(seed: int) -> None:
    differs(seed)


# Which matrices are kept as compressed rows.


def scattered(density: float, dtype: str = "f8") -> np.ndarray:
    x = np.zeros((400, 300), dtype)
    x.ravel()[np.random.default_rng(0).choice(x.size, int(density * x.size), replace=False)] = 1.5
    return x


@pytest.mark.parametrize(("x", "kept"), [
    (scattered(0.01), True), (scattered(0.0), True), (scattered(0.01, "f4"), True), (scattered(0.01).T, True),
    (np.asfortranarray(scattered(0.01)), True), (scattered(0.01)[::2, ::-1], False), (scattered(0.5), False),
    (scattered(0.01)[:9], False), (scattered(0.01).astype(int), False),
    (scattered(0.01).astype(complex), False),
    (scattered(0.01).ravel(), False), (scattered(0.01) - 0.0, True), (scattered(0.01) * -1, False),
    (np.where(scattered(0.01) > 0, np.nan, 0), False), (np.where(scattered(0.01) > 0, np.inf, 0), False),
    (np.asmatrix(scattered(0.01)), False), (np.ma.array(scattered(0.01)), False),
    (scattered(0.01).astype(">f8"), False),
])
def test_kept_where_it_pays_and_is_the_same(x: np.ndarray, kept: bool) -> None:
    found = jitla.sparsify(x)
    assert (type(found) is Sparsified) == kept
    if not kept:
        assert found is x
        return
    assert found is jitla.sparsify(found) and not found.flags.writeable and found.strides == x.strides
    assert np.asarray(found).tobytes("A") == x.tobytes("A")
    v = np.random.default_rng(1).random(x.shape[1]).astype(x.dtype)
    np.testing.assert_allclose(found @ v, x @ v, rtol=1e-5)


def test_strided_matrices_are_copied() -> None:
    x = np.zeros((1200, 900))[::3, ::3]
    x[5, 7] = 2.0
    found = jitla.sparsify(x)
    assert type(found) is Sparsified and (found == x).all()
    x[5, 7] = 3.0
    assert found[5, 7] == 2.0


def test_only_arrays_can_be_looked_at() -> None:
    for wrong in ([[0.0]], "x", None):
        with pytest.raises(TraceError, match="sparsify needs an ndarray"):
            jitla.sparsify(wrong)  # type: ignore[arg-type]


def test_inside_of_a_decorated_function() -> None:
    @jitla.jit
    def f(x: np.ndarray, v: np.ndarray) -> tuple:
        y = jitla.sparsify(x * 2)
        return y @ v, type(y) is np.ndarray

    x, v = scattered(0.01), np.arange(300.0)
    np.testing.assert_allclose(f(x, v)[0], (x * 2) @ v)
