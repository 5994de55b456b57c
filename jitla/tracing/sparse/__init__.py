"""Sparse matrices in traced code."""
