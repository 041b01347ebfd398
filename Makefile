# `make demo` and `make test` do all their set-up; the second time they only do what has changed.
PYTHON := .venv/bin/python
CORE := python/kinnor/_core.abi3.so
STUBS := python/kinnor/functions.pyi
export PYO3_PYTHON := $(CURDIR)/.venv/bin/python
EXTRAS := audio,bfloat16,docs,h5,image,lint,mlflow,mpi,nnp,onnx,plot,progress,tensorboard,test
RUST := $(shell find src -type f) Cargo.toml Cargo.lock

.PHONY: demo demo-mpi test test-rust test-arm64 check-targets lint build quick stubs missing accuracy peers peers-install docs wheel sdist crate free-threaded fuzz sanitize clean

demo: build
	@$(PYTHON) examples/demo.py

# Rust's tests need no Python: they are compiled and run beside the build, which waits for downloads and for its linker.
test:
	@$(MAKE) --no-print-directory --jobs=2 test-rust build
	$(PYTHON) -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal

test-rust:
	$(ALONE) cargo test --features models,rayon

# Builds the wheel for 64-bit ARM and tests it under qemu; PARTS names a few of the parts in tools/arm64.
test-arm64: build
	tools/arm64 test $(PARTS)

# Compiles for systems that nothing here can run, and for 64-bit ARM, with warnings as errors.
check-targets: .venv/made
	tools/arm64 check aarch64-unknown-linux-gnu aarch64-apple-darwin x86_64-pc-windows-gnu

lint: build
	cargo fmt --check
	cargo clippy --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --features rayon
	RUSTDOCFLAGS="-D rustdoc::broken_intra_doc_links" cargo doc --no-deps --document-private-items --all-features
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m codespell_lib
	$(PYTHON) tools/prose.py
	$(PYTHON) -m mypy
	MYPYPATH=python $(PYTHON) -m mypy.stubtest --mypy-config-file pyproject.toml \
		--allowlist tools/stubtest-allowlist kinnor

# Trains the digits with two processes; what it draws is in `demo/`.
demo-mpi: build
	@$(PYTHON) -m kinnor.launch -n 2 examples/distributed/digits.py --output demo

# Signatures and docstrings for editors and mypy, from the declarations of operations and layers. Git ignores them.
stubs: $(CORE)
	$(PYTHON) tools/make-stubs

# What is missing of NNabla's names: for errors, and for docs/differences.md.
missing: build
	$(PYTHON) tools/make-missing

# How far results in float32 are from those in float64: docs/accuracy.md.
accuracy: build
	$(PYTHON) tools/make-accuracy

# Random programs, garbage calls and interruptions for so many minutes; what fails is in target/fuzz.
MINUTES := 10
fuzz: build
	$(PYTHON) tools/fuzz --minutes $(MINUTES) $(ARGS)

# Tests under AddressSanitizer, with a build of its own in target/sanitize.
sanitize: .venv/made
	@tools/sanitize $(TESTS)

# Training steps, or predictions, beside those of other frameworks; `PEERS=torch,jax make peers` installs these first.
peers: build $(if $(PEERS),peers-install)
	$(PYTHON) -m benches.peers $(ARGS)

peers-install:
	@tools/make-peers $(PEERS)

# The site, in target/site. It stops at the first thing that is wrong, a public name on no page too.
docs: build
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --quiet --strict --site-dir target/site

# What is released, in target/wheels: on Linux for glibc 2.17 and later, which the linker of `zig` knows; CPython 3.10 and later.
# `make wheel TARGET=aarch64` makes the one for Linux on 64-bit ARM on another machine. TARGET=x86_64-musl and
# TARGET=aarch64-musl make those for musl 1.2 and later.
ZIG := $(if $(filter Linux,$(shell uname)),--zig --compatibility manylinux_2_17)
ifneq ($(TARGET),)
wheel: .venv/made $(STUBS)
	tools/arm64 wheel $(TARGET)
else
wheel: .venv/made
	$(PYTHON) -m pip install --quiet deflate numpy $(if $(ZIG),ziglang)
	PATH="$(CURDIR)/.venv/bin:$$PATH" MATURIN_PEP517_ARGS="--locked $(ZIG)" $(PYTHON) -m pip wheel --no-deps \
		--no-build-isolation --wheel-dir target/wheels .
endif

# The sources of the package, which need Rust alone to be built, and the crate as crates.io would get it.
sdist: .venv/made
	.venv/bin/maturin sdist --out target/wheels

crate:
	cargo publish --dry-run --no-verify --allow-dirty

# Whether the sources compile for Python without the global lock, which takes it back for Kinnor.
free-threaded:
	PYO3_CONFIG_FILE=$(CURDIR)/tools/cpython-3.14t.cfg cargo check --lib --no-default-features --features python

build: $(STUBS)

DECLARED := $(wildcard python/kinnor/_python_functions/*.py python/kinnor/parametric_functions/*.py) python/kinnor/solvers.py \
	python/kinnor/compat/names.py
$(STUBS): $(CORE) tools/make-stubs $(DECLARED)
	$(PYTHON) tools/make-stubs

# Cargo shares the cores out by itself: it is not told what make does beside it.
ALONE := env -u MAKEFLAGS -u MFLAGS

MATURIN := $(ALONE) VIRTUAL_ENV=$(CURDIR)/.venv .venv/bin/maturin develop --extras $(EXTRAS)
$(CORE): .venv/made $(RUST)
	$(MATURIN) --release
	@touch $@

# While you work on Rust: the extension without optimization, seconds after a change; `make build` puts the fast one back.
quick: .venv/made
	$(MATURIN) --profile dev
	$(PYTHON) tools/make-stubs
	@touch -t 200001010000 $(CORE)

.venv/made: pyproject.toml tools/make-venv
	@tools/make-venv
	@touch $@

clean:
	rm -rf .venv .venv-peers target demo $(CORE)
	find python/kinnor -name "*.pyi" ! -name _core.pyi -delete
