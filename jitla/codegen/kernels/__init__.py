"""Kernels of the templates Cell, MAgg, Row and Tally."""
