# `make demo` and `make test` need nothing but Python 3.11 and make: the environment is made on the way.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint types bench bench-counts bench-vectors bench-nets bench-tasks clean .venv

.venv: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[test]'
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[peers]' || \
		echo "kenlm could not be built (it needs a C++ compiler): tests and benchmarks against it are left out"
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[fasttext]' || \
		echo "fasttext could not be installed: tests and benchmarks against it are left out"
	touch $@

demo: .venv/.ready
	$(BIN)/firth demo -o demo-report

lint: .venv/.ready
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench

types: .venv/.ready
	$(BIN)/mypy

test: lint types
	$(BIN)/python -m pytest -n auto --dist loadfile

bench-counts: .venv/.ready
	$(BIN)/python bench/counts.py

bench-vectors: .venv/.ready
	$(BIN)/python bench/vectors.py

bench-nets: .venv/.ready
	for script in nets lstm scoring growth; do $(BIN)/python bench/$$script.py || exit 1; done

bench-tasks: .venv/.ready
	$(BIN)/python bench/tasks.py

bench: bench-counts bench-vectors bench-nets bench-tasks
	for script in encode store smoothing outputs; do $(BIN)/python bench/$$script.py || exit 1; done

clean:
	find src -name '*.nb[ic]' -delete
	rm -rf .venv demo-report build *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
