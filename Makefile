# The commands of a working day. `make run` and `make test` prepare the machine themselves.
# Everything builds into one target directory with one profile.

SHELL := /bin/bash
CARGO ?= cargo
TESTS ?=
BUILT := $(or $(CARGO_TARGET_DIR),target)/debug

.PHONY: run test check lint format cases chain load setup-run setup-test build clean

## Build and start the gateway in front of a small payments service; prints curl lines to paste.
run: setup-run build
	@exec $(BUILT)/oncegate demo

## The whole test suite, with the real Redis servers it starts itself.
test: setup-test build
	$(CARGO) test --locked --workspace --no-fail-fast $(TESTS)

## Formatting and lints, as CI runs them.
lint: setup-run
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

format:
	$(CARGO) fmt --all

## The black-box cases on both stores; last line: `cases: N passed, M failed, K skipped`.
cases: setup-test build
	@$(BUILT)/cases

## Four charges, two, one, one: what one key through every hop is worth.
chain: setup-test build
	@$(BUILT)/chain

## Thirty seconds of load with a reload every second and plugin swaps in between.
load: setup-test build
	ONCEGATE_LOAD_SECONDS=30 $(CARGO) test --locked -p oncegate-tests --test reload -- --nocapture

build:
	$(CARGO) build --locked --workspace --bins

setup-run:
	@deploy/setup.sh run

setup-test:
	@deploy/setup.sh test

clean:
	$(CARGO) clean
