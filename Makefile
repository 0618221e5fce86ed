.PHONY: demo test

# Records the running system and prints what each BPF program on it costs; writes to target/demo only.
demo:
	@setup/install build
	@setup/demo

# Every test, here and on other kernels under QEMU (docs/vm.md); the last line is `N passed, N failed, N skipped`.
test:
	@setup/install test
	@cargo xtask test-everywhere
