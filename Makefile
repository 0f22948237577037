# make demo   the main job on embedded data; look at demo/report.html
# make serve  the same as a live page at http://127.0.0.1:8787/, digits streaming in
# make browser  a Chromium for the tests of the page, which are skipped without one
# make test   lint, types, import contract, tests
# make reproduction   docs/reproduction.md and its like, from the records in results/
PYTHON ?= python3
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo serve browser test lint test-slow test-gpu bench reproduction install clean

demo: .venv/.installed
	$(BIN)/python -m shels demo --out demo

serve: .venv/.installed-serve
	$(BIN)/python -m shels serve demo/digits --demo

browser: .venv/.installed-dev
	@command -v chromium || command -v chromium-browser || command -v google-chrome || \
	  { apt-get install --yes chromium && command -v chromium; } || $(BIN)/playwright install chromium || \
	  { echo "no Chromium found; on Debian: sudo apt-get install chromium" >&2; exit 1; }

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

lint: .venv/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-slow: .venv/.installed-dev
	$(BIN)/python -m pytest -m slow

test-gpu: .venv/.installed-dev
	$(BIN)/python -m pytest -m gpu

bench: .venv/.installed
	$(BIN)/python -m shels bench

reproduction: .venv/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m shels report results --reproduction .

install: .venv/.installed-dev

.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "shels needs Python 3.11 or newer; name one with: make PYTHON=python3.11 demo" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || \
	  { echo "python's venv module is missing; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@touch $@

.venv/.installed: .venv/.created pyproject.toml constraints.txt
	@echo "installing shels into .venv (PyTorch is the large part) ..."
	@$(PIP_INSTALL) --editable .
	@touch $@

.venv/.installed-serve: .venv/.installed
	@$(PIP_INSTALL) --editable '.[serve]'
	@touch $@

.venv/.installed-dev: .venv/.installed
	@$(PIP_INSTALL) --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv demo
