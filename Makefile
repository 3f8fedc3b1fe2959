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

.DEFAULT_GOAL := start
.PHONY: start atlas help test quick check bench parity lens-data docs notebooks figures explore pin package lowest newest clean setup

# a process for each core, and eight at most: each takes about a gigabyte
JOBS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1); echo $$(( n < 8 ? n : 8 )))

start: setup ## what plain `make` does: check every claim at small sizes and write atlas/index.html, in minutes
	@.venv/bin/measureformer atlas --quick --jobs $(JOBS) $(ARGS)

atlas: setup ## check every claim at the sizes of its statement, on several seeds; ARGS="--only NAME" for some
	@.venv/bin/measureformer atlas --jobs $(JOBS) $(ARGS)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

# two processes on two cores: threads of OpenBLAS would wait for each other
test quick check lowest newest: export OPENBLAS_NUM_THREADS := 1
# tests of a file share compiled programs: they go to the same process; files with few tests, which can be long ones,
# must not come last
test: setup ## run all tests; ARGS="-k word" for some
	@$(PY) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

quick: setup ## run the fast tests, less than two minutes
	@$(PY) -m pytest -q -n 2 --dist loadfile -m "not slow" $(ARGS)

# examples of docstrings are small: compiling them is what takes time, see tests/conftest.py
check: export JAX_DISABLE_MOST_OPTIMIZATIONS := 1
check: export XLA_FLAGS += --xla_cpu_use_fusion_emitters=false
check: setup ## lint, formatting, types, and the rules in tools/
	@$(PY) -m ruff check -q .
	@$(PY) -m ruff format -q --check .
	@$(PY) -m pyright
	@$(PY) -m pyright -p tools
	@failed=0; for tool in tools/[a-z]*.py; do $(PY) "$$tool" || failed=1; done; exit $$failed

bench: ## time it against others, write tables of ratios to benchmarks/results; more than an hour
	@sh tools/venv.sh dev bench parity
	@$(PY) benchmarks/latency.py
	@$(PY) benchmarks/attention.py
	@$(PY) benchmarks/lipschitz.py
	@$(PY) benchmarks/grid.py
	@$(PY) benchmarks/grid_certificate.py
	@$(PY) benchmarks/certificates.py
	@$(PY) benchmarks/flow.py
	@$(PY) benchmarks/sphere.py
	@$(PY) benchmarks/implicit_bias.py
	@$(PY) benchmarks/memory.py
	@$(PY) benchmarks/transport.py
	@$(PY) benchmarks/sequences.py
	@$(PY) benchmarks/universality.py
	@$(PY) benchmarks/incontext.py
	@$(PY) benchmarks/optimizers.py
	@$(PY) benchmarks/lens.py
	@$(PY) benchmarks/explore.py
	@$(PY) benchmarks/refusals.py
	@$(PY) benchmarks/loaders.py
	@$(PY) benchmarks/faults.py
	@$(PY) benchmarks/seeds.py
	@$(PY) tools/mutants.py --run
	@$(PY) -m pytest -q benchmarks --benchmark-only $(ARGS)

parity: ## compare the lens with torch and transformers on new random models; ARGS="--seed 2" for others
	@sh tools/venv.sh dev parity
	@$(PY) tests/lens_reference.py compare $(ARGS)

lens-data: ## fetch real pretrained weights for the claims about them, 280 MB
	@sh tools/venv.sh dev parity
	@$(PY) tools/_lens_data.py

notebooks: setup ## write docs/notebooks from the tutorials, and run copies of them into notebooks/
	@$(PY) tools/notebooks.py --write
	@$(PY) tools/notebooks.py --run $(ARGS)

docs: setup ## build the documentation into site/
	@# with --quiet, --strict would not count warnings; so the output is kept back unless the build fails
	@said=$$($(PY) -m mkdocs build --strict 2>&1) || { echo "$$said"; exit 1; }
	@echo "site/index.html; with a search box: $(PY) -m http.server -b 127.0.0.1 -d site"

figures: setup ## draw the figures of the documentation again, and the maps that are made from the code
	@$(PY) tools/_figures.py $(ARGS)
	@$(PY) tools/reading_map.py --write
	@$(PY) tools/import_map.py --write

explore: setup ## drag tokens, draw functions and digits, in the browser; ARGS="particles" for one app
	@.venv/bin/measureformer explore $(ARGS)

pin: setup ## look up current versions and rewrite constraints.txt
	@$(PY) tools/pin.py --write

package: setup ## build the wheel and the sdist into dist/, install each into a new environment, and use it
	@$(PY) tools/_install.py

# some tests of each library that the package stands on
PART := tests/attention tests/cli tests/package tests/pages tests/figures tests/measures tests/transport tests/flows \
	tests/memory tests/implicit_bias

# old releases meet newer libraries of others, whose warnings are for them
lowest: setup ## run part of the tests with the lowest versions that pyproject.toml allows, in .venv-lowest
	@$(PY) tools/_bounds.py lowest
	@.venv-lowest/bin/python -m pytest -q -W default::DeprecationWarning -n 2 --dist loadfile $(PART) $(ARGS)

newest: setup ## run the same tests with the newest versions that there are, in .venv-newest
	@$(PY) tools/_bounds.py newest
	@.venv-newest/bin/python -m pytest -q -n 2 --dist loadfile $(PART) $(ARGS)

clean: ## remove all that make has made: .venv, atlas/, site/, notebooks/, lens-data/, caches
	@rm -rf .venv .venv-lowest .venv-newest atlas site dist notebooks lens-data .pytest_cache .ruff_cache .hypothesis .benchmarks
	@find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

setup: ## set up .venv and nothing else
	@sh tools/venv.sh dev
