# Every task of this repository; `make` alone lists them. Python >= 3.11 and make are enough: the targets
# create .venv themselves. Written for GNU make 3.81 (macOS) and later.

SHELL := /bin/sh

# The interpreter for .venv: the caller's choice, or else the first of these that runs and is new enough.
# (A name on PATH proves little: a pyenv shim exists for inactive versions, too.)
PYTHON ?=
PYTHONS = python3.14 python3.13 python3.12 python3.11 python3

# For `make test`: the number of test processes, and COVERAGE=1 to measure. For most targets: ARGS.
# Three times the processors, up to eight: tests of real processes wait more than they compute. Unit tests only compute, and
# each further process imports and collects all of them.
processors := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
JOBS ?= $(shell n=$(processors); if [ $$n -ge 3 ]; then echo 8; else echo $$((3 * n)); fi)
UNIT_JOBS ?= $(shell n=$(processors); if [ $$n -ge 8 ]; then echo 8; else echo $$n; fi)
COVERAGE ?=
COVERAGE_GATE ?= 92
ARGS ?=

# The demo runs in the whole environment where that is installed.
demo_venv := $(if $(wildcard .venv/ready),.venv/ready,.venv/demo)

# For `make chaos`.
MINUTES ?= 1
SEED ?=
ORDERS ?= 100
PROCESSES ?= 4
SOURCES ?= 3

# A pip configured to install for the user refuses to install into a virtual environment.
export PIP_USER = 0
export PIP_DISABLE_PIP_VERSION_CHECK = 1

# Tests start hundreds of Python processes. Without cached bytecode each of them compiles this project again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' Makefile | while read -r target text; do \
		echo "$$text" | fold -s -w 52 | while read -r line; do \
			printf '  %-25s %s\n' "$${target:+make $$target}" "$$line"; target=; \
		done; \
	done
	@echo
	@echo '  PYTHON=python3.12 chooses the interpreter for .venv'

.PHONY: demo
demo: $(demo_venv)  ## real servers, 10,000 real orders, two workers, a reconciliation; ARGS="--help" for options
	@exec .venv/bin/ingest demo $(ARGS)

.PHONY: test
test: .venv/ready servers  ## lint, all tests and the coverage gate; with ARGS="tests/unit -k retry" only those tests; COVERAGE=1 measures
	@$(steps); $(if $(ARGS),$(selection_steps),$(lint_steps); $(all_steps); $(ablation_steps)); $(verdict)

.PHONY: nightly
nightly: .venv/ready servers  ## all tests on each kind of Redis, with each HTTP client and each benchmark; half an hour
	@INGEST_TEST_NIGHTLY=on exec .venv/bin/python $(pytest) $(ARGS)

.PHONY: unit
unit: .venv/ready  ## the unit tests alone, in a quarter of a minute: no server, no lint, few examples; ARGS="-k retry"
	@QUOTA_SCENARIOS=10 exec .venv/bin/python -m pytest -q -n 2 --dist worksteal --hypothesis-profile=quick tests/unit $(ARGS)

.PHONY: coverage
coverage: .venv/ready  ## branch coverage of domain and flow by the unit tests; fails under COVERAGE_GATE percent
	@$(steps); $(gate_steps); $(verdict)

.PHONY: test-deploy
test-deploy: .venv/ready  ## the image and docker-compose.yml on a Docker engine; root on Debian 12; ARGS="--plots FOLDER"
	@PYTHONPATH=tests exec .venv/bin/python -P -m deploy $(ARGS)

.PHONY: kubernetes
kubernetes: .venv/ready  ## check deploy/kubernetes for each release of Kubernetes; gets kubectl and kube-score where they are missing
	@tools=$$(tests/deploy/kubernetes/get.sh) && PATH="$$tools:$$PATH" .venv/bin/python tests/deploy/kubernetes/check.py

.PHONY: kubernetes-apiserver
kubernetes-apiserver: .venv/ready  ## apply deploy/kubernetes to a real API server, which is built once, in some minutes; root on Debian
	@tools=$$(tests/deploy/kubernetes/get.sh apiserver) && PATH="$$tools:$$PATH" .venv/bin/python tests/deploy/kubernetes/apply.py

.PHONY: kubernetes-rules
kubernetes-rules: .venv/ready  ## generate the PrometheusRule and the files of Redis in deploy/kubernetes from those of Docker Compose
	@.venv/bin/python deploy/kubernetes/generate.py

