# Everything starts here. `make demo` and `make test` set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup test test-all check demo fuzz bench docs dist clean format

setup: $(STAMP)

# torch is pinned by constraints.txt in every install: unpinned, other packages may replace it by a build of several GB
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch numpy
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/linverse data perceptual
	@# pictures with published LPIPS and DISTS values, read by the tests out of the wheel (not installed, not bundled)
	$(BIN)/pip download --quiet --disable-pip-version-check --no-deps -d $(VENV)/calibration pyiqa==0.1.16
	@touch $@

test: setup check-static
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

# with deepinv and azula, which live in an environment of their own on top of the first: `make test` stays without them
INTEROP := .venv-interop
$(INTEROP)/.installed: $(STAMP)
	@test -x $(INTEROP)/bin/python || $(PYTHON) -m venv $(INTEROP)
	@$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > \
		$$($(INTEROP)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/linverse-base.pth
	$(INTEROP)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[interop]'
	@ln -sfn ../$(VENV)/calibration $(INTEROP)/calibration
	@touch $@

test-all: check-static $(INTEROP)/.installed
	OMP_NUM_THREADS=1 $(INTEROP)/bin/python -m pytest -n auto

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

# wheel and source archive in dist/, checked; the wheel installed into an empty environment, asked for the demo, and removed again
dist: setup
	rm -rf dist build/empty
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt build twine
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	test $$(wc -c < dist/*.whl) -le 30000000
	$(PYTHON) -m venv build/empty
	build/empty/bin/pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	build/empty/bin/linverse demo --no-show --out build/empty/demo
	build/empty/bin/pip uninstall --quiet --yes linverse
	test ! -e build/empty/bin/linverse
	test -z "$$(find build/empty -path '*site-packages/linverse*')"

clean:
	rm -rf $(VENV) $(INTEROP) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
