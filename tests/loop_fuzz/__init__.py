"""Random functions with loops, run by Python and with rewritten loops: everything has to be the same.

``python -m tests.loop_fuzz --seeds 0:1000`` runs programs; `generate` writes them, `arguments` makes their
arguments, `runner` compares the runs, `forced` plants exits in loop programs, `shrink` makes programs
smaller.
"""
