"""Searches for faster schedules: of kernels by measurement, of accelerator layers by simulation.

The search is guided by a model that learns from measurements. Best schedules are stored with what they were
measured on. This package loads nothing by itself: a measuring process first lowers its own priority by
`throttle`, then loads the rest.
"""
