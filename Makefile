# make run    examine this host          make test   everything that CI runs
# make check  format, lints, unit tests  make bench  what looking costs
# make quick  what changed, one fault, its twin, one chain of locks: two minutes once it was built
# make soak   each live fault 20 times   make install [PREFIX=/usr/local] [DESTDIR=]
# make land   what CI runs, on a clean clone of HEAD; target/gate-passed names the tree that passed
# make lab    every scenario, on real kernels in guests (ARGS="...": those of lab run)

PREFIX ?= /usr/local
DESTDIR ?=
TARGET := x86_64-unknown-linux-gnu
BINARY := target/$(TARGET)/release/whyslow
LAB := target/$(TARGET)/release/lab
CARGO ?= cargo
# Cargo.lock is part of the source: what was tested is what is built.
LOCKED := --release --locked
AS_ROOT := $(shell [ "$$(id -u)" -eq 0 ] || command -v sudo)
ARGS ?=

.PHONY: all build setup run quick check lints borders unit live test land soak bench install uninstall clean
.PHONY: lab lab-ci lab-doctor lab-setup lab-build

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
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(LOCKED) --workspace --all-targets -- -D warnings

unit:
	$(CARGO) test $(LOCKED) --workspace -- --skip root_

live:
	@.ci/root-tests

quick: setup
	@.ci/quick

check: setup
	@.ci/check

.PHONY: stage-build
stage-build: lints
	$(CARGO) build $(LOCKED) --workspace
	$(CARGO) test $(LOCKED) --workspace --no-run

test: setup lab-setup
	@MAKE="$(MAKE)" .ci/test

land:
	@.ci/land

# Four CPUs alike, ten boots on each of two kernels, come last: none is said to be slow.
soak: lab-build
	WHYSLOW_SOAK=1 $(CARGO) test $(LOCKED) -p whyslow --test live --test lock_chains --test spin --test days -- --test-threads=1 --nocapture root_
	$(AS_ROOT) $(LAB) run --scenario slow-cpu-of-four-twin --times 10

lab-setup:
	@.ci/setup lab

# `lab truth` runs the live tests of the wait chains.
lab-build: setup lab-setup
	# All of the workspace: of some packages alone, what they depend on would be built again, with other features.
	$(CARGO) build $(LOCKED) --workspace
	$(CARGO) test $(LOCKED) --workspace --test lock_chains --no-run

lab: lab-build
	$(AS_ROOT) $(LAB) doctor
	$(AS_ROOT) $(LAB) truth
	$(AS_ROOT) $(LAB) run $(ARGS)

# Once more where it failed: the emulator may break a guest.
lab-doctor: lab-build
	@doctor="$(AS_ROOT) $(LAB) doctor host 6.1 6.12"; $$doctor || { echo "lab doctor: once more"; $$doctor; }

# A part of the scenarios that is drawn, on two kernels. All of it, also when the first part failed: each tells what it proved.
lab-ci: lab-build
	@status=0; for what in run truth; do \
		$(AS_ROOT) env WHYSLOW_PROVEN="$$WHYSLOW_PROVEN" $(LAB) $$what --ci || status=1; \
	done; exit $$status

bench: build
	$(CARGO) build $(LOCKED) -p whyslow-faults --bin bench
	@$(AS_ROOT) target/$(TARGET)/release/bench $(BINARY) $(ARGS)

# Not built here: under sudo there may be no cargo.
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
