VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip --quiet --disable-pip-version-check
INSTALLED := $(VENV)/.installed
BENCH_INSTALLED := $(VENV)/.installed-bench
ARGS ?=

.PHONY: help env reproduce test test-fast lint types bench wheel clean

help:
	@echo "make reproduce   run the papers' figures and claims, write the report (ARGS=\"--quick\" for a short run)"
	@echo "make test        lint, types and tests (ARGS go to pytest)"
	@echo "make test-fast   ruff and the tests that take a moment each: what to run while working (ARGS go to pytest)"
	@echo "make lint        ruff alone"
	@echo "make types       pyright alone"
	@echo "make bench       speed beside PyTorch (installs it on first use)"
	@echo "make wheel       a wheel with the kernels compiled inside, in dist/"
	@echo "make env         create the environment in $(VENV); the other targets do so themselves"
	@echo "make clean       remove the environment, the caches and reproduction/"

env: $(INSTALLED)

# A working environment is kept and brought up to date; a missing or broken one is made anew.
$(INSTALLED): pyproject.toml constraints.txt
	@if ! $(PYTHON) -m pip --version >/dev/null 2>&1; then \
		for python in python3.11 python3 none; do \
			if $$python -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then break; fi; \
		done; \
		if [ $$python = none ]; then \
			echo "stepwell needs Python 3.11 or newer, with venv, as python3.11 or python3 on the PATH" >&2; exit 1; \
		fi; \
		echo "Creating the environment in $(VENV) (once; this takes a minute or two)"; \
		$$python -m venv --clear $(VENV); \
	fi
	@$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@echo "Building native kernels, where there is a C compiler"
	@$(PYTHON) -m stepwell.native
	@touch $@

$(BENCH_INSTALLED): $(INSTALLED)
	@echo "Installing PyTorch, CVODE and Dash for the benchmarks (once)"
	@$(PIP) install --constraint constraints.txt --editable '.[bench]'
	@touch $@

# Status 1 means that the job was done and some claims are not as expected: a finding, not a failure of make. Others, such as 3
# (it could not finish), are.
reproduce: env
	@$(VENV)/bin/stepwell reproduce --out reproduction $(ARGS) || { status=$$?; [ $$status -eq 1 ] || exit $$status; \
		echo "Some claims are not as expected; the report shows which."; }

test: lint
	$(PYTHON) -m pytest -n 2 --dist worksteal $(ARGS)

test-fast: lint
	$(PYTHON) -m pytest -n 2 --dist worksteal -m "not slow" $(ARGS)

lint: env
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

# The variable stops pyright from asking the network for a newer version.
types: env
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(PYTHON) -m pyright

bench: $(BENCH_INSTALLED)
	@$(PYTHON) -m benchmarks $(ARGS)

# In this environment rather than an isolated one: the kernels are compiled against JAX's header.
wheel: env
	STEPWELL_SHIP_KERNELS=1 $(PYTHON) -m hatchling build -t wheel -d dist

clean:
	rm -rf $(VENV) reproduction build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
