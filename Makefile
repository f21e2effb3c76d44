# `make demo` shows what fallow makes of a simulated fleet, `make test` checks everything; both set themselves up.

SHELL = /bin/sh
BIN = .venv/bin
DEMO_ARGS =
FLEET_ARGS =
PYTEST_ARGS =
NAMES =
PROSE_ARGS =
UPGRADE =
# another Python than python3: make test PYTHON=python3.12
export PYTHON
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-all fuzz mutations attack fleet audit bench calibrate docs lint-prose sbom lock clean
.DEFAULT_GOAL = help

help:
	@echo 'make demo    simulate a fleet and serve its pages (DEMO_ARGS=--no-serve: only write them, to demo/)'
	@echo 'make test    lint, types, import contracts and the tests (PYTEST_ARGS=tests/core: these tests only)'
	@echo 'make test-all the tests that take long: real servers, browsers, endurance, faults, fuzz; then the wheel'
	@echo 'make fuzz    the property tests over new random examples (PYTEST_ARGS=tests/ledger: these tests only)'
	@echo 'make mutations breaks the code on purpose, and says whether the tests notice'
	@echo 'make attack  tries again what once hurt, over loopback (NAMES="abandoned many-windows": these attacks only)'
	@echo 'make fleet   runs the agents of 50 hosts through ten days, with troubles (FLEET_ARGS="--hosts 8 --store s3": otherwise)'
	@echo 'make audit   looks the locked packages up in the databases of known vulnerabilities'
	@echo 'make bench   measure what the docs claim'
	@echo 'make calibrate measure what findings promise against what became of it, and write docs/calibration.md'
	@echo 'make docs    write the generated parts of docs/ again'
	@echo 'make lint-prose counts words to avoid and long sentences (PROSE_ARGS="--list docs/": shows them there)'
	@echo 'make sbom    write what fallow is made of, with licences, to requirements/sbom/ (after make lock)'
	@echo 'make lock    resolve requirements/*.txt again (UPGRADE=--upgrade: to the newest versions)'
	@echo 'make clean   remove everything that the others made, .venv included'
	@echo 'PYTHON=python3.12 chooses the Python that .venv is made with (3.11 to 3.13).'

demo:
	@requirements/install.sh all
	@$(BIN)/fallow demo --out demo $(DEMO_ARGS)

