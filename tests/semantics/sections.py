"""Sections of the semantics sheet: how many rows each has, and where its tests are."""

from __future__ import annotations

# Rows of a section that has a table in `rows/`; what has no numbers in the sheet is numbered by sentence.
TABLES = {
    "D": 13, "E": 11, "F": 10, "G": 10, "H": 10, "I": 13, "J": 11, "K": 12, "L": 2, "M": 14, "N": 8,
    "O": 9, "P": 16, "Q": 6, "R": 8, "U": 10, "V": 13, "W": 3, "X": 4, "Y": 3, "Z": 6, "AA": 10,
    "AB": 9, "AD": 9, "AF": 4,
}
# Rows about processes and the life of machine code, which tests of those rooms hold.
ELSEWHERE = {
    "AA5": "tests/codegen/test_pool.py::test_concurrent_launches",
    "AA6": "tests/codegen/test_pool.py::test_forked_children_get_workers_of_their_own",
    "AA7": "tests/tracing/test_session.py::test_an_interrupt_leaves_whole_arrays",
    "AA8": "tests/codegen/test_pool.py::test_the_interpreter_ends",
    "AA9": "tests/codegen/test_pool.py::test_threads_come_when_needed_and_leave",
    "AA10": "tests/codegen/test_pool.py::test_errors_while_threads_start",
    "AB3": "tests/behaviour/test_loops.py::test_gradient_descent_without_a_product_keeps_memory_flat",
    "AD6": "tests/recompile/test_memory_safety.py::test_code_outlives_caches_and_compilers",
    "AD9": "tests/test_api.py::test_compile_off_runs_the_plain_function",
}
# What has no test of semantics yet, and why.
LATER = {
    "AB6": "a time: bench/overhead.py", "AB9": "leaks of 100,000 compilations take minutes",
    "AD7": "there is no cache on disk",
    "AC": "sparse operands are not traced", "AE": "there is no cache on disk",
}
# Sections with tests of their own.
MODULES = {"A": (17, "test_a_capture.py"), "B": (17, "test_b_views.py"), "C": (17, "test_c_overlap.py")}
