# The commands people type and CI calls. `make` alone lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TOOLS := .tools
REAL := tests/real
CLIENTS := tests/servers/mcp
HOSTS := tests/hosts
DASHBOARD := tests/servers/dashboard
# Imports are two to five times slower without byte code, and the demo should start at once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-hosts check format docs bench lock clean
.DEFAULT_GOAL := help

help: ## List these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1	\2/' | expand -t 20

demo: $(VENV)/.runtime ## Set up and see five agents at work on this repository: no key, no network
	@$(BIN)/retinue demo

test: $(VENV)/.dev $(TOOLS)/.pi $(TOOLS)/.mcp $(TOOLS)/.browser $(TOOLS)/.axe ## Set up and run every test
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

test-hosts: $(VENV)/.dev $(TOOLS)/.hosts ## Install Claude Code, Codex, Gemini CLI and opencode (1 GB) and ask each if it sees us
	RETINUE_REQUIRE_HOSTS=1 $(BIN)/python -m pytest -v $(HOSTS)/test_programs.py $(wildcard $(HOSTS)/test_in_*.py)

check: $(VENV)/.dev ## Check format, lint, types, layers and vocabulary
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py tests/test_vocabulary.py

format: $(VENV)/.dev ## Format and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev ## Rewrite the reference pages from the code
	$(BIN)/python -m docs._generate.reference

bench: $(VENV)/.dev ## Measure speed and memory against a floor in the same run
	$(BIN)/python -m benchmarks

lock: $(VENV)/.dev ## Pin the newest dependencies, with hashes and without addresses
	$(BIN)/python -m pip install -q pip-tools
	cd requirements && ../$(BIN)/pip-compile $(LOCK) -o runtime.txt build.in ../pyproject.toml
	cd requirements && ../$(BIN)/pip-compile $(LOCK) --extra claude -o dev.txt dev.in build.in ../pyproject.toml
	$(BIN)/python $(REAL)/install.py --lock
	$(BIN)/python -m tests.servers.mcp.install --lock
	$(BIN)/python -m tests.hosts.install --lock
	$(BIN)/python -m tests.servers.dashboard.axe --lock

LOCK := -q --upgrade --generate-hashes --strip-extras --allow-unsafe --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options

clean: ## Remove what the other commands made
	rm -rf $(VENV) $(TOOLS) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements/runtime.txt pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/runtime.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.runtime
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

# The real pi, for the tests that run it. Without a registry it says so, makes nothing, and is tried again next time.
$(TOOLS)/.pi: $(REAL)/install.py $(wildcard $(REAL)/pi-*/package-lock.json $(REAL)/pi-*/.npmrc) | $(VENV)/.dev
	$(BIN)/python $(REAL)/install.py $(TOOLS)

# The official MCP suite and inspector, in the same way.
$(TOOLS)/.mcp: $(CLIENTS)/install.py $(wildcard $(CLIENTS)/clients/*) | $(VENV)/.dev
	$(BIN)/python -m tests.servers.mcp.install $(TOOLS)

# Programs that Retinue is installed into; only `make test-hosts` wants them.
$(TOOLS)/.hosts: $(HOSTS)/install.py $(wildcard $(HOSTS)/programs/*) | $(VENV)/.dev
	$(BIN)/python -m tests.hosts.install $(TOOLS)

# A Chromium, for the tests of the dashboard: one that is there, or the system's own package.
$(TOOLS)/.browser: $(DASHBOARD)/install.py | $(VENV)/.dev
	$(BIN)/python -m tests.servers.dashboard.install $(TOOLS)

# What judges whether everyone can use it.
$(TOOLS)/.axe: $(DASHBOARD)/axe.py $(wildcard $(DASHBOARD)/axe/*) | $(VENV)/.dev
	$(BIN)/python -m tests.servers.dashboard.axe $(TOOLS)
