"""The rows of `bench.kernels`, each as NumPy and its peers write it, and how peers are asked.

Reading order: row, cells, chains, matrices, products, stencils, grids, pipelines, gathers, queries,
contestants, outcome.
"""

from bench.peers import (
    cells,
    chains,
    gathers,
    grids,
    matrices,
    pipelines,
    products,
    queries,
    stencils,
)

ROWS = (
    *cells.ROWS, *chains.ROWS, *matrices.ROWS, *products.ROWS, *stencils.ROWS, *grids.ROWS,
    *pipelines.ROWS, *gathers.ROWS, *queries.ROWS,
)
