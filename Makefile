# Both commands do everything on a fresh Debian 12 machine, packages included.

OUT ?= weir-lab-results
BPF_SOURCES := $(wildcard bpf/*.c bpf/*.h bpf/abi/*.h)

.PHONY: demo test test-kernels test-drivers test-debian test-tarball test-container build check style deb tarball setup

# The lab's quick before and after on this kernel: prints the table, writes $(OUT)/report.html.
demo: build
	target/release/weir lab run udp-overload --quick --out $(OUT)

# Every test but those of packages and in emulators. Those of the kernel half need root, and fail without it.
test: setup
	tests/run

# Debian 12's own kernel, in an emulator.
test-kernels:
	@./setup.sh kernels
	tests/kernels/run

# Network cards of several drivers, with Debian 12's own kernel, in an emulator.
test-drivers:
	@./setup.sh kernels
	tests/drivers/run

# A user's walk on a fresh Debian 12 with its own kernel and systemd, in an emulator: install, protect, kill, remove.
test-debian: deb
	@./setup.sh kernels
	tests/debian/run target/weir_*.deb

# The static tarball, in a root directory that has nothing else.
test-tarball: tarball
	tests/tarball target/weir-*.tar.gz

# The container of deploy/, by runc.
test-container: deb
	@./setup.sh kernels
	tests/container target/weir_*.deb

# A Debian package of this machine's architecture, in target/.
deb: build
	packaging/deb target/release/weir target

# weir for any distribution, without libraries, in target/. Builds everything once more.
tarball: setup
	packaging/tarball "$$(packaging/static)" target

build: setup
	cargo build --release --locked

# Style and lints.
check: style
	cargo clippy --workspace --all-targets --locked -- -D warnings

style: setup
	cargo fmt --all --check
	@# Declared by a macro, which rustfmt does not look into.
	rustfmt --check --edition 2024 crates/weir-lab/src/experiments/*.rs
	clang-format-19 --dry-run --Werror $(BPF_SOURCES)

setup:
	@./setup.sh
