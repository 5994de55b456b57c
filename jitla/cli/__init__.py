"""User interfaces: the commands of `python -m jitla`, the IPython extension and the demo.

`commands` has the subcommands, `notebook` the magics ``%jitla`` and ``%%jitla``, and `demo` compares two
classifiers with and without jitla. `tuning_workers` has the entry points of the tuner's child processes.
Nothing in jitla depends on this package.
"""
