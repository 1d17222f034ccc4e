# Commands for people and CI. `make` alone lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TOOLS := .tools
REAL := tests/real
CLIENTS := tests/servers/mcp
HOSTS := tests/hosts
DASHBOARD := tests/servers/dashboard
SANDBOX := tests/engines/sandbox
SITE := $(TOOLS)/site
# Tests wait for processes a sixth of the time: half as many workers again as processors, but no more than four.
WORKERS := $(shell n=$$(getconf _NPROCESSORS_ONLN); n=$$((n + n / 2)); [ $$n -lt 4 ] && echo $$n || echo 4)
# Without byte code imports are two to five times slower.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-hosts check format docs docs-site bench chaos lock clean
.DEFAULT_GOAL := help

help: ## List these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1	\2/' | expand -t 20

demo: $(VENV)/.runtime ## Set up and run five agents on this repository: no key, no network
	@$(BIN)/retinue demo

test: $(VENV)/.dev $(TOOLS)/.pi $(TOOLS)/.mcp $(TOOLS)/.browser $(TOOLS)/.axe $(TOOLS)/.bubblewrap ## Set up and run every test
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-hosts: $(VENV)/.dev $(TOOLS)/.hosts ## Install Claude Code, Codex, Gemini CLI and opencode (1 GB), uv, pipx and MCP libraries, and check that each starts Retinue
	REQUIRE_HOSTS=1 $(BIN)/python -m pytest -v $(HOSTS)/test_programs.py $(wildcard $(HOSTS)/test_in_*.py) $(HOSTS)/test_libraries.py

check: $(VENV)/.dev ## Check format, lint, types, layers and vocabulary
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py tests/test_vocabulary.py

format: $(VENV)/.dev ## Format, and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev ## Rewrite the reference pages from the code
	$(BIN)/python -m docs._generate.reference

docs-site: $(SITE)/.installed ## Build the documentation site in build/docs/site
	$(SITE)/bin/python -m docs._generate.site

bench: $(VENV)/.dev ## Measure speed and memory against a floor in the same run
	$(BIN)/python -m benchmarks

chaos: $(VENV)/.dev $(TOOLS)/chaos/.installed ## Attack Retinue for CHAOS_MINUTES (5) with CHAOS_SEED, and print what held
	$(BIN)/python -m chaos $(CHAOS)

lock: $(VENV)/.dev ## Pin the newest dependencies, with hashes and without addresses
	$(BIN)/python -m pip install -q pip-tools
	cd requirements && ../$(BIN)/pip-compile $(LOCK) -o runtime.txt build.in ../pyproject.toml
	cd requirements && ../$(BIN)/pip-compile $(LOCK) --extra claude -o dev.txt dev.in build.in ../pyproject.toml
	cd requirements && ../$(BIN)/pip-compile $(LOCK) -o site.txt site.in
	cd requirements && ../$(BIN)/pip-compile $(LOCK) -o chaos.txt chaos.in
	$(BIN)/python $(REAL)/install.py --lock
	$(BIN)/python -m tests.servers.mcp.install --lock
	$(BIN)/python -m tests.hosts.install --lock
	$(BIN)/python -m tests.servers.dashboard.axe --lock

LOCK := -q --upgrade --generate-hashes --strip-extras --allow-unsafe --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options

clean: ## Remove everything the other commands created
	rm -rf $(VENV) $(TOOLS) build .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements/runtime.txt pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/runtime.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.runtime
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

# The real pi, for the tests that run it. Without a registry it prints that, creates nothing, and is tried again.
$(TOOLS)/.pi: $(REAL)/install.py $(wildcard $(REAL)/pi-*/package-lock.json $(REAL)/pi-*/.npmrc) | $(VENV)/.dev
	$(BIN)/python $(REAL)/install.py $(TOOLS)

# The official MCP conformance suite and inspector.
$(TOOLS)/.mcp: $(CLIENTS)/install.py $(wildcard $(CLIENTS)/clients/*) | $(VENV)/.dev
	$(BIN)/python -m tests.servers.mcp.install $(TOOLS)

# Host programs, for `make test-hosts` only.
$(TOOLS)/.hosts: $(HOSTS)/install.py $(wildcard $(HOSTS)/programs/*) | $(VENV)/.dev
	$(BIN)/python -m tests.hosts.install $(TOOLS)

# A Chromium for the tests of the dashboard: the one on the PATH, or the package of the system.
$(TOOLS)/.browser: $(DASHBOARD)/install.py | $(VENV)/.dev
	$(BIN)/python -m tests.servers.dashboard.install $(TOOLS)

# bubblewrap, for the tests of the sandbox: the one on the PATH, or the package of the system.
$(TOOLS)/.bubblewrap: $(SANDBOX)/install.py | $(VENV)/.dev
	$(BIN)/python -m tests.engines.sandbox.install $(TOOLS)

# axe-core, which checks the accessibility of the dashboard.
$(TOOLS)/.axe: $(DASHBOARD)/axe.py $(wildcard $(DASHBOARD)/axe/*) | $(VENV)/.dev
	$(BIN)/python -m tests.servers.dashboard.axe $(TOOLS)

# The generator of the documentation site.
$(SITE)/.installed: requirements/site.txt
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/site.txt
	@touch $@

# Schemathesis, for `make chaos` only.
$(TOOLS)/chaos/.installed: requirements/chaos.txt
	$(PYTHON) -m venv $(TOOLS)/chaos
	$(TOOLS)/chaos/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/chaos.txt
	@touch $@
