# All targets run in .venv, which is created and filled on first use. Only Python, pip and make are needed.

PYTHON ?= python3
VENV := .venv
PEERS := .peers
PY := $(VENV)/bin/python
PYTEST_ARGS ?= -n 2 --dist worksteal
FUZZ_ARGS ?= --seeds 0:20000 --jobs 2
# internal.*: what measures parts of the compiler (bench/internal)
BENCHES ?= internal.machine internal.growth kernels internal.prediction internal.plans internal.products \
	internal.overhead internal.compiling internal.enumeration internal.ranks vecmath internal.sparse_algorithms
BENCH_ARGS ?=
SHARD ?= 1/8
SUITE ?= scipy
SUITE_ARGS ?=
FAULTS_ARGS ?=
RULES_ARGS ?= --seeds 0:20000
NESTS_ARGS ?= --count 2000
ACCURACY_ARGS ?= --exhaustive
KERNELS_ARGS ?=
ALGORITHMS_ARGS ?=
PEERS_INDEX ?=
EXACTNESS_ARGS ?=
ACCEL_ARGS ?= --count 10000
CALL_FUZZ_ARGS ?= --seeds 0:5000 --jobs 2
LEVELS ?= x86-64-v2 x86-64-v3 x86-64-v4
THREADS ?= 1 2 7
CHECKED ?= tests/architecture tests/hops tests/rewrites tests/rules tests/fusion tests/instrument tests/loopir tests/tuner
LEVELS_TESTS ?= tests/behaviour tests/recompile tests/plans
# These set the number of threads themselves.
LEVELS_ONCE ?= tests/semantics tests/fuzz
MATRIX_ARGS ?=

.PHONY: all test check levels matrix demo fuzz fuzz-calls rules nests faults accel exactness numpy-suite library-suites \
	bench bench-algorithms kernels accuracy docs newcomer scipy_sheet lint clean

all: test

$(PY):
	$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m pip install virtualenv && $(PYTHON) -m virtualenv $(VENV); }

$(VENV)/.demo: $(PY) pyproject.toml
	$(PY) -m pip install --quiet -e '.[demo]'
	@touch $@

$(VENV)/.test: $(PY) pyproject.toml
	$(PY) -m pip install --quiet -e '.[test,demo]'
	@touch $@

$(VENV)/.bench: $(PY) pyproject.toml
	$(PY) -m pip install --quiet -e '.[bench]'
	@touch $@

$(VENV)/.lint: $(PY) pyproject.toml
	$(PY) -m pip install --quiet -e . 'ruff>=0.5' 'mypy>=1.10'
	@touch $@

test: $(VENV)/.test
	$(PY) -m pytest $(PYTEST_ARGS)

# The tests that run in one process and need no LLVM: a minute or two.
check: $(VENV)/.test
	$(PY) -m pytest -q $(PYTEST_ARGS) $(CHECKED)

# Tests of results with code for every level of x86-64 and several numbers of threads. Levels that this processor
# lacks are named and skipped: tests/behaviour/test_levels.py, which is excluded here because it sets levels and
# threads itself, generates code for them. The slow test is about memory.
levels: $(VENV)/.test
	@bad=0; for level in $(LEVELS); do \
	  missing=$$($(PY) -c "from jitla.codegen import *; print(*lacking(level_target('$$level')))"); \
	  if [ -n "$$missing" ]; then echo "== $$level: not here, no $$missing"; continue; fi; \
	  once="$(LEVELS_ONCE)"; for threads in $(THREADS); do echo "== $$level, $$threads threads"; \
	    JITLA_CPU=$$level JITLA_NUM_THREADS=$$threads $(PY) -m pytest -q -m "not slow" $(PYTEST_ARGS) \
	      --ignore=tests/behaviour/test_levels.py \
	      $(LEVELS_TESTS) $$once || bad=1; once=; \
	  done; done; exit $$bad

# A part of the tests on every installed Python, with its oldest and newest supported NumPy.
matrix:
	$(PYTHON) -m tests.matrix $(MATRIX_ARGS)

demo: $(VENV)/.demo
	$(PY) -m jitla demo

# Random loop nests under random schedules: legal, relaxed, and illegal ones that must be refused; some minutes.
nests: $(VENV)/.test
	$(PY) -m tests.loopir $(NESTS_ARGS)

fuzz: $(VENV)/.test
	$(PY) -m tests.fuzz $(FUZZ_ARGS)