# the tests write small files by the thousand, each of which waits for the disk: in memory, where there is much of it, none does
IN_MEMORY = $(shell df -k /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 8000000 {print "-p /dev/shm"}')

# a test driver is compiled: with the system's C compiler, else with the one in the ziglang package
INSTALL = if command -v cc >/dev/null; then requirements/install.sh dev; else requirements/install.sh dev ziglang; fi; $(BIN)/python -m tests.deploy.kube_tools
STEP = step() { heading=$$1; shift; printf '\n== %s\n' "$$heading"; "$$@"; }
TEMPORARY = temporary=$$(mktemp -d $(IN_MEMORY)); chmod 1777 "$$temporary"; trap 'rm -rf "$$temporary"' EXIT; trap 'exit 130' INT TERM
# workers share the CPUs, so that each computes with one thread
PYTEST = env TMPDIR="$$temporary" POLARS_MAX_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile
WORKERS = 2

test:
	@start=$$(date +%s); set -e; failed=; $(INSTALL); $(STEP); $(TEMPORARY); \
	step 'lint' $(BIN)/ruff check .; \
	step 'format' $(BIN)/ruff format --check .; \
	$(BIN)/mypy --python-version 3.10 -p fallow -p agent >"$$temporary/types" 2>&1 & older=$$!; \
	step 'types' $(BIN)/mypy -p fallow -p analytics -p dashboard; \
	wait $$older || failed=$$?; step 'types on Python 3.10' cat "$$temporary/types"; [ -z "$$failed" ]; \
	step 'import contracts' $(BIN)/lint-imports; \
	step 'tests' $(PYTEST) -m 'not long and not hypothesis' $(PYTEST_ARGS); \
	printf '\nAll checks passed in %s s\n' $$(($$(date +%s) - start))

# long tests wait for servers, browsers and disks
test-all: WORKERS = 3
# with `make test` every case once
test-all:
	@start=$$(date +%s); set -e; $(INSTALL); $(STEP); $(TEMPORARY); \
	step 'long tests' $(PYTEST) -m 'long and not hypothesis' $(PYTEST_ARGS); \
	step 'properties' $(PYTEST) -m hypothesis --hypothesis-profile=more $(PYTEST_ARGS); \
	step 'wheel' $(BIN)/python tests/wheel/check.py; \
	step 'known vulnerabilities' requirements/audit.sh; \
	printf '\nAll checks passed in %s s\n' $$(($$(date +%s) - start))

# the properties over examples that no run before had; PYTEST_ARGS=tests/ledger for some of them only
fuzz:
	@requirements/install.sh dev
	@$(BIN)/python -m pytest -n $(WORKERS) -m hypothesis --hypothesis-profile=random $(PYTEST_ARGS)

mutations:
	@requirements/install.sh dev
	@$(BIN)/python -m tests.mutations

attack:
	@$(INSTALL)
	@$(TEMPORARY); FALLOW_ATTACK_FOLDER="$$temporary" $(BIN)/python -m tests.attacks $(NAMES)

# real processes by clocks of their own; on loopback, in memory where there is room
fleet:
	@$(INSTALL)
	@$(TEMPORARY); FALLOW_FLEET_FOLDER="$$temporary" $(BIN)/python -m tests.fleet $(FLEET_ARGS)

audit:
	@requirements/install.sh all
	@requirements/audit.sh

bench:
	@requirements/install.sh dev
	@$(BIN)/python -m benchmarks

calibrate:
	@requirements/install.sh dev
	@$(BIN)/python -m benchmarks.calibration
	@$(BIN)/python -m benchmarks next-week

docs:
	@requirements/install.sh dev
	@$(BIN)/python -m tests.core.pages
	@$(BIN)/python -m tests.agent.test_metrics_docs
	@$(BIN)/python -m tests.agent.test_rows
	@$(BIN)/python -m tests.plan.published_memory
	@$(BIN)/python -m tests.plan.answers

lint-prose:
	@requirements/install.sh dev
	@$(BIN)/python -m tests.language.prose $(PROSE_ARGS)

sbom:
	@requirements/install.sh dev
	@$(BIN)/python -m tests.core.sbom

# uv asks the index that pip is set to; dev takes the versions of all; what the agent needs is locked for Python 3.10 too
COMPILE = build/lock/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
	$(UPGRADE) --python-version

lock:
	@requirements/install.sh all
	@$(BIN)/python -m venv build/lock
	@build/lock/bin/pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'
	@set -e; index=$$(build/lock/bin/pip config get global.index-url 2>/dev/null || true); \
	if [ -n "$$index" ]; then export UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$$index}"; fi; \
	$(COMPILE) 3.10 pyproject.toml -o requirements/base.txt; \
	$(COMPILE) 3.11 -c requirements/base.txt pyproject.toml --extra all -o requirements/all.txt; \
	$(COMPILE) 3.10 -c requirements/all.txt requirements/build.in -o requirements/build.txt; \
	$(COMPILE) 3.11 -c requirements/all.txt pyproject.toml --extra all requirements/dev.in -o requirements/dev.txt; \
	$(COMPILE) 3.11 --no-deps requirements/kube-tools.in -o requirements/kube-tools.txt; \
	$(COMPILE) 3.11 requirements/ziglang.in -o requirements/ziglang.txt; \
	$(COMPILE) 3.11 requirements/audit.in -o requirements/audit.txt; \
	$(COMPILE) 3.11 requirements/engines.in -o requirements/engines.txt

clean:
	rm -rf .venv build dist demo .mypy_cache .ruff_cache .import_linter_cache .hypothesis .pytest_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