.PHONY: servers
servers: .venv/ready  ## get the Redis 7 and 8, PostgreSQL 15, PgBouncer and Chromium that tests use, once, into ~/.cache
	@PYTHONPATH=tests .venv/bin/python -P -m servers.get

.PHONY: lint
lint: .venv/ready  ## check code, types, import rules, Dockerfile, compose file, workflow
	@$(steps); $(lint_steps); $(verdict)

.PHONY: fmt
fmt: .venv/ready  ## format the code and apply ruff's fixes
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

.PHONY: bench
bench: .venv/ready  ## benchmark the service against a bare loop; ARGS="patterns --orders 1000" for another benchmark
	@exec .venv/bin/ingest bench $(or $(ARGS),pipeline --vs bare)

.PHONY: evidence
evidence: .venv/ready  ## run the load tests of docs/explanation/load-tests.md again, and compare; needs Go; ARGS="--only HTTP"
	@cd tests && exec ../.venv/bin/python -m rehearsals.evidence $(ARGS)

.PHONY: chaos
chaos: .venv/ready  ## chaos testing for MINUTES=1 or HOURS=1: random faults, and no order may be lost; SEED=… repeats a run; ARGS="--topology cluster"
	@cd tests && exec ../.venv/bin/python -m chaos --minutes $(if $(HOURS),$$(( $(HOURS) * 60 )),$(MINUTES)) $(if $(SEED),--seed $(SEED)) \
		--orders $(ORDERS) --processes $(PROCESSES) --sources $(SOURCES) $(ARGS)

.PHONY: simulate
simulate: .venv/ready  ## random stories of workers in virtual time, SEEDS=2000 of them, and no order may be lost; SEED=17 plays one with its logs
	@cd tests && exec ../.venv/bin/python -m simulation --seeds $(or $(SEEDS),2000) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: ablation
ablation: .venv/ready servers  ## remove each safeguard alone, and expect its tests to notice; half an hour; ARGS=--list, ARGS="--only NAME"
	@cd tests && exec ../.venv/bin/python -m ablation $(ARGS)

.PHONY: crash
crash: .venv/ready servers  ## kill announcing processes, and Redis with what its disk has not, 1,000 times; ARGS="-k redis-8"
	@INGEST_TEST_KILLS=1000 exec .venv/bin/python -m pytest -q -s tests/crash/test_confirmed.py $(ARGS)

.PHONY: faults
faults: .venv/ready servers  ## failures of a Redis Cluster and of Sentinels at 1,000 orders/s; root on Linux, 20 minutes; ARGS="-k valkey"
	@INGEST_TEST_FAULTS=full exec .venv/bin/python -m pytest -q -s -n 0 tests/acceptance/test_cluster_faults.py \
		tests/acceptance/test_sentinel_faults.py $(ARGS)

.PHONY: browser
browser: .venv/ready servers  ## the console in a real browser, with pictures of each page in build/pictures; ARGS="-k orders"
	@INGEST_TEST_PICTURES=build/pictures exec .venv/bin/python -m pytest -q -n 2 tests/browser $(ARGS)

.PHONY: traces
traces: .venv/ready servers  ## a trace in a real OpenTelemetry Collector and Zipkin, with a picture; needs Go, Java and Maven, 10 minutes once
	@cd tests && exec ../.venv/bin/python -m traces.show $(ARGS)

.PHONY: alerts
alerts: .venv/ready  ## cause each alert on a real Prometheus and Alertmanager, 20 times as fast, and end it; ARGS="--deployment kubernetes --speed 5"
	@cd tests && exec ../.venv/bin/python -m rehearsals.alerting $(ARGS)

.PHONY: scale
scale: .venv/ready servers  ## the cost of each call in a Redis with 5,000,000 queued orders, on every server; 15 minutes
	@INGEST_TEST_SCALE=full INGEST_TEST_NIGHTLY=on exec .venv/bin/python -m pytest -q -s tests/rehearsals/scale/test_call_costs.py $(ARGS)

.PHONY: on-call
on-call: .venv/ready servers  ## twelve situations of an operator on call, repaired by commands alone and on the console alone; prints the steps; ARGS="-k slow"
	@INGEST_TEST_ON_CALL=full exec .venv/bin/python -m pytest -q -s -n 0 tests/acceptance/test_on_call.py \
		tests/browser/test_on_call_by_console.py $(ARGS)

