# Every target does its own set-up; a machine needs Python 3.11 or newer, make and a shell.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Sphinx has an environment of its own: nothing else needs it.
DOCS_VENV := build/docs-venv
DOCS_BIN  := $(DOCS_VENV)/bin
# Workers of pytest: more than there are processors, for many tests wait.
JOBS   ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 2)

# Compiled modules are kept, whatever the environment says: the suite starts many processes.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help

help: ## show this list
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/:/' | awk -F': ' '{printf "  make %-10s %s\n", $$1, $$2}'

example: $(VENV)/.run ## install Perdure and run an example to its result
	$(BIN)/perdure run examples/flows/first-call.json --input '"world"' --db sqlite:///$(VENV)/example.db

# Of every package what answers soon: pure code, engine and store on SQLite, the command line inside the process.
QUICK := tests/architecture tests/analysis tests/editor tests/kernel tests/documents \
  tests/expressions/cel/test_functions.py tests/expressions/gotemplate/test_functions.py \
  tests/dialects/flow/test_cases.py tests/dialects/playbook/test_cases.py tests/dialects/story/test_cases.py \
  tests/engine/test_deciding.py tests/engine/test_recovery.py tests/stores/test_sqlite.py \
  tests/workers/test_runner.py tests/providers/test_registry.py tests/services/test_cron.py tests/views \
  tests/cli/test_ps.py tests/streams/test_messages.py tests/server/test_request_rules.py

CHAOS := tests/journeys/test_many_servers.py

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/mypy

# Once in a new environment: what one process has rewritten of the tests, all workers of pytest read.
$(VENV)/.collected: $(VENV)/.dev
	$(BIN)/pytest --collect-only -qq > /dev/null
	@touch $@

suite: $(VENV)/.collected
	$(BIN)/pytest -n $(JOBS) --dist worksteal --cache-clear || $(BIN)/python -m tests.unstable

check: lint types

quick: check ## format, lint, types and fast tests of every package, in under 90 seconds
	PERDURE_TEST_STORE=sqlite $(BIN)/pytest -n $(JOBS) $(QUICK)

# Types are checked while the tests begin: the first ones wait (tests/ordering.py).
test: lint ## install everything and run all checks (about 10 minutes on two cores)
	$(MAKE) --no-print-directory --jobs 2 types suite

deep: export TMPDIR ?= /tmp
deep: check ## before a release, all that `make test` takes samples of (2 hours on two quiet cores)
	PERDURE_TEST_SEED=all $(BIN)/pytest -m deep
	PERDURE_TEST_SEED=all $(BIN)/pytest -n $(JOBS) --dist worksteal -m "not deep" --deselect $(CHAOS)
	for version in 15 18; do PERDURE_CHAOS_SECONDS=600 PERDURE_CHAOS_POSTGRES=$$version $(BIN)/pytest $(CHAOS) || exit 1; done
	$(BIN)/python -m tests.journeys.soak --minutes 20

console: ## build the web console into the package (needs Node 20 or newer, with npm)
	$(PYTHON) tools/build_console.py

docs: ## make a site of the documentation in build/docs, with search and a dark mode
	test -x $(DOCS_BIN)/sphinx-build || $(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.lock
	$(DOCS_BIN)/sphinx-build -q -W -c docs/site . build/docs
	@echo "build/docs/index.html"

bench: $(VENV)/.dev ## measure Perdure beside its peers and write docs/performance.md (45 minutes)
	$(BIN)/python -m bench run

fix: $(VENV)/.dev ## format, and repair what the linter can repair
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(VENV)/.dev ## pin the development dependencies anew (needs uv)
	uv pip compile --universal --python-version 3.11 --upgrade --generate-hashes --no-header --no-annotate \
	  --quiet -o requirements/dev.lock pyproject.toml requirements/dev.in
	uv pip compile --universal --python-version 3.11 --upgrade --generate-hashes --no-header --no-annotate \
	  --quiet -o requirements/docs.lock requirements/docs.in

sbom: $(VENV)/.dev ## write the bill of materials to dist/ (a wheel carries the same)
	$(BIN)/python requirements/bill.py --sbom dist/perdure.cdx.json

licences: $(VENV)/.dev ## collect versions and licences of what is needed at run time anew
	$(BIN)/python requirements/bill.py

lowest: ## try the lower bounds of the dependencies in an environment of their own (10 minutes)
	$(PYTHON) requirements/lowest.py

clean: ## remove everything that was installed or built
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis console/node_modules src/perdure/server/console

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: requirements/dev.lock pyproject.toml $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

.PHONY: help docs example lint types suite check quick test deep console bench fix lock sbom licences lowest clean
