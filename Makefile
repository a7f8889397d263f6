# make run    examine this host          make test   the gate: what CI runs
# make check  format, lints, unit tests  make bench  what whyslow costs a host
# make quick  changed crates, one fault, its twin, one chain of locks: two minutes after the first build
# make land   the gate on a clean clone of HEAD; target/gate-passed names the tree that passed
# make proof  statistical tests: drawn cells, live and in guests, and docs/truth.md (WHYSLOW_ALL=1: all of them;
#             SUITE=days: one suite; SUITE=smoke: new seeds for the gate's live cells)
# make capture  recordings of scenarios for tests/replay, all or some (ARGS="--scenario cpu-quota --kernel 6.12")
# make capture-days  the same for days of the proof (DAYS="file_system_frozen service_behind_relays")
# make lab    every scenario, on real kernels in guests (ARGS="...": those of lab run)
# make soak   each live scenario 20 times   make install [PREFIX=/usr/local] [DESTDIR=]

PREFIX ?= /usr/local
DESTDIR ?=
TARGET := x86_64-unknown-linux-gnu
BINARY := target/$(TARGET)/release/whyslow
LAB := target/$(TARGET)/release/lab
CARGO ?= cargo
# Cargo.lock is part of the source: the build uses the tested versions.
LOCKED := --release --locked
AS_ROOT := $(shell [ "$$(id -u)" -eq 0 ] || command -v sudo)
ARGS ?=

.PHONY: all build setup run quick check lints borders unit functional smoke test land proof soak bench install uninstall clean
.PHONY: lab lab-kernels lab-doctor lab-setup lab-build proof-setup capture capture-days

all: build

setup:
	@.ci/setup

build: setup
	$(CARGO) build $(LOCKED) -p whyslow

# Exit status 1 is an answer (a cause was found), not a failure of make.
run: build
	@$(AS_ROOT) $(BINARY) $(ARGS) || [ $$? -eq 1 ]

borders:
	@.ci/borders

lints: borders
	@.ci/words --check
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(LOCKED) --workspace --all-targets -- -D warnings

# Each test has the same draws each time. Tests that need a live host (root_) or judge a clock (timed_) run alone; tests of whyslow's
# own cost (cost_) run in make proof.
unit:
	PROPTEST_RNG_SEED=1 WHYSLOW_SEED=1 \
		$(CARGO) test $(LOCKED) --workspace --lib --bins --tests -- --skip root_ --skip ::timed_ --skip ::cost_

# All tests that run alone, except the drawn suites.
functional:
	@.ci/live live --without proof --without lock_chains

smoke:
	@.ci/live smoke crates/whyslow/tests/smoke.seeds

quick: setup
	@.ci/quick

check: setup
	@.ci/check

.PHONY: stage-build
stage-build: lints
	$(CARGO) build $(LOCKED) --workspace
	$(CARGO) test $(LOCKED) --workspace --lib --bins --tests --no-run

test: setup lab-setup
	@MAKE="$(MAKE)" .ci/test

land:
	@.ci/land

SUITE ?=
proof: lab-build proof-setup
	@.ci/proof $(SUITE)

# Also four equal CPUs, on each of two kernels: no CPU may be called slow.
soak: lab-build proof-setup
	$(AS_ROOT) $(LAB) run $(patsubst lab/scenarios/%.toml,--scenario %,$(wildcard lab/scenarios/live-*.toml)) \
		--scenario slow-cpu-of-four-twin --times 20

# One after the other, also under -j: apt has one lock.
lab-setup: setup
	@.ci/setup lab

proof-setup: lab-setup
	@.ci/setup proof

# `lab truth` runs the live tests of the wait chains.
lab-build: setup lab-setup
	# The whole workspace: for some packages alone, cargo would build their dependencies again, with other features.
	$(CARGO) build $(LOCKED) --workspace
	$(CARGO) test $(LOCKED) --workspace --test lock_chains --no-run

lab: lab-build proof-setup
	$(AS_ROOT) $(LAB) doctor
	$(AS_ROOT) $(LAB) truth
	$(AS_ROOT) $(LAB) run $(ARGS)

# Only runs that were judged right are kept. If other runs failed, these are kept all the same, and make fails at the end.
capture: lab-build proof-setup
	$(CARGO) build $(LOCKED) --workspace --example neutral
	$(AS_ROOT) rm -rf target/captured
	mkdir -p target/captured
	$(AS_ROOT) $(LAB) run --capture $(CURDIR)/target/captured $(ARGS); status=$$?; \
		$(AS_ROOT) chown -R $$(id -u) target/captured && \
		target/$(TARGET)/release/examples/neutral target/captured crates/whyslow/tests/replay && \
		rm -r target/captured && exit $$status

DAYS ?=
capture-days: lab-build proof-setup
	$(CARGO) build $(LOCKED) --workspace --example neutral
	$(AS_ROOT) rm -rf target/captured
	WHYSLOW_CAPTURE=$(CURDIR)/target/captured .ci/live live --target proof $(addprefix --name days::,$(DAYS)); status=$$?; \
		$(AS_ROOT) chown -R $$(id -u) target/captured && \
		target/$(TARGET)/release/examples/neutral target/captured crates/whyslow/tests/replay && \
		$(AS_ROOT) rm -r target/captured && exit $$status

# The kernels of the doctor's guests.
lab-kernels: lab-build
	@$(AS_ROOT) $(LAB) fetch 6.1 6.12

lab-doctor: lab-build
	@$(AS_ROOT) env WHYSLOW_PROVEN="$$WHYSLOW_PROVEN" $(LAB) doctor --tries 2 host 6.1 6.12

bench: build
	$(CARGO) build $(LOCKED) -p whyslow-faults --bin bench
	@$(AS_ROOT) target/$(TARGET)/release/bench $(BINARY) $(ARGS)

# This target does not build: under sudo there may be no cargo.
install:
	@[ -x $(BINARY) ] || { echo "install: there is no $(BINARY); run make build first"; exit 2; }
	install -D -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/whyslow
	mkdir -p $(DESTDIR)$(PREFIX)/share/man/man1 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(BINARY) man > $(DESTDIR)$(PREFIX)/share/man/man1/whyslow.1
	$(BINARY) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/whyslow
	$(BINARY) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_whyslow
	$(BINARY) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/whyslow.fish

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/whyslow $(DESTDIR)$(PREFIX)/share/man/man1/whyslow.1 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/whyslow \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_whyslow \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/whyslow.fish

clean:
	$(CARGO) clean
