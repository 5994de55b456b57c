"""Programs with explicit loops, our own and from public suites, timed from their first call on.

`python -m bench.loop_programs --help` lists the options. A program runs in a fresh process per mode: plain,
decorated with jitla's defaults, with `compile="sync"`, and with `numba.njit`. Every result, and every
argument after the call, is compared with the plain function's.

`own` has our programs by field; `suites` reads those of NPBench, PolyBench/Python, Numba and Pythran from
directories named by environment variables. `worker` measures one program in one mode, `runner` starts workers
and derives the columns of the table.
"""
