"""NumPy's own tests, run with every test function decorated.

Reading order: copies, lazies, items, plugin, batches, runner, verdict, __main__.
"""
