# The main targets are `make demo` and `make test`. Both set up .venv first, from PyPI alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ffq-installed

# Each worker takes whole files, in the order of conftest.py: those with long tests come first.
IN_PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder

export SPARK_LOCAL_IP ?= 127.0.0.1
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)

.PHONY: help setup demo test soak bench bench-storage bench-setup check docs jar java clean

help:
	@echo "make setup          install this package and its tools into $(VENV)"
	@echo "make demo           run the main job end to end, with a failing task: about a minute"
	@echo "make test           run all tests: up to 25 minutes on 2 cores"
	@echo "make soak           run the long test campaigns in full"
	@echo "make check          run ruff, mypy --strict, import-linter, deptry, codespell and more"
	@echo "make docs           regenerate the tables and diagrams in docs/"
	@echo "make jar            compile the plugin's jar from jars/src"
	@echo "make bench          compare with Spark, dask, DuckDB and Polars; flags: BENCH='--only write'"
	@echo "make bench-storage  count S3 requests, measure read credits, time gc against rmtree"
	@echo "make clean          delete $(VENV) and build files"

setup: $(STAMP)

$(STAMP): setup.cfg pyproject.toml
	@echo "== set-up in $(VENV): this package and its tools, from PyPI"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "Python 3.10 or newer is needed: make PYTHON=/path/to/python3.10 …"; exit 1; }
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

java:
	@$(PYTHON) -c 'import os, shutil, sys; home = os.environ.get("JAVA_HOME"); \
		java = shutil.which("java", path=os.path.join(home, "bin") if home else None); \
		sys.exit(0 if java else "Spark needs Java 17 or newer: install it, or set JAVA_HOME.")'

demo: java setup
	@echo "== demo: examples/demo.py"
	@$(BIN)/python examples/demo.py

test: java setup
	@echo "== tests"
	@$(BIN)/python -m pytest -m "not soak" $(IN_PARALLEL)

soak: java setup
	@echo "== long test campaigns"
	@$(BIN)/python -m pytest -m soak --timeout 7200
	@echo "== all tests with layout=packed"
	@FFQ_LAYOUT=packed $(BIN)/python -m pytest -m "not soak" $(IN_PARALLEL)

bench: java setup bench-setup
	@echo "== benchmarks/peers.py"
	@$(BIN)/python benchmarks/peers.py $(BENCH)

bench-storage: java setup bench-setup
	@echo "== benchmarks/object_storage.py, benchmarks/gc.py"
	@$(BIN)/python benchmarks/object_storage.py
	@$(BIN)/python benchmarks/gc.py

bench-setup: setup
	@$(BIN)/python -m pip install --quiet --editable '.[bench]'

check: java setup
	@echo "== ruff, mypy, import-linter, deptry, codespell, Scala sources, generated pages"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python checks/cycles.py
	@$(BIN)/python checks/dependencies.py
	@$(BIN)/codespell
	@$(BIN)/python jars/check.py
	@$(BIN)/python docs/generate.py --check

jar: java setup
	@$(BIN)/python jars/build.py

docs: java setup
	@$(BIN)/python docs/generate.py

clean:
	@rm -rf $(VENV) build *.egg-info
