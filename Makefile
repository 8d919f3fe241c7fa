VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip --quiet --disable-pip-version-check
INSTALLED := $(VENV)/.installed
# uv resolves and unpacks in seconds what takes pip a minute: the one on the PATH, or else from the package index.
UV := $(shell command -v uv 2>/dev/null || echo $(VENV)/bin/uv)
INSTALL = sh -c '{ [ -x "$(UV)" ] || $(PIP) install uv 2>/dev/null; \
	$(UV) pip install --quiet --compile-bytecode --python $(PYTHON) --constraint constraints.txt --editable "$$1" 2>/dev/null; } || \
	$(PIP) install --constraint constraints.txt --editable "$$1"' install
BENCH_INSTALLED := $(VENV)/.installed-bench
DOCS_INSTALLED := $(VENV)/.installed-docs
ARGS ?=
FIGURES ?=
# Where it is set, as in many containers, every process would compile JAX and all else from its source: three seconds each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help env reproduce test one-answer oracle test-fast lint types bench docs wheel sdist test-lowest clean

help:
	@echo "make reproduce   run the papers' figures and claims, write the report (ARGS=\"--quick\" for a short run)"
	@echo "make test        lint, types and tests (ARGS go to pytest)"
	@echo "make test-fast   ruff and the tests that take a moment each: what to run while working (ARGS go to pytest)"
	@echo "make one-answer  200 random experiments through every door, some of which make test runs (some six minutes)"
	@echo "make oracle      324 random experiments, judged by NumPy and SciPy alone (some 15 minutes; ARGS=\"--seeds 7\")"
	@echo "make lint        ruff alone"
	@echo "make types       pyright alone"
	@echo "make bench       speed beside PyTorch (installs it on first use)"
	@echo "make docs        the site, in build/site (installs Sphinx on first use; FIGURES=\"linear/fig1\" for some figures alone)"
	@echo "make test-lowest the quick tests with the oldest versions of the dependencies that are allowed (needs uv)"
	@echo "make sdist       the source archive, in dist/"
	@echo "make wheel       a wheel with the kernels compiled inside, in dist/"
	@echo "make env         create the environment in $(VENV); the other targets do so themselves"
	@echo "make clean       remove the environment, the caches, reproduction/ and stepwell-runs/"

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
		echo "Creating the environment in $(VENV) (once; with uv it takes less than a minute)"; \
		$$python -m venv --clear $(VENV); \
	fi
	@$(INSTALL) '.[dev]'
	@echo "Building native kernels, where there is a C compiler"
	@$(PYTHON) -m stepwell.native
	@touch $@

$(BENCH_INSTALLED): $(INSTALLED)
	@echo "Installing PyTorch, CVODE and Dash for the benchmarks (once)"
	@$(INSTALL) '.[bench]'
	@touch $@

# Status 1 means that the job was done and some claims are not as expected: a finding, not a failure of make. Others, such as 3
# (it could not finish), are.
reproduce: env
	@$(VENV)/bin/stepwell reproduce --out reproduction $(ARGS) || { status=$$?; [ $$status -eq 1 ] || exit $$status; \
		echo "Some claims are not as expected; the report shows which."; }

test: lint
	$(PYTHON) -m pytest -n 2 --dist worksteal $(ARGS)

one-answer: env
	STEPWELL_ONE_ANSWER=all $(PYTHON) -m pytest -n 2 --dist worksteal tests/experiments/test_one_answer.py $(ARGS)

oracle: env
	$(PYTHON) tests/experiments/judge.py $(ARGS)

test-fast: lint
	$(PYTHON) -m pytest -n 2 --dist worksteal -m "not slow" $(ARGS)

# The lowest versions are those in pyproject.toml; what they need in turn, and the tools of the tests, are the newest that fit,
# and warn of what old versions use.
test-lowest: env
	$(UV) venv --quiet --clear --python $(PYTHON) build/lowest
	$(UV) pip compile --quiet --python build/lowest/bin/python --resolution lowest-direct --no-header --no-annotate \
		pyproject.toml -o build/lowest.txt
	$(UV) pip install --quiet --compile-bytecode --python build/lowest/bin/python --constraint build/lowest.txt --editable . \
		beartype distributed filelock hatchling hypothesis pytest pytest-xdist
	build/lowest/bin/python -m pytest -n 2 --dist worksteal -m "not slow" -W ignore::DeprecationWarning --ignore=tests/explorer/browser $(ARGS)

lint: env
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

# The variable stops pyright from asking the network for a newer version.
types: env
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(PYTHON) -m pyright

bench: $(BENCH_INSTALLED)
	@$(PYTHON) -m benchmarks $(ARGS)

$(DOCS_INSTALLED): $(INSTALLED)
	@echo "Installing Sphinx (once)"
	@$(INSTALL) '.[docs]'
	@touch $@

# The pages of the papers are made of reproduction/, if it is there, or else of a quick one, which is kept.
docs: $(DOCS_INSTALLED)
	@if [ ! -f reproduction/claims.json ]; then \
		echo "Making the figures, with small settings (once; some minutes)"; \
		$(VENV)/bin/stepwell reproduce $(FIGURES) --quick --out build/docs/reproduction >/dev/null || [ $$? -eq 1 ]; fi
	@echo "Running and writing the pages (a minute or two; those that have changed)"
	@STEPWELL_REPRODUCTION=$$([ -f reproduction/claims.json ] && echo reproduction || echo build/docs/reproduction) \
		$(PYTHON) -m sphinx --fail-on-warning --keep-going --nitpicky --jobs 2 --quiet -d build/docs/doctrees docs build/site
	@echo "The site: build/site/index.html"

# In this environment rather than an isolated one: the kernels are compiled against JAX's header.
wheel: env
	STEPWELL_SHIP_KERNELS=1 $(PYTHON) -m hatchling build -t wheel -d dist

# The source archive, and the wheel made of it, without kernels inside.
sdist: env
	$(PYTHON) -m hatchling build -t sdist -d dist

clean:
	rm -rf $(VENV) reproduction stepwell-runs build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