# Random programs of functions and classes that call each other, plain against decorated.
fuzz-calls: $(VENV)/.test
	$(PY) -m tests.call_fuzz $(CALL_FUZZ_ARGS)

# Rewrites without the compiler, about twenty minutes: every rule over many dtypes and shapes; searches and matrix
# chains against exhaustive enumeration; search times; random DAGs and subsets of rules at every level.
rules: $(VENV)/.test
	$(PY) -m tests.rewrites.metas
	$(PY) -m tests.rewrites.exhaustive
	$(PY) -m tests.rewrites.times
	@set -e; for level in strict numpy relaxed; do \
	  $(PY) -W ignore -m tests.rewrites --numerics $$level $(RULES_ARGS); done

# Random programs for the accelerator against a plain interpreter, in every order of its units; layers and NumPy
# programs against NumPy; some minutes.
accel: $(VENV)/.test
	$(PY) -m tests.accel.programs $(ACCEL_ARGS)
	$(PY) -m tests.accel.layers 0:2000
	$(PY) -m tests.accel.shapes 0:2000

# The plan search against exhaustive enumeration, on some thousand DAGs: about half an hour.
exactness: $(VENV)/.test
	$(PY) -m tests.fusion.every
	$(PY) -m tests.fusion.exhaustive $(EXACTNESS_ARGS)

# Injected faults (disks, compilers, forks, interrupts): some minutes. FAULTS_ARGS: words of their names.
faults: $(VENV)/.test
	$(PY) -m tests.faults $(FAULTS_ARGS)

# One shard takes some minutes; SUITE_ARGS=--merge adds up all shards of MODE that were run.
numpy-suite: MODE ?= decorate
numpy-suite: $(VENV)/.test
	$(PY) -m tests.numpy_suite --mode $(MODE) --shard $(SHARD) $(SUITE_ARGS)

# SciPy's or scikit-learn's own tests with the library decorated; MODE=sync or default. A shard takes hours in
# mode sync: SUITE_ARGS="--every 20" runs one item in 20.
library-suites: MODE ?= sync
library-suites: $(VENV)/.test
	$(PY) -m tests.library_suites --suite $(SUITE) --mode $(MODE) --shard $(SHARD) $(SUITE_ARGS)

bench: $(VENV)/.bench
	@set -e; for script in $(BENCHES); do \
	  echo "== bench.$$script"; $(PY) -m bench.$$script $(BENCH_ARGS); done

$(PEERS)/.done: pyproject.toml
	$(PYTHON) -m venv $(PEERS) || { $(PYTHON) -m pip install virtualenv && $(PYTHON) -m virtualenv $(PEERS); }
	$(PEERS)/bin/python -m pip install --quiet $(PEERS_INDEX) -e '.[peers]'
	@touch $@

# Against numexpr, Numba, JAX, torch.compile and Halide, in a separate environment (docs/reports/kernels.md).
kernels: $(PEERS)/.done
	$(PEERS)/bin/python -m bench.kernels $(KERNELS_ARGS)

# Whole algorithms on every installed system, then the page (docs/reports/benchmarks.md): hours. Runs that are in
# algorithms.jsonl are not repeated; ALGORITHMS_ARGS="--rows 1e5 --systems numpy,jitla,jax" runs a part.
bench-algorithms: $(PEERS)/.done
	$(PEERS)/bin/python -m bench.algorithms --real $(ALGORITHMS_ARGS)
	$(PEERS)/bin/python -m bench.algorithms.report algorithms.jsonl

accuracy: $(VENV)/.bench
	$(PY) -m bench.accuracy $(ACCURACY_ARGS)

$(VENV)/.docs: $(PY) pyproject.toml
	$(PY) -m pip install --quiet -e '.[docs]'
	@touch $@

# The documentation in docs/_build/html, with executed notebooks; warnings are errors.
docs: $(VENV)/.docs
	$(PY) -m tools.supported_table
	$(PY) -m tools.gallery
	$(PY) -m sphinx -W --keep-going -q -b html docs docs/_build/html

# Expressions of sparse matrices, plain and traced, a minute or two.
scipy_sheet: $(VENV)/.test
	$(PY) -m tests.scipy_sheet

# The five-minute guide in a new environment, step by step.
newcomer: $(VENV)/.test
	$(PY) -m tests.newcomer

lint: $(VENV)/.lint
	$(VENV)/bin/ruff check jitla tests bench tools
	$(VENV)/bin/mypy

clean:
	rm -rf $(VENV) $(PEERS) docs/_build docs/gallery/*.md .matrix build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
