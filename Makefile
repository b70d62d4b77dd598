# The commands people and scripts type. Each target does what it needs first; see docs/hacking.md.
# JOBS: how many compilers run at once.  DEMO_EXIT=1: the demo ends by itself.
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
FUZZ_EACH ?=
SOAK_SECONDS ?= 1800

.PHONY: help setup build demo test faults soak engine-test bench bench-peers fuzz lint format coverage clean
.PHONY: setup-ship setup-page dist deb chart-test rootfs-test watch-test page-test test-ship docs docs-test

help:
	@echo 'make setup   install what is missing (apt packages, .venv with Envoy)'
	@echo 'make build   build/release/grid-gateway and build/release/libgrid_site_route.so'
	@echo 'make demo    three simulated sites, the gateway, one conversation; DEMO_EXIT=1 ends by itself'
	@echo 'make test    everything that must pass before a commit; closes with "N passed, N failed"'
	@echo 'make faults  sites, files, names, clock and network that fail under load; closes with a table'
	@echo 'make soak    mixed traffic for SOAK_SECONDS (1800): memory, descriptors and counters over a long time'
	@echo 'make engine-test  the gateway in front of two real engines (vllm on the CPU): SDKs, caches, load, a restart; installs 5 GB'
	@echo 'make bench   the figures, as ratios from one run'
	@echo 'make bench-peers  ours beside Envoy, nginx, HAProxy and routers that know prefix caches, in one run'
	@echo 'make fuzz    the fuzz targets for FUZZ_SECONDS (60) in all, or for FUZZ_EACH seconds each'
	@echo 'make lint    format, layers, style, clang-tidy'
	@echo 'make format  rewrite the sources by .clang-format'
	@echo 'make coverage  lines covered by the unit tests, a file a line'
	@echo 'make docs    the pages as a site, into build/site'
	@echo 'make docs-test   what the pages say, tried: commands, fields, metrics, links, man pages, the site'
	@echo 'make dist    the wheel, into dist/'
	@echo 'make deb     the Debian package, into dist/'
	@echo 'make page-test   the page of the ops listener, in Chromium; pictures of it into build/page/'
	@echo 'make chart-test  the chart, rendered and checked'
	@echo 'make watch-test  dashboard and alerts against a running gateway'
	@echo 'make rootfs-test the image, from the lines of deploy/Containerfile'
	@echo 'make test-ship   all of these and docs-test: built, installed and tried'
	@echo 'make setup-ship, setup-page  install what these need; they call it themselves'
	@echo 'make clean   remove build/'

setup:
	@scripts/setup

build: setup
	@TARGETS='grid_cli grid_envoy' scripts/build release
	@scripts/check-abi >build/logs/abi.log || { cat build/logs/abi.log; exit 1; }

demo: build
	@PATH="$(CURDIR)/.venv/bin:$$PATH" build/release/grid-gateway demo

test: setup
	@scripts/setup-ship --chart
	@scripts/test

# Faults under load. Closes with a table: what was sent, answered and failed, where, and the gateway's own counters.
faults: build
	@timeout 900 .venv/bin/python -m pytest -q -p no:cacheprovider tests/faults

# Fails when memory, descriptors or counters are not what they must be; tests/soak/run --help.
soak: build
	@.venv/bin/python tests/soak/run --seconds $(SOAK_SECONDS)

engine-test: build
	@tests/engine/run

bench: build
	@scripts/build release
	@.venv/bin/python tests/bench/run

# Routers from packages, installed by the script; not in CI.
bench-peers: setup build
	@scripts/setup-peers
	@scripts/build release
	@.venv/bin/python tests/bench/peers

fuzz: setup
	@scripts/build fuzz
	@scripts/fuzz $(if $(FUZZ_EACH),--each $(FUZZ_EACH),$(FUZZ_SECONDS))

lint: setup
	@scripts/lint

format: setup
	@scripts/sources | xargs clang-format-14 -i

clean:
	rm -rf build

coverage: setup
	@scripts/build coverage
	@ctest --preset coverage --output-log build/logs/coverage.log >/dev/null
	@gcovr --root . --filter core/ --filter envoy/ --exclude-unreachable-branches build/coverage

# ---- packages, chart, dashboards: each target has a limit of its own; test-ship is all of them ----

PYTEST_SHIP = .venv/bin/python -m pytest -q -p no:cacheprovider

setup-ship: setup
	@scripts/setup-ship

dist: setup-ship
	@timeout 600 scripts/dist

deb: setup-ship
	@timeout 600 scripts/deb

chart-test: setup-ship build
	@timeout 600 $(PYTEST_SHIP) tests/chart

watch-test: setup-ship build
	@timeout 600 $(PYTEST_SHIP) tests/ship/test_watch.py

rootfs-test: setup-ship
	@timeout 1200 $(PYTEST_SHIP) tests/ship/test_image.py

docs:
	@timeout 300 scripts/docs

docs-test: setup-ship build docs
	@timeout 600 $(PYTEST_SHIP) tests/docs

setup-page: setup
	@scripts/setup-page

page-test: setup-page build
	@timeout 600 $(PYTEST_SHIP) tests/page

test-ship: build dist deb docs setup-page
	@timeout 2400 $(PYTEST_SHIP) tests/ship tests/chart tests/docs tests/page
