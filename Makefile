# A bare machine needs python3 (3.11 or newer) with pip and venv, and make. Everything else goes into .venv.
#
#   make train    install populora and run a population of 2 teachers and 2 students on the tiny base
#   make test     install the development tools, then lint, type-check and test
#
# To take torch's small CPU wheel from PyTorch's own index:  make train PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"

PYTHON ?= python3
PIP_ARGS ?=
CONFIG ?= configs/tiny.toml
PYTEST_ARGS ?= -n auto --maxprocesses 8 --dist loadfile
BIN := .venv/bin

.PHONY: train test setup lint format pytest clean

train: .venv/core.stamp
	$(BIN)/populora train $(CONFIG)

test: lint pytest

setup: .venv/dev.stamp

lint: .venv/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/pyright

format: .venv/dev.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# One thread a worker: the workers share the cores, and one-threaded sums are the same everywhere.
pytest: .venv/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/pytest $(PYTEST_ARGS)

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "populora needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) --version 2>&1): make PYTHON=python3.11 ..." >&2; exit 2; }
	$(PYTHON) -m venv .venv

.venv/core.stamp: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install $(PIP_ARGS) --quiet --editable .
	touch $@

.venv/dev.stamp: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install $(PIP_ARGS) --quiet --editable '.[dev]'
	touch $@ .venv/core.stamp

clean:
	rm -rf .venv .pytest_cache .ruff_cache .import_linter_cache .hypothesis
