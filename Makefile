# make build   .venv with pinned dependencies, the package built and installed; prints the wheel's size and the seconds
# make run     builds, then trains, generates and embeds on device "tpu" (examples/train_generate_embed.py)
# make test    builds, then runs every test, C and Python, and prints the minutes of each part
# make sanitize, make loc, make bench, make docs, make site: see below

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
# Where to take torch from, e.g. TORCH_INDEX=https://download.pytorch.org/whl/cpu for the small CPU build.
TORCH_INDEX ?=
JOBS ?= $(shell nproc)

.PHONY: build run test sanitize loc bench docs site clean

build:
	@$(PYTHON) tools/build.py --venv $(VENV) --jobs $(JOBS) $(if $(TORCH_INDEX),--torch-index $(TORCH_INDEX))

run: build
	$(PY) examples/train_generate_embed.py

test: build
	$(PY) tools/test.py --jobs $(JOBS)

# The C core's tests under AddressSanitizer and UndefinedBehaviorSanitizer, queue, cache and workers also under ThreadSanitizer.
sanitize:
	@$(PYTHON) tools/test.py --jobs $(JOBS) --only sanitize

# Product lines by language.
loc:
	@$(PYTHON) tools/loc.py

# Ratios against PyTorch on the CPU, JAX on the same plugin file, and the plugin itself.
bench: build
	$(PY) benchmarks/compare.py

# docs/environment.md from the table in the code.
docs: build
	$(PY) -m torch_pjrt._env > docs/environment.md

# The documentation as HTML, in out/site; builds nothing else.
site:
	@$(PYTHON) tools/site.py

clean:
	rm -rf build out
