"""User interfaces: the commands of `python -m jitla`, the IPython extension and the demo.

`commands` has the subcommands, `notebook` the magics ``%jitla`` and ``%%jitla``, and `demo` compares two
classifiers with and without jitla. `tuning_workers` has the entry points of the tuner's child processes,
which the tuner starts by name. Of jitla only `jitla.__main__` depends on this package: `commands` and `demo`
are apart from it because it is the command line, and they what the commands do.
"""
