# Every target sets up .venv by itself. PYTHON=/path/to/python3 chooses the interpreter, ARGS="..." goes to the program.
PYTHON ?=
ARGS ?=
export PYTHON
# relative paths only: the folder's own path may contain spaces
PY := .venv/bin/python
# pyright's Python wrapper speaks of its own releases otherwise
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# likewise the MkDocs theme
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := atlas
.PHONY: atlas help test quick check bench parity lens-data docs pin clean setup

atlas: setup ## check every claim and write atlas/index.html; ARGS="--only NAME" for some
	@.venv/bin/measureformer atlas $(ARGS)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

# two processes on two cores: threads of OpenBLAS would wait for each other
test quick check: export OPENBLAS_NUM_THREADS := 1
# tests of a file share compiled programs: they go to the same process
test: setup ## run all tests; ARGS="-k word" for some
	@$(PY) -m pytest -q -n 2 --dist loadfile $(ARGS)

quick: setup ## run the fast tests, less than two minutes
	@$(PY) -m pytest -q -n 2 --dist loadfile -m "not slow" $(ARGS)

# examples of docstrings are small: compiling them is what takes time, see tests/conftest.py
check: export JAX_DISABLE_MOST_OPTIMIZATIONS := 1
check: export XLA_FLAGS += --xla_cpu_use_fusion_emitters=false
check: setup ## lint, formatting, types, and the rules in tools/
	@$(PY) -m ruff check -q .
	@$(PY) -m ruff format -q --check .
	@$(PY) -m pyright
	@failed=0; for tool in tools/[a-z]*.py; do $(PY) "$$tool" || failed=1; done; exit $$failed

bench: ## time it against others, write tables of ratios to benchmarks/results; more than an hour
	@sh tools/venv.sh dev bench parity
	@$(PY) benchmarks/attention.py
	@$(PY) benchmarks/lipschitz.py
	@$(PY) benchmarks/grid.py
	@$(PY) benchmarks/grid_certificate.py
	@$(PY) benchmarks/flow.py
	@$(PY) benchmarks/sphere.py
	@$(PY) benchmarks/implicit_bias.py
	@$(PY) benchmarks/memory.py
	@$(PY) benchmarks/sequences.py
	@$(PY) benchmarks/universality.py
	@$(PY) benchmarks/incontext.py
	@$(PY) benchmarks/optimizers.py
	@$(PY) benchmarks/lens.py
	@$(PY) -m pytest -q benchmarks --benchmark-only $(ARGS)

parity: ## compare the lens with torch and transformers on new random models; ARGS="--seed 2" for others
	@sh tools/venv.sh dev parity
	@$(PY) tests/lens_reference.py compare $(ARGS)

lens-data: ## fetch real pretrained weights for the claims about them, 280 MB
	@sh tools/venv.sh dev parity
	@$(PY) tools/_lens_data.py

docs: setup ## build the documentation into site/
	@# with --quiet, --strict would not count warnings; so the output is kept back unless the build fails
	@said=$$($(PY) -m mkdocs build --strict 2>&1) || { echo "$$said"; exit 1; }
	@echo site/index.html

pin: setup ## look up current versions and rewrite constraints.txt
	@$(PY) tools/pin.py --write

clean: ## remove all that make has made: .venv, atlas/, site/, lens-data/, caches
	@rm -rf .venv atlas site dist lens-data .pytest_cache .ruff_cache .hypothesis .benchmarks
	@find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

setup:
	@sh tools/venv.sh dev