.PHONY: fleet
fleet: .venv/ready servers  ## the cost of 1,000 worker processes for Redis; ARGS="--rate 5000 --processes 100 --nodes 6 --partitions 6"
	@cd tests && exec ../.venv/bin/python -m rehearsals.scale.measure $(ARGS)

.PHONY: many-sources
many-sources: .venv/ready  ## connections, CPU and /metrics of 1, 50, 200 and 400 sources in one process, and a burst; ARGS="--sources 200"
	@cd tests && exec ../.venv/bin/python -m rehearsals.scale.many_sources $(ARGS)

.PHONY: neighbours
neighbours: .venv/ready  ## how long orders of one source wait beside another with large bodies, gzip bombs and killed processes; ARGS="--busy 2"
	@cd tests && exec ../.venv/bin/python -m rehearsals.scale.neighbours $(ARGS)

.PHONY: nodes
nodes: .venv/ready  ## throughput of a Redis Cluster with 1, 2 and 4 nodes of equal CPU shares, and the CPU of an order; root on Linux
	@cd tests && exec ../.venv/bin/python -m rehearsals.scale.nodes $(ARGS)

.PHONY: node-faults
node-faults: .venv/ready servers  ## orders stored by node of a cluster while one node is slow, frozen, gone and more; ARGS="--trouble slow"
	@cd tests && exec ../.venv/bin/python -m rehearsals.scale.node_faults $(ARGS)

.PHONY: rolling
rolling: .venv/ready  ## throughput each second while all workers are replaced by another release; ARGS="--workers 10"
	@cd tests && exec ../.venv/bin/python -m rehearsals.scale.rolling $(ARGS)

.PHONY: lost-tail
lost-tail: .venv/ready servers  ## confirmed orders that a failover loses, by durability; root on Linux, 15 minutes; ARGS="--topology cluster"
	@cd tests && exec ../.venv/bin/python -m rehearsals.scale.lost_tail $(ARGS)

.PHONY: partitioned-orders
partitioned-orders: .venv/ready  ## a large table of orders beside the same in partitions; 40 GB of disk; ARGS="--orders 50000000"
	@cd tests && exec ../.venv/bin/python -m rehearsals.scale.partitioned_orders $(ARGS)

.PHONY: rehearse-containers
rehearse-containers: .venv/ready  ## ten workers with 0.1 CPU and 256 MiB each under load; root on Linux; ARGS="--rate 600"
	@cd tests && exec ../.venv/bin/python -m rehearsals.scale.small_containers $(ARGS)

.PHONY: rehearse-hosts
rehearse-hosts: .venv/ready  ## three hosts with 15 processes each, one of them cut off for a minute; root on Linux; ARGS="--burst 5000"
	@cd tests && exec ../.venv/bin/python -m rehearsals.scale.three_hosts $(ARGS)

.PHONY: rehearse-autoscaling
rehearse-autoscaling: .venv/ready  ## workers by KEDA's manifest and a real Prometheus, from none to none; root on Linux; ARGS="--speed 4"
	@cd tests && exec ../.venv/bin/python -m rehearsals.scale.autoscaling $(ARGS)

.PHONY: dashboards
dashboards: .venv/ready  ## generate deploy/grafana/dashboards from its code
	.venv/bin/python deploy/grafana/generate.py

.PHONY: reference
reference: .venv/ready  ## generate the pages of docs/reference that are made from the code
	@cd tests && exec ../.venv/bin/python -m docs.reference

