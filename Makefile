# The front door. CMake does the work; see CMakePresets.json for the builds.

JOBS := $(shell nproc)
CTEST := ctest --output-on-failure --no-tests=error -j $(JOBS)

.PHONY: all setup build demo faults fuzz test test-sanitize test-threads test-aarch64 test-mpich test-sets check-long bench-server bench-topk bench-peers against-pytorch golden format clean help

all: build

help:
	@echo "make                set up and build (build/nowait, build/libnowait.a, build/libnowait.so)"
	@echo "make test           set up, build, run every test"
	@echo "make demo           set up, build, train on Fashion-MNIST, evaluate"
	@echo "make fuzz           every parser of untrusted bytes, a minute each, under the sanitizers"
	@echo "make test-sanitize  unit tests under the address and undefined-behaviour sanitizers"
	@echo "make test-threads   pool, loader and evaluation beside training, under the thread sanitizer"
	@echo "make test-aarch64   cross-compile and run the unit tests under qemu-user"
	@echo "make test-mpich     build with MPICH instead of Open MPI and run the tests of several ranks"
	@echo "make test-sets      the command and jobs of several ranks, with every instruction set that can run here"
	@echo "make faults         kill, stop, suspend and continue ranks of jobs, ten times each way"
	@echo "make check-long     all of these"
	@echo "make bench-server   what an update of a server costs with 100 and with 1,000 workers"
	@echo "make bench-topk     top-k beside one copy of a vector and beside torch.topk (installs python3-torch)"
	@echo "make bench-peers    nowait and PyTorch side by side (installs python3-torch)"
	@echo "make against-pytorch  losses of 200 steps of resnet18, nowait and PyTorch on the same batches"
	@echo "make golden         make the golden tensors again (needs python3-torch)"
	@echo "make format         clang-format everything"

setup:
	@scripts/setup build

build: setup
	@cmake --preset default --log-level=WARNING
	@cmake --build --preset default -j $(JOBS)

test: build
	@cd build && $(CTEST)

test-sanitize: setup
	@cmake --preset sanitize --log-level=WARNING
	@cmake --build --preset sanitize -j $(JOBS)
	@cd build-sanitize && $(CTEST) -L unit

# Those whose threads share memory: the pool, the loader, the evaluation beside training.
THREADED := test_pool test_loader test_train
test-threads: setup
	@cmake --preset threads --log-level=WARNING
	@cmake --build --preset threads -j $(JOBS) --target $(THREADED)
	@cd build-threads && $(CTEST) -R "unit/($$(echo $(THREADED) | tr ' ' '|'))$$"

test-aarch64:
	@scripts/setup aarch64
	@cmake --preset aarch64 --log-level=WARNING
	@cmake --build --preset aarch64 -j $(JOBS)
	@cd build-aarch64 && $(CTEST) -L unit

# Tests call mpirun by that name; a link would not do, since it looks for its helpers beside itself.
test-mpich: setup
	@scripts/setup mpich
	@cmake --preset mpich --log-level=WARNING
	@cmake --build --preset mpich -j $(JOBS) --target nowait gossip_ranks pipeline_ranks peer_ranks example_peer
	@mkdir -p build-mpich/bin && printf '#!/bin/sh\nexec mpirun.mpich "$$@"\n' >build-mpich/bin/mpirun
	@chmod +x build-mpich/bin/mpirun
	@cd build-mpich && PATH="$$PWD/bin:$$PATH" $(CTEST) -L 'ranks|fault'

# Also those that are not chosen here, and emulated ones, which take some six times as long.
test-sets: build
	@cd build && failed=; for set in $$(./nowait info | sed -nE 's/^  ([a-z0-9-]+) +(f32|bf16) +yes.*/\1/p'); do \
	    echo "== $$set"; NOWAIT_ISA=$$set $(CTEST) -L 'cli|ranks' || failed="$$failed $$set"; done; \
	    [ -z "$$failed" ] || { echo "failed with$$failed"; exit 1; }

demo: build
	@build/nowait train --recipe demo --run-dir runs/demo $$([ -d runs/demo/checkpoints ] && echo --resume runs/demo)
	@build/nowait eval runs/demo

FUZZ_SECONDS := 60
fuzz: setup
	@cmake --preset sanitize --log-level=WARNING
	@cmake --build --preset sanitize -j $(JOBS)
	@cd build-sanitize && for target in fuzz_*; do \
	    [ -x $$target ] && { ./$$target ../tests/fuzz/corpus/$${target#fuzz_} $(FUZZ_SECONDS) || exit 1; }; done; true

FAULT_TRIALS := 10
faults: build
	@cd build && TRIALS=$(FAULT_TRIALS) $(CTEST) --verbose -L fault >faults.log 2>&1; code=$$?; \
	    grep -E 'silent ranks:|suspended ranks:|FAILED|Skipped|tests passed' faults.log; exit $$code

# An update must not cost twice as much with 1,000 workers of a server as with 100.
bench-server: build
	@bench/server_scale.py

check-long: test test-sanitize test-threads test-aarch64 test-mpich test-sets fuzz faults bench-server

bench-topk: build
	@scripts/setup peers
	@bench/topk.py

bench-peers: build
	@scripts/setup peers
	@bench/peers.py $(PEERS)

against-pytorch: build
	@scripts/setup peers
	@bench/against_pytorch.py $(AGAINST)

golden:
	@scripts/setup peers
	@for script in tests/golden/make_*.py; do $$script || exit 1; done

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	@rm -rf build build-sanitize build-threads build-aarch64 build-mpich
