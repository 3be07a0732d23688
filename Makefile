# make quickstart   sets everything up, then trains the shipped tiny model (configs/quickstart.yaml)
# make check        sets everything up, then lint, types and the fast tests: under 90 seconds, for while you work
# make test         sets everything up, then lint, types and all tests: about 15 minutes on two cores
# make fuzz MINUTES=60 JOBS=2 SEED=0 AREA=all   throws damaged input at viewbox (tests/fuzz); findings in build/fuzz
# The first install takes minutes: torch alone is gigabytes where pip chooses its CUDA build. Later calls reuse .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SEED ?= 0
MINUTES ?= 5
AREA ?= all
JOBS ?= 1

.PHONY: quickstart check test fuzz setup lint types fast all clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[all]'
	touch $@

quickstart: setup
	$(BIN)/python train.py configs/quickstart.yaml train.seed=$(SEED)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The type checker sees the package as a user gets it: built as a wheel and unpacked beside nothing else. Its cache
# makes the second call fast.
types: setup
	rm -rf build/typed
	$(BIN)/python -m pip install --quiet --no-deps --target build/typed .
	cd build/typed && MYPYPATH=. ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../mypy -p viewbox

# One process more than there are cores, for tests that wait; each test file stays in one process, which makes its
# models and runs once. Slow files start first.
PROCESSES ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")
PYTEST := $(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

# `+`: its output is not held back until it ends.
fast: setup
	+$(PYTEST) -m "not slow"

all: setup
	+$(PYTEST)

# Lint and types run beside the tests, which end last.
BESIDE := --no-print-directory --output-sync=target --jobs=2 lint types

check: setup
	$(MAKE) $(BESIDE) fast

test: setup
	$(MAKE) $(BESIDE) all

fuzz: setup
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --jobs $(JOBS) --seed $(SEED) --area $(AREA)

clean:
	rm -rf build .venv *.egg-info
