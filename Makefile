# Everything starts here. `make demo` and `make test` set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
STUDIO := .venv-studio
# those that need gradio or a browser; the others of tests/studio run with all the rest
PAGE_TESTS := tests/studio/test_page.py tests/studio/test_served.py tests/studio/test_visitors.py tests/studio/test_browser.py

.PHONY: setup test test-all check demo studio fuzz bench docs dist clean format

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

test: setup check-static $(STUDIO)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m "not release"
	OMP_NUM_THREADS=1 $(STUDIO)/bin/python -m pytest $(PAGE_TESTS)

# with deepinv and azula, which live in an environment of their own on top of the first: `make test` stays without them
INTEROP := .venv-interop
$(INTEROP)/.installed: $(STAMP)
	@test -x $(INTEROP)/bin/python || $(PYTHON) -m venv $(INTEROP)
	@$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > \
		$$($(INTEROP)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/linverse-base.pth
	$(INTEROP)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[interop]'
	@ln -sfn ../$(VENV)/calibration $(INTEROP)/calibration
	@touch $@

test-all: check-static $(INTEROP)/.installed $(STUDIO)/.installed
	OMP_NUM_THREADS=1 $(INTEROP)/bin/python -m pytest -n auto
	OMP_NUM_THREADS=1 LINVERSE_VISITORS=50 LINVERSE_SECONDS=180 $(STUDIO)/bin/python -m pytest $(PAGE_TESTS)

check: setup check-static
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m "not slow and not release"

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

# the page in an environment of its own on top of the first: gradio takes no Pillow beyond 12, which the rest is tested with
$(STUDIO)/.installed: $(STAMP)
	@test -x $(STUDIO)/bin/python || $(PYTHON) -m venv $(STUDIO)
	@$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > \
		$$($(STUDIO)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/linverse-base.pth
	@sed 's/^pillow==.*/pillow==12.3.0/' constraints.txt > $(STUDIO)/constraints.txt
	$(STUDIO)/bin/pip install --quiet --disable-pip-version-check -c $(STUDIO)/constraints.txt -e '.[studio]' playwright
	@touch $@

# `make studio MODEL=fashion-mnist`; without a model, all that are bundled
studio: $(STUDIO)/.installed
	$(STUDIO)/bin/linverse studio $(if $(MODEL),--model $(MODEL))

# random commands, models, checkpoints and calls; every failure prints the seed that repeats it
MINUTES ?= 30
fuzz: setup
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m robustness.fuzz --minutes $(MINUTES)

bench: setup
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

# the site, in build/site: pictures of the gallery drawn, no warnings, all links within it checked
$(VENV)/.docs: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	OMP_NUM_THREADS=1 NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python docs/tools/links.py build/site

# wheel and source archive in dist/, checked; the wheel installed into an empty environment, asked for the demo, and removed again
dist: setup
	rm -rf dist build/empty
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt build twine
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	test $$(cat dist/*.whl | wc -c) -le 30000000
	$(PYTHON) -m venv build/empty
	build/empty/bin/pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	build/empty/bin/linverse demo --no-show --out build/empty/demo
	build/empty/bin/pip uninstall --quiet --yes linverse
	test ! -e build/empty/bin/linverse
	test -z "$$(find build/empty -path '*site-packages/linverse*')"

clean:
	rm -rf $(VENV) $(INTEROP) $(STUDIO) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
