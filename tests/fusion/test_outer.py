"""Plans of products with wide matrices: what joins their rows, and what is left to BLAS."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.fusion import Facts, InterpretedBackend, Layout, RowKernel, all_layouts, plan, structure
from jitla.fusion.memo import Memo
from jitla.hops import Hop, Meta, apply, leaf, make

F8 = np.dtype("f8")


def supports(hop: Hop) -> str | None:
    return None if hop.op.name == "matmul" else InterpretedBackend().supports(hop)


def matrix(slot: int, *shape: int, nnz: int | None = None) -> Hop:
    return leaf(slot, Meta(shape, F8, nnz))


def total(x: Hop) -> Hop:
    return apply("sum", x, axis=(0, 1), keepdims=False)


def planned(*roots: Hop):
    return plan(roots, {}, supports)


def product(m: int, k: int, n: int) -> Hop:
    return apply("matmul", matrix(0, m, k), matrix(1, k, n))


def test_a_sum_with_a_dense_matrix_stays_outside_of_a_sparse_driver():
    U, V, Y = matrix(0, 2000, 20), matrix(1, 20, 300), matrix(2, 2000, 300)

    def taken(nnz):
        driven = apply("multiply", matrix(3, 2000, 300, nnz=nnz), apply("matmul", U, V))
        whole = apply("add", Y, driven)
        memo = Memo((whole,), Facts(supports, all_layouts((whole,), {})))
        return [[h.op.name for h in memo.hops(memo.row_operands[memo.number[h]] or 0)]
                for h in (driven, whole)]

    assert taken(6000) == [["matmul"], []]
    assert taken(None) == taken(590_000) == [["matmul"], ["multiply"]]


def test_what_is_zero_where_the_driver_is_joins_it():
    U, V, X = matrix(0, 2000, 20), matrix(1, 20, 300), matrix(3, 2000, 300, nnz=6000)
    driven = apply("multiply", X, apply("matmul", U, V))
    found = planned(total(apply("absolute", driven)))
    assert structure(found) == {"Cell": 0, "MAgg": 0, "Outer": 1, "Call": 0}


@pytest.mark.parametrize("size", [(2000, 2000, 200), (2000, 20, 40_000), (40, 20, 70)])
def test_left_to_blas_are_long_sums_long_rows_and_small_products(size):
    found = planned(apply("exp", product(*size)))
    assert structure(found) == {"Cell": 1, "MAgg": 0, "Call": 1}


def test_a_product_alone_and_one_that_is_read_twice_elsewhere_are_calls():
    P = product(2000, 20, 300)
    assert structure(planned(P)) == {"Cell": 0, "MAgg": 0, "Call": 1}
    turned = apply("transpose", P, axes=(1, 0))
    assert structure(planned(turned))["Call"] == 2


@pytest.mark.parametrize("rows", [500, 5000, 50_000])
def test_an_outer_makes_each_value_once_and_reads_each_leaf_once(rows):
    P = product(rows, 20, 300)
    S = matrix(2, rows, 300)
    R = apply("subtract", S, P)
    found = planned(total(apply("multiply", R, R)), apply("matmul", R, matrix(3, 300, 20)))
    (kernel,) = found.steps
    assert isinstance(kernel, RowKernel) and kernel.template == "Outer"
    assert len(set(kernel.body)) == len(kernel.body) == 5
    assert len(set(kernel.inputs)) == len(kernel.inputs) == 4
    by_rows = [h.attr("slot") for h, axis in zip(kernel.inputs, kernel.axes, strict=True) if axis == 0]
    assert sorted(by_rows) == [0, 2]


def test_a_leaf_and_its_transpose_are_for_blas():
    X, T = matrix(0, 5000, 200), matrix(1, 200, 5000)
    layouts = {0: Layout((5000, 200), (1600, 8)), 1: Layout((200, 5000), (8, 1600))}
    found = plan((apply("matmul", T, X), apply("matmul", T, leaf(2, Meta((5000,), F8)))), layouts, supports)
    assert "Outer" not in structure(found)


@pytest.mark.parametrize("rows, joined", [(256, False), (20_000, True)])
def test_sums_of_few_rows_that_one_thread_would_add_up_are_for_blas(rows, joined):
    X, D = matrix(0, rows, 300), matrix(1, rows, 128)
    found = planned(apply("matmul", make("transpose", (X,), axes=(1, 0)), apply("exp", D)))
    assert ("Outer" in structure(found)) is joined
