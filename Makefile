# Two commands do everything, on a fresh Debian 12 too: `make demo` and `make test`.

# With TORCH=/path/to/python both build on the torch that this Python has, in a folder of their own.
TORCH ?=
PRESET ?= dev
BUILD := build/$(PRESET)$(if $(TORCH),-torch)
JOBS ?= $(shell nproc)

# Python's Markdown is all that the documentation needs beyond the build.
DOCS_PACKAGES := python3-markdown

GRAPHS := $(basename $(notdir $(wildcard data/graphs/*.adg)))

.PHONY: demo test test-slow fuzz graphs docs build programs packages configure format clean

demo: programs
	$(BUILD)/bin/autodist demo

test: build
	ctest --test-dir $(BUILD) --output-on-failure --parallel $(JOBS) --label-exclude slow \
	  --output-junit tests.xml

# The full matrices and whatever takes more than the default ten minutes.
test-slow: build
	ctest --test-dir $(BUILD) --output-on-failure --label-regex slow

# Every fuzz target for a minute.
fuzz:
	tools/run-fuzzers 60

# Captures the shipped graphs anew, one after the other: lm1b needs 16 GB of memory.
graphs: programs
	for model in $(GRAPHS); do \
	  $(BUILD)/bin/autodist capture $$model -o data/graphs/$$model.adg || exit 1; done

# One searchable site in build/docs; a link that leads nowhere fails.
docs:
	tools/install-packages $(DOCS_PACKAGES)
	tools/build-docs

programs: $(BUILD)/build.ninja
	cmake --build $(BUILD) --parallel $(JOBS) --target programs

build: $(BUILD)/build.ninja
	cmake --build $(BUILD) --parallel $(JOBS)

# Asked for a torch, CMake looks every time whether it is still the same.
$(BUILD)/build.ninja: $(if $(TORCH),configure) | packages
	cmake --preset $(PRESET) -B $(BUILD) $(if $(TORCH),-DAUTODIST_PYTHON=$(abspath $(TORCH)))

configure:

packages:
	tools/install-packages

format:
	git ls-files '*.cc' '*.h' | xargs clang-format-14 -i

clean:
	rm -rf build
