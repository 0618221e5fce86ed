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

# Quick checks for each change: they need neither root nor network, install nothing, and write only to target. One cargo call tests all crates: the
# features of a dependency depend on the set of packages that are built together. Of the test programs, `live` is missing because it records, `limits`
# and `viewers` because they take long, as all damages of the mutation test do.
check:
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --locked -- -D warnings
	@cargo xtask tree
	@BPREC_MUTATIONS=2000 cargo xtask test --locked --lib --bin xtask --example seeds \
		$(addprefix --package=,bprec-format bprec-generate bprec-report xtask bprec) \
		$(addprefix --test=,it many_pairs mutation properties shapes)

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
