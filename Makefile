# Needs git, make and Python 3.11 or newer. What else is missing tools/setup.sh brings, once:
# the stamp files in .venv keep every later run quick.

bin := .venv/bin
native := setup.py pyproject.toml $(wildcard aiofabric/_ffi/*.cdef.h aiofabric/_ffi/*.src.c aiofabric/_ffi/robust_locks.* aiofabric/_ffi/written_bytes.* aiofabric/_ffi/build.py aiofabric/_core/*.[ch] aiofabric/_core/*/*.[ch])

quick := tests/cq tests/test_*.py tests/state tests/coverage tests/_ffi tests/cm/test_preface.py \
	tests/cm/test_requests.py tests/transport/connectionless/test_rdm.py \
	$(addprefix tests/transport/connected/test_,connected_messages.py nothing_is_lost_at_the_end.py)

help:  ## show what there is to make
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile

demo: .venv/.with-demo  ## two processes move a file over a fabric; FILE=… chooses the file
	@$(bin)/python examples/demo.py $(if $(FILE),"$(FILE)")

test: .venv/.with-test  ## the tests, on every libfabric at hand; ARGS=… goes to pytest
	@$(bin)/python -m tests --combinations=pairs $(ARGS)

test-long: .venv/.with-test  ## each three parameters together that make test leaves out, and the tests that take long
	@$(bin)/python -m tests --combinations=triples $(ARGS)

test-rdma: .venv/.with-test  ## the tests on an RDMA device, which a virtual machine emulates; ARGS=--quick, or pytest's
	@tools/test_rdma.sh $(ARGS)

check: lint types  ## before a commit, in two minutes: style, types, and a part of the tests on asyncio
	@$(bin)/python -m pytest -q -n 2 -k "not trio and not uvloop" $(quick)

mutate: .venv/.with-test .venv/.with-mutate  ## put small errors into the modules that changed; ARGS=… names others
	@$(bin)/python -m tools.mutate $(ARGS)

bench: .venv/.with-bench  ## speed beside the peers' and C's: a table, a picture; ARGS=… e.g. --quick
	@mkdir -p build
	@$(bin)/python -m benchmarks --json build/benchmark.json --picture build/benchmark.svg $(ARGS)
	@$(bin)/python -m benchmarks.pipelines $(filter --quick,$(ARGS))
	@$(bin)/python -m benchmarks.arrow $(filter --quick,$(ARGS))
	@$(bin)/python -m benchmarks.integrations $(filter --quick,$(ARGS))

sanitize: .venv/.with-test  ## the tests that touch C, under AddressSanitizer and UndefinedBehaviorSanitizer; ARGS=…
	@tools/instrumented.sh sanitize $(ARGS)

fuzz: .venv/.with-test .venv/.with-fuzz  ## decoders and the native core with arbitrary input: sanitizers, libFuzzer; EXAMPLES=1000
	@FUZZ_EXAMPLES=$(or $(EXAMPLES),1000) tools/instrumented.sh fuzz $(ARGS)
	@$(bin)/python -m tools.coverage_guided $(or $(EXAMPLES),1000)

leaks: .venv/.with-test  ## memory and descriptors over thousands of messages and connections; then under valgrind
	@$(bin)/python tools/leaks.py
	@tools/valgrind.sh

lint: .venv/.with-lint  ## style, formatting and plain English
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/python tools/plain_english.py

types: .venv/.with-test .venv/.with-lint  ## static types
	$(bin)/mypy

docs: .venv/.with-docs  ## the documentation, in build/docs
	$(bin)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo "build/docs/index.html"

clean:  ## forget the environment and everything built
	rm -rf .venv build dist benchmarks/floor/build *.egg-info aiofabric/_ffi/*.so aiofabric/_core/*.so aiofabric/_ffi/_libfabric.c aiofabric/_ffi/_constants.c

.venv/.built: tools/setup.sh $(native)
	@tools/setup.sh
	@touch $@

.venv/.with-%: .venv/.built
	@$(bin)/python -m pip install --quiet --group $*
	@touch $@

.PHONY: help demo docs test test-long test-rdma check mutate bench sanitize fuzz leaks lint types clean
.PRECIOUS: .venv/.with-%
.NOTPARALLEL:  # one pip at a time
