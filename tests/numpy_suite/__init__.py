"""NumPy's own tests, run with every test function decorated.

Reading order: copies, lazies, plugin, batches, runner, verdict, __main__.
"""
