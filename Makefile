# A small front for CMake. Each target first installs what it needs and does
# not find (tools/setup: silent and offline when nothing is missing).
PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# Extra arguments for configuring (make CMAKE_ARGS=-DLK_WERROR=ON) and for
# ctest (make test CTEST_ARGS='-R tree').
CMAKE_ARGS ?=
CTEST_ARGS ?=
# For tests/faults/kills.sh (make kills KILLS_ARGS='--kills 50 --seed 7'), and campaign.sh.
KILLS_ARGS ?=
CAMPAIGN_ARGS ?=
# For bench/gpu.py (make gpubench GPUBENCH_ARGS='--rows resnet50 --limit 300').
GPUBENCH_ARGS ?=

# The jobs of this make are not those of the build underneath.
cmake := env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL cmake
generator = $(if $(wildcard $(1)/CMakeCache.txt),,$(if $(shell command -v ninja),-G Ninja))
# The library looks for its plug-ins below the prefix.
configure = $(cmake) -S . -B $(1) $(call generator,$(1)) --log-level=WARNING -DCMAKE_INSTALL_PREFIX='$(PREFIX)' $(2) $(CMAKE_ARGS)
build = $(cmake) --build $(1) -j $(JOBS) $(2)
ctest = tools/run_tests $(1) -j $(JOBS) $(2) $(CTEST_ARGS)
# Of the long tests one that mostly waits (for hosts that do not answer) is always under way, beside those that compute.
one_waits = $(shell expr $(JOBS) + 1)

fuzz = $(call configure,build-fuzz,-DCMAKE_C_COMPILER=clang -DLK_CUDA=OFF -DLK_TESTS=ON -DLK_FUZZ=ON) \
  && $(call build,build-fuzz,--target fuzzers) && $(call ctest,build-fuzz,-R '^fuzz_' -E damaged)
sanitize = -DLK_CUDA=OFF -DLK_WERROR=ON -DLK_SANITIZE=$(1) -DLK_KERNELS='$(2)'
# With sanitizers kernels take long to compile and to run. Vectors show what lies beyond the ends of arrays, so that the
# scalar build is left out; races do not depend on the width of a vector, so that one build is enough.
vector_kernels = $(if $(filter aarch64 arm64,$(shell uname -m)),neon,avx512;avx2)
one_kernel = $(if $(filter aarch64 arm64,$(shell uname -m)),neon,avx2)
# On arm64 the allocator of the sanitizer's runtime makes every look for leaks, one a
# process, take seconds: there leaks are left to x86-64.
leaks = $(if $(filter aarch64 arm64,$(shell uname -m)),0,1)
# The tests in which threads or ranks work side by side. The others have one thread, which is left to asan.
threaded = ^(base|comm|net|launch|parallel|tensor|train)_|^nn_own_op$$|^cli_(train|run|signals)|^data_(loader|changed|download)|_08_
# Of these, tests whose ranks are processes with one computing thread, or that others repeat with fewer runs: races
# between processes are not seen.
in_processes = ^parallel_(recorded_ranks|groups|frozen)$$|^train_resume$$|^cli_train_(ranks|replicas|modes_mlp|requeue|log_dir|log_resume|resume|validation|trace|blamed|shared_data)$$
# What asan leaves out: pages, the source tree, bits that the plain build compares, and long runs of code that other
# tests have.
same_code = ^(docs|project)_|^golden_zoo$$|^parallel_law|^cli_terminal$$|^cli_train_(requeue|modes|log_dir)|^examples_07_
# Without address randomisation: older TSan runtimes refuse some kernels' layouts.
no_aslr = $(shell setarch -R true 2>/dev/null && echo setarch -R)

.PHONY: all demo docs test test-long test-more gputest gpubench kills campaign bench scale asan tsan fuzz install uninstall lint format clean help
.NOTPARALLEL:

all:
	@tools/setup build
	@$(call configure,build)
	@$(call build,build,--target programs)

demo: all
	@tools/demo

test:
	@tools/setup build test
	@tools/setup plot || echo 'test: pictures are not tested without gnuplot'
	@tools/setup pages || echo 'test: man pages and completion are tested only with what is here'
	@tools/setup abi || echo 'test: the comparison of ABIs is not tested without libabigail'
	@$(call configure,build,-DLK_TESTS=ON)
	@$(call build,build)
	@$(call ctest,build,-LE more)

test-long:
	@tools/setup build test
	@tools/setup plot || echo 'test-long: pictures are not tested without gnuplot'
	@tools/setup net || echo 'test-long: several hosts are not tested without ip(8)'
	@tools/setup mpi || echo 'test-long: --backend mpi is tested only with the MPI libraries that are here'
	@tools/setup slurm || echo 'test-long: Slurm is not tested without its packages'
	@tools/setup package || echo 'test-long: Debian packages are not built without their tools'
	@tools/setup browser || echo 'test-long: the live page is not tested in a browser without Chromium'
	@$(call configure,build,-DLK_TESTS=ON)
	@$(call build,build)
	@$(call ctest,build,-L more -j $(one_waits))

