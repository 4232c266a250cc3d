# Every target does its own set-up; a machine needs Python 3.11 or newer, make and a shell.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
JOBS   ?= auto

.DEFAULT_GOAL := help

help: ## show this list
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/:/' | awk -F': ' '{printf "  make %-10s %s\n", $$1, $$2}'

example: $(VENV)/.run ## install Perdure and run an example to its result
	$(BIN)/perdure run examples/flows/first-call.json --input '"world"' --db sqlite:///$(VENV)/example.db

test: $(VENV)/.dev ## install everything and run all checks: format, lint, types, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n $(JOBS)

bench: $(VENV)/.dev ## measure Perdure beside its peers and write docs/performance.md (25 minutes)
	$(BIN)/python -m bench run

fix: $(VENV)/.dev ## format, and repair what the linter can repair
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(VENV)/.dev ## pin the development dependencies anew (needs uv)
	uv pip compile --universal --python-version 3.11 --upgrade --generate-hashes --no-header --no-annotate \
	  --quiet -o requirements/dev.lock pyproject.toml requirements/dev.in

sbom: $(VENV)/.dev ## write the bill of materials to dist/ (a wheel carries the same)
	$(BIN)/python requirements/bill.py --sbom dist/perdure.cdx.json

licences: $(VENV)/.dev ## collect versions and licences of what is needed at run time anew
	$(BIN)/python requirements/bill.py

lowest: ## try the lower bounds of the dependencies in an environment of their own (10 minutes)
	$(PYTHON) requirements/lowest.py

clean: ## remove everything that was installed or built
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: requirements/dev.lock pyproject.toml $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

.PHONY: help example test bench fix lock sbom licences lowest clean
