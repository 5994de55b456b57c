"""Sections of the semantics sheet: how many rows each has, and where its tests are."""

from __future__ import annotations

# Rows of a section that has a table in `rows/`; what has no numbers in the sheet is numbered by sentence.
TABLES = {
    "D": 13, "E": 11, "F": 10, "G": 10, "H": 10, "I": 13, "J": 11, "K": 12, "L": 2, "M": 14, "N": 8,
    "O": 9, "P": 16, "Q": 6, "R": 8, "U": 10, "V": 13, "W": 3, "X": 4, "Y": 3, "Z": 6,
}
# Sections with tests of their own.
MODULES = {"A": (17, "test_a_capture.py"), "B": (17, "test_b_views.py"), "C": (17, "test_c_overlap.py")}
