"""Sections of the semantics sheet: how many rows each has, and where its tests are."""

from __future__ import annotations

# Rows of a section that has a table in `rows/`; what has no numbers in the sheet is numbered by sentence.
TABLES = {
    "D": 13, "E": 11, "F": 10, "G": 10, "H": 10, "I": 13, "J": 11, "K": 12, "L": 2, "M": 14, "N": 8,
    "O": 9, "P": 16, "Q": 6, "R": 8, "U": 10, "V": 13, "W": 3, "X": 4, "Y": 3, "Z": 6, "AA": 10,
    "AB": 9, "AC": 17, "AD": 9, "AE": 1, "AF": 4,
}
# Rows about processes and the life of machine code, which tests of those rooms hold.
ELSEWHERE = {
    "AA5": "tests/codegen/test_pool.py::test_concurrent_launches",
    "AA6": "tests/codegen/test_pool.py::test_forked_children_get_workers_of_their_own",
    "AA7": "tests/tracing/test_session.py::test_an_interrupt_leaves_whole_arrays",
    "AA8": "tests/codegen/test_pool.py::test_the_interpreter_ends",
    "AA9": "tests/codegen/test_pool.py::test_threads_come_when_needed_and_leave",
    "AA10": "tests/codegen/test_pool.py::test_errors_while_threads_start",
    "T12": "tests/semantics/test_rows.py::test_without_a_compiler_failures_are_counted",
    "AB3": "tests/behaviour/test_loops.py::test_gradient_descent_without_a_product_keeps_memory_flat",
    "AB9": "tests/semantics/test_environment.py::test_ab9_compilations_leave_nothing_behind",
    "AD6": "tests/recompile/test_memory_safety.py::test_code_outlives_caches_and_compilers",
    "AD7": "tests/semantics/test_environment.py::test_ad7_nothing_is_written_to_disk",
    "AD9": "tests/test_api.py::test_compile_off_runs_the_plain_function",
}
# Sections with tests of their own.
MODULES = {
    "A": (17, "test_capture.py"), "B": (17, "test_views.py"), "C": (17, "test_views.py"),
    "S": (15, "test_fp_warnings.py"), "T": (12, "test_exceptions.py"),
}
# The ten hazards: the rows whose programs fall into each.
HAZARDS = {
    "HZ1": ("A1", "A2", "A3", "A6", "A17", "W1"), "HZ2": ("Y1", "Y2", "Y3"), "HZ3": ("S4", "S7", "S11", "N6"),
    "HZ4": ("tests/semantics/test_capture.py::test_memory_that_is_gone_is_not_read",),
    "HZ5": ("AD1", "AD2", "N8"), "HZ6": ("B8", "B9", "C1", "C14"), "HZ7": ("I1", "I2", "I4", "I6"),
    "HZ8": ("J1", "J6", "J11"), "HZ9": ("AC1", "AC3", "AC4"), "HZ10": ("AB3", "AB4", "B14"),
}