.PHONY: pictures
pictures:  ## write the pictures of docs/explanation/architecture from their text; needs Graphviz (dot)
	@for source in docs/explanation/architecture/*.dot; do \
		echo "dot $$source"; dot -Tsvg "$$source" >"$${source%.dot}.svg.new" || { rm "$${source%.dot}.svg.new"; exit 1; }; \
		mv "$${source%.dot}.svg.new" "$${source%.dot}.svg"; \
	done

.PHONY: docs
docs: .venv/ready  ## build the documentation site into build/docs, and check its links; ARGS="-b linkcheck" asks other sites, too
	@rm -rf build/docs  # pages that have moved
	@.venv/bin/python -m sphinx -q -W --keep-going -j auto $(or $(ARGS),-b html) -d build/doctrees docs build/$(if $(ARGS),docs-checked,docs)
	@$(if $(ARGS),:,cd tests && exec ../.venv/bin/python -m docs.links ../build/docs)

.PHONY: screenshots
screenshots: .venv/ready servers  ## write the pictures in docs/_static from a running system, in 5 minutes; needs Prometheus
	@cd tests && exec ../.venv/bin/python -m docs.pictures ../docs/_static

.PHONY: release
release: .venv/ready  ## check tag, version and changelog; build sdist, wheel, image and SBOM into dist; ARGS=--rehearse
	@exec .venv/bin/python deploy/release/release.py $(ARGS)

.PHONY: lock
lock: .venv/ready  ## pin pyproject.toml's dependencies again; ARGS=--upgrade for newer ones
	$(compile) --extra embedded --extra bench --extra ed25519 --extra credentials --extra otel --group dev --output-file requirements-dev.lock $(ARGS) pyproject.toml
	$(compile) --extra embedded --group build --constraints requirements-dev.lock --output-file requirements-demo.lock pyproject.toml
	$(compile) --extra ed25519 --extra credentials --extra otel --constraints requirements-dev.lock --output-file requirements.lock pyproject.toml
	$(compile) --group build --constraints requirements-dev.lock --output-file requirements-build.lock

.PHONY: python
python:  ## the interpreter that .venv is made with
	@$(find_python); "$$python" -c 'import sys; print("Python", sys.version.split()[0], "at", sys.executable)'

.PHONY: clean
clean:  ## remove .venv, caches and build output
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf .coverage .coverage.* htmlcov build dist
	find . -name .git -prune -o -name __pycache__ -type d -exec rm -rf {} +


# ---- Checks: each step prints its name, all of them run, and the last line is the verdict ----

steps = failed=; \
	step() { \
		name=$$1; shift; \
		printf '\n== %s: %s\n' "$$name" "$$*"; \
		"$$@" || failed="$$failed$${failed:+, }$$name"; \
	}

lint_steps = \
	step 'ruff check' .venv/bin/ruff check .; \
	step 'ruff format' .venv/bin/ruff format --check .; \
	step 'mypy' .venv/bin/mypy --num-workers auto; \
	step 'import-linter' .venv/bin/lint-imports --no-logo; \
	step 'hadolint' .venv/bin/hadolint Dockerfile; \
	step 'yamllint' .venv/bin/yamllint --strict .; \
	step 'systemd units' .venv/bin/python tests/deploy/check_units.py; \
	step 'kubernetes' .venv/bin/python tests/deploy/kubernetes/check.py --if-at-hand; \
	step 'compose schema' .venv/bin/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml; \
	step 'workflow schema' .venv/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

pytest = -m pytest -q -n $(JOBS) --dist worksteal --durations=10

# In a fresh clone, one process compiles the tests for all of pytest's workers, which would otherwise each do it.
compile_tests = $(if $(wildcard tests/__pycache__),,.venv/bin/python -m pytest -qq --collect-only >/dev/null || true;)

selection_steps = $(if $(COVERAGE),$(call measured,$(ARGS)),step 'pytest' .venv/bin/python $(pytest) $(ARGS))

all_steps = $(compile_tests) $(if $(COVERAGE),$(call measured),$(gate_steps); step 'other tests' .venv/bin/python $(pytest) --ignore tests/unit)

# The unit tests run once, measured: they alone have to reach all but a little of domain and flow.
gate_steps = \
	.venv/bin/coverage erase; \
	step 'unit tests' .venv/bin/coverage run --source ingest.domain,ingest.flow $(pytest) -n $(UNIT_JOBS) tests/unit $(ARGS); \
	step 'coverage combine' .venv/bin/coverage combine --quiet; \
	step 'coverage of domain and flow' .venv/bin/coverage report --skip-covered --fail-under $(COVERAGE_GATE)

# Every process writes its own data file: pytest's workers, and the commands that tests start.
measured = \
	.venv/bin/coverage erase; \
	step 'pytest' .venv/bin/coverage run $(pytest) $(1); \
	step 'coverage combine' .venv/bin/coverage combine --quiet; \
	step 'coverage report' .venv/bin/coverage report --skip-covered --show-missing

# A tenth of the safeguards, another one each day.
ablation_steps = step 'ablation' env PYTHONPATH=tests .venv/bin/python -P -m ablation --part today

verdict = \
	if [ -n "$$failed" ]; then printf '\nFAILED: %s\n' "$$failed"; exit 1; fi; \
	printf '\nall passed\n'


# ---- The locks: every version and hash, no registry's address ----

compile = .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --annotation-style line --custom-compile-command 'make lock'


# ---- The virtual environment ----
# The demo needs a few packages; tests, checks and benchmarks need many more. Either target installs what .venv
# lacks and writes a stamp: .venv/demo or .venv/ready. Once everything is installed, only .venv/ready counts.

# A .venv belongs to one Python and one folder (its scripts name both). The stamps hold this line, so .venv is
# created again after an interrupted install, a move or copy, or a change of Python.
identity = import os, sys; print("Python %d.%d in" % sys.version_info[:2], os.getcwd())

unfit := $(shell \
	stamp=$$(cat .venv/ready 2>/dev/null || cat .venv/demo 2>/dev/null) || echo unfit; \
	for python in .venv/bin/python "$(PYTHON)"; do \
		[ -n "$$python" ] || continue; \
		actual=$$("$$python" -ISc '$(identity)' 2>/dev/null); \
		[ "$$actual" = "$$stamp" ] || echo unfit; \
	done)

.venv/ready: requirements-dev.lock pyproject.toml $(if $(unfit),always) | venv
	@$(call install,$<,$@)

.venv/demo: requirements-demo.lock pyproject.toml $(if $(unfit),always) | venv
	@[ -e .venv/ready ] || { $(call install,$<,$@); }

# Two simultaneous installs (`make -j demo test`) would corrupt .venv.
.NOTPARALLEL:

.PHONY: venv
venv:
	@$(if $(unfit),set -e; $(find_python); \
	echo "creating .venv with $$("$$python" -c 'import sys; print("Python", sys.version.split()[0])')"; \
	rm -rf .venv; \
	$(make_venv),:)

.PHONY: always
always:

find_python = \
	python=; \
	for name in $(if $(PYTHON),"$(PYTHON)",$(PYTHONS)); do \
		if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
			python=$$name; break; \
		fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo 'needs Python >= 3.11; tried $(or $(PYTHON),$(PYTHONS)). Say where it is: PYTHON=/path/to/python3' >&2; \
		exit 1; \
	fi

# Debian's python3 comes without ensurepip, which venv needs; other tools bring a pip of their own.
make_venv = \
	"$$python" -m venv .venv >/dev/null 2>&1 \
	|| "$$python" -m virtualenv --quiet --clear .venv 2>/dev/null \
	|| virtualenv --quiet --clear --python "$$python" .venv 2>/dev/null \
	|| uv venv --quiet --clear --seed --python "$$python" .venv 2>/dev/null \
	|| "$$python" -m venv --clear --without-pip .venv

find_pip = \
	if .venv/bin/python -m pip --version >/dev/null 2>&1; then \
		pip() { .venv/bin/python -m pip "$$@"; }; \
	elif "$$python" -m pip --python .venv/bin/python --version >/dev/null 2>&1; then \
		pip() { "$$python" -m pip --python .venv/bin/python "$$@"; }; \
	else \
		echo "$$python has neither ensurepip nor pip: install python3-venv (Debian, Ubuntu) or python3-pip" >&2; \
		exit 1; \
	fi

# $(1): the lock; $(2): the stamp. The stamps are removed first, so that an interrupted install leaves none.
# Of pip's output only package names are shown, as progress. Errors go to stderr unchanged. pip would compile everything, which
# takes as long as the rest. Of the large packages little is imported; Python compiles that when it is.
mostly_unused = /(tests|PIL|fontTools|grafana_foundation_sdk|matplotlib|mpl_toolkits|mypyc?|numpy|pip|pkg_resources|pygments|setuptools|valkey)/
install = \
	set -e; $(find_python); $(find_pip); \
	rm -f .venv/ready .venv/demo .venv/installed; \
	{ \
		pip install --progress-bar off --no-compile --require-hashes --requirement $(1) \
		&& pip install --quiet --no-deps --no-build-isolation --editable . \
		&& { .venv/bin/python -m compileall -q -x '$(mostly_unused)' .venv/lib >/dev/null || true; } \
		&& touch .venv/installed; \
	} | while read -r verb name _; do \
		case $$verb in \
			Collecting) printf ' %s' "$${name%%[=;<>]*}" ;; \
			Installing) printf '\n installing' ;; \
		esac; \
	done; \
	echo; \
	[ -e .venv/installed ]; \
	.venv/bin/python -ISc '$(identity)' >$(2); \
	echo '.venv is ready'
