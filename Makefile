# `make demo` and `make test` need nothing but Python 3.11 and make: the environment is made on the way.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo docs test test-lowest lint types bench bench-counts bench-vectors bench-nets bench-tasks fuzz clean .venv

.venv: .venv/.ready

# What the demo needs: Firth itself.
.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e .
	touch $@

.venv/.ready: .venv/.installed
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[test]'
	for peer in kenlm fasttext-wheel playwright; do \
		$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt $$peer || \
		echo "$$peer could not be installed (it may need a C++ compiler): tests and benchmarks against it are left out"; \
	done
	touch $@

demo: .venv/.installed
	$(BIN)/firth demo -o demo-report

lint: .venv/.ready
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench

types: .venv/.ready
	$(BIN)/mypy

test: lint types
	$(BIN)/python -m pytest -n auto --dist loadfile

# The tests with the oldest versions that pyproject.toml allows.
test-lowest:
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --disable-pip-version-check --quiet -c constraints-lowest.txt -e '.[test]'
	.venv-lowest/bin/python -m pytest -n auto --dist loadfile

# A million inputs or more in all: FUZZ='--seconds 3600' runs longer, FUZZ='--reader store' one reader.
FUZZ ?= --seconds 120
fuzz: .venv/.ready
	$(BIN)/python tests/fuzz/run.py $(FUZZ)

# The pinned versions with the SHA-256 of their archives, for `pip install --require-hashes -r requirements.lock`.
requirements.lock: pyproject.toml constraints.txt .venv/.ready
	$(BIN)/python tools/lock.py --output $@

# The documentation site, in an environment of its own: the extra `docs` without Firth and its dependencies, since the
# reference is made from the source files. A broken link fails.
.venv-docs/.ready: pyproject.toml constraints.txt
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' > .venv-docs/requirements.txt
	.venv-docs/bin/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -r .venv-docs/requirements.txt
	touch $@

docs: .venv-docs/.ready
	.venv-docs/bin/mkdocs build --strict --quiet
	.venv-docs/bin/python tools/check_site.py site

bench-counts: .venv/.ready
	$(BIN)/python bench/counts.py

bench-vectors: .venv/.ready
	$(BIN)/python bench/vectors.py

bench-nets: .venv/.ready
	for script in nets family electra lstm scoring growth; do $(BIN)/python bench/$$script.py || exit 1; done

bench-tasks: .venv/.ready
	$(BIN)/python bench/tasks.py

bench: bench-counts bench-vectors bench-nets bench-tasks
	for script in encode store smoothing outputs; do $(BIN)/python bench/$$script.py || exit 1; done

clean:
	find src -name '*.nb[ic]' -delete
	rm -rf .venv .venv-docs .venv-lowest site requirements.lock demo-report build *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
