.PHONY: demo pictures check test test-fleet release install deb static

PREFIX ?= /usr/local

# Records the running system and prints what each BPF program on it costs; writes to target/demo only.
demo:
	@setup/install build
	@setup/demo

# The pictures of README, from a recording of the fixtures.
pictures:
	@setup/install test
	@cargo xtask pictures

# What takes no root and no network, installs nothing and changes nothing outside target: for each change that is made.
check:
	@cargo xtask check

# Every test, here and on other kernels under QEMU (docs/vm.md); the last line is `N passed, N failed, N skipped`.
test:
	@setup/install ask
	@setup/install test
	@setup/viewers
	@cargo xtask test-everywhere

# What fleet/ is, linted while it is built: its 300 packages are compiled once and not a second time for clippy.
test-fleet:
	@setup/install fleet
	@setup/fleet-readers
	@setup/fleet-spark
	@CLIPPY_ARGS=-Dwarnings RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo test --manifest-path fleet/Cargo.toml --locked

# docs/install.md describes what follows. What `release` built is what `install` installs, so that root needs no cargo.
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