test-more: test-long asan tsan fuzz

asan:
	@tools/setup build test
	@$(call configure,build-asan,-DLK_TESTS=ON $(call sanitize,address$(comma)undefined,$(vector_kernels)))
	@$(call build,build-asan)
	@$(if $(filter 0,$(leaks)),echo 'asan: leaks are not looked for on this architecture')
	@ASAN_OPTIONS=halt_on_error=1:detect_leaks=$(leaks):strict_string_checks=1 \
	 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 $(call ctest,build-asan,-E '$(same_code)' -LE 'more|unsanitized')

tsan:
	@tools/setup build test
	@$(call configure,build-tsan,-DLK_TESTS=ON -DLK_TEST_ONLY='$(threaded)' $(call sanitize,thread,$(one_kernel)))
	@$(call build,build-tsan)
	@TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 \
	 $(no_aslr) $(call ctest,build-tsan,-R '$(threaded)' -E '$(in_processes)' -LE 'more|unsanitized')

# On a machine with a GPU; elsewhere each test says that it is skipped.
gputest:
	@tools/setup build test
	@tools/setup plot || echo 'test: pictures are not tested without gnuplot'
	@$(call configure,build,-DLK_TESTS=ON)
	@$(call build,build)
	@tools/gputest build

gpubench: all
	@bench/gpu.py --program build/lockstep $(GPUBENCH_ARGS)

kills: all
	@bash tests/faults/kills.sh build/lockstep --kills 200 --jobs $(JOBS) $(KILLS_ARGS)

campaign: all
	@bash tests/faults/campaign.sh build/lockstep --trials 200 --jobs $(JOBS) $(CAMPAIGN_ARGS)

# clang is large, so it is used where it is and not installed.
fuzz:
	@tools/setup build test
	@if command -v clang >/dev/null; then $(call fuzz); else echo 'fuzz: skipped, there is no clang here'; fi

bench: all
	@tools/setup bench
	@bench/run

# Hosts simulated by SimGrid. SCALE_ARGS: options of bench/scale/run.
scale:
	@tools/setup build bench simgrid
	@$(call configure,build)
	@$(cmake) --build build --target scale
	@bench/scale/run $(SCALE_ARGS)

# The reference of the C and C++ headers, in HTML.
docs:
	@tools/setup docs
	@tools/docs build/docs

install: all
	DESTDIR='$(DESTDIR)' $(cmake) --install build --prefix '$(PREFIX)'

uninstall:
	DESTDIR='$(DESTDIR)' $(cmake) -DBUILD='$(CURDIR)/build' -DPREFIX='$(PREFIX)' -P cmake/uninstall.cmake

lint:
	@tools/setup build test lint
	@tools/setup abi || echo 'lint: the ABI is not compared without libabigail'
	@tools/setup docs || echo 'lint: the reference is not built without doxygen'
	@tools/lint

format:
	@tools/setup lint
	@tools/lint --fix

clean:
	rm -rf build build-asan build-tsan build-fuzz build-lint build-cross

help:
	@echo 'make            build the program (build/lockstep), the library and the examples'
	@echo 'make demo       train a small network on Fashion-MNIST, about two minutes'
	@echo 'make test       the tests that need nothing but this machine, under ten minutes'
	@echo 'make test-long  long tests, real data, other architectures'
	@echo 'make test-more  test-long, asan, tsan and fuzz'
	@echo 'make gputest    the tests of the CUDA device on a GPU, under seven minutes'
	@echo 'make gpubench   steps on a GPU, beside PyTorch where it is installed; up to 25 minutes'
	@echo 'make kills      200 times a run is killed, and goes on to the same bits; five minutes'
	@echo 'make campaign   200 times a run has random faults of all kinds, and goes on to the same bits; ten minutes'
	@echo 'make asan       the tests under AddressSanitizer and UBSan (build-asan)'
	@echo 'make tsan       the tests under ThreadSanitizer (build-tsan)'
	@echo 'make fuzz       the fuzzers for a quarter of a minute each, where clang is installed'
	@echo 'make bench      speed, beside PyTorch where it is installed'
	@echo 'make scale      steps on many hosts, simulated by SimGrid'
	@echo 'make docs       the reference of the headers in HTML, in build/docs/html'
	@echo 'make lint       formatting, warnings as errors, headers alone, ABI, include direction'
	@echo 'make format     format the sources in place'
	@echo 'make install    to PREFIX (/usr/local), below DESTDIR: program, library, headers, man pages, completion'
	@echo 'make uninstall  remove what make install installed, with the same PREFIX and DESTDIR'
	@echo 'make clean      remove all build folders'

comma := ,
