.PHONY: demo pictures check test test-fleet release install deb static

PREFIX ?= /usr/local

# Records the running system and prints what each BPF program on it costs; writes to target/demo only.
demo:
	@setup/install build
	@setup/demo

# The pictures in README, made from a recording of the fixtures.
pictures:
	@setup/install test
	@cargo xtask pictures

# Quick checks for each change: they need neither root nor network, install nothing, and write only to target.
check:
	@cargo xtask check

# Every test, here and on other kernels under QEMU (docs/vm.md); the last line is `N passed, N failed, N skipped`.
test:
	@setup/install ask
	@setup/install test
	@setup/viewers
	@cargo xtask test-everywhere

# Tests of fleet/. clippy checks the code during the build, so that its 300 packages are compiled only once.
test-fleet:
	@setup/install fleet
	@setup/fleet-readers
	@setup/fleet-spark
	@CLIPPY_ARGS=-Dwarnings RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo test --manifest-path fleet/Cargo.toml --locked

# docs/install.md describes the following targets. `install` installs the files that `release` has built, so root needs no cargo.
release:
	@setup/install build
	@setup/package release

install:
	@setup/package stage "$(DESTDIR)" "$(PREFIX)"

deb:
	@setup/install build
	@setup/package deb

static:
	@setup/install build
	@setup/package static
