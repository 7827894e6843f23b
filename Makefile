# Nothing but Python 3.11+ and make is needed: each target sets up what it uses, in .venv.
#
#   make demo    a model fitted to 1 % of a table, coresets of digits beside uniform sampling, a network trained on them
#   make test    the whole test suite            make lint    ruff, check and format
#   make docs    the documentation, in site/     make types   mypy
#   make bench   the benchmarks                  make format  let ruff rewrite what it can
#   make quick   the quick tests                  make coverage     branches of core that tests reach, at least 95 %
#   make mutants do tests notice planted faults?  make audit-deps   known vulnerabilities of what is installed
#   make bench-gate     fail if the code is more than 30 % slower than the commit whose ratios are stored
#   make release-check  build what would be published, install it into empty environments, try every extra
#   make clean   remove the environment and everything that was built
#   make lock    renew the lock files from constraints.txt (PYTHONS="python3.12 python3.13": hashes for these too)
#
# Variables: PYTHON (which Python makes the environment), VENV (where), HASHES=1 (install only files whose hashes are in locks/),
# PYTEST_ARGS, SEED (of make mutants), BENCH (of make bench).

export VENV ?= .venv
export HASHES
PY := "$(VENV)/bin/python"
PYTEST_ARGS ?= -n 2
SEED ?= 5
BENCH ?= foundation certificates selection scale training load growth

# One thread per process: the tests and the figures use processes, and sums come out the same everywhere.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help demo test quick coverage mutants audit-deps lint format types docs bench bench-gate release-check clean lock setup-demo setup-dev

help:
	@sed -n '/^$$/q; s/^# \{0,1\}//p' Makefile

setup-demo:
	@tools/setup.sh cli,train,plots

setup-dev:
	@tools/setup.sh dev

demo: setup-demo
	@mkdir -p build
	@$(ONE_THREAD) $(PY) -m examples.demo --figure build/coresift-demo.png

test: setup-dev
	$(ONE_THREAD) $(PY) -m pytest $(PYTEST_ARGS)

quick: setup-dev
	$(ONE_THREAD) $(PY) -m pytest $(PYTEST_ARGS) -m "not slow"

coverage: setup-dev
	@mkdir -p build
	$(ONE_THREAD) $(PY) -m coverage run --branch --source=src/coresift/core --data-file=build/.coverage -m pytest -n0 -q tests/core
	$(PY) -m coverage report --data-file=build/.coverage --show-missing --fail-under=95

mutants: setup-dev
	$(ONE_THREAD) $(PY) tools/mutants.py baseline core tests/core
	$(ONE_THREAD) $(PY) tools/mutants.py run core --sample 100 --seed $(SEED) --budget 10
	$(ONE_THREAD) $(PY) tools/mutants.py baseline selection tests/selection tests/contract
	$(ONE_THREAD) $(PY) tools/mutants.py run selection --sample 100 --seed $(SEED) --budget 10

audit-deps: setup-dev
	$(PY) tools/audit_deps.py

lint: setup-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: setup-dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

types: setup-dev
	$(PY) -m mypy

docs: setup-dev
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

bench: setup-dev
	for name in $(BENCH); do $(ONE_THREAD) $(PY) -m paper benchmark $$name || exit 1; done

lock: setup-dev
	$(PY) tools/lock.py $(PYTHONS)

bench-gate: setup-dev
	$(ONE_THREAD) $(PY) -m paper benchmark gate

release-check: setup-dev
	$(PY) tools/release_check.py

clean:
	rm -rf "$(VENV)" build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
