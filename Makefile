# Each target does all the set-up it needs; Python 3.11 or newer and make are enough.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
PIP := $(RUN)/python -m pip install --disable-pip-version-check
READY := $(VENV)/.ready
# One release of torch for every test. Where pip sees a build for CPUs it takes that: 200 MB, while
# the usual one for Linux brings CUDA, several GB. `make demo TORCH=torch==2.14.1` takes another.
TORCH := torch==2.13.0

.PHONY: demo test test-all check tables clean

demo: $(READY)
	$(RUN)/sparing compare digits --mechanisms softmax,window,linear,kerformer,linformer \
		--seeds 5 --output-dir runs/demo

# A file stays on one worker, so that what it trains or measures once is not done twice.
test: $(READY)
	$(RUN)/python -m pytest -n 2 --dist loadfile -m "not slow and not gpu"

test-all: $(READY)
	$(PIP) --quiet -e ".[test,witnesses]" -e papers
	SPARING_WITNESSES=required $(RUN)/python -m pytest -n 2 --dist loadfile

check: $(READY)
	$(PIP) --quiet -e ".[dev]" -e papers
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

# The generated tables of README and docs, from the committed runs; a test holds that they are current.
tables: $(READY)
	$(RUN)/python benchmarks/tables.py

$(READY): pyproject.toml papers/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("sparing needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --progress-bar off --quiet "$(TORCH)" -e ".[test]" -e papers
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache

# The documentation as a site; a warning is an error.
.PHONY: docs
docs: $(READY)
	$(PIP) --quiet -e ".[docs]" -e papers
	$(RUN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "open build/docs/index.html"
