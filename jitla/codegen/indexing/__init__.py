"""Kernels of indexed reads and writes."""
