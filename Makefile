.PHONY: demo test

# Records the running system and prints what each BPF program on it costs; writes to target/demo only.
demo:
	@setup/install build
	@setup/demo

# Every test; the last line is `N passed, N failed, N skipped`.
test:
	@setup/install test
	@cargo xtask test
