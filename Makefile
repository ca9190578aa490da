# Two commands matter: `make lab` opens the chapters, `make test` checks everything.
# Needs Python 3.10 or newer and make (GNU make 3.81 will do); all else goes into .venv.

VENV ?= .venv
PIPFLAGS ?= --quiet --disable-pip-version-check

ifeq ($(OS),Windows_NT)
PYTHON ?= python
PY := $(VENV)/Scripts/python
else
PYTHON ?= python3
PY := $(VENV)/bin/python
endif

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help lab book install test lint types doctest unit memory chapters chapters-again size format outputs bench claims stress fuzz soak growth test-browser browser test-mxnet test-graders test-cuda-stub test-gpu test-all clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  make \1	\2/p' Makefile

# On a copy without outputs, d2lmini-chapters/: an output would answer what the text asks to predict.
lab: $(VENV)/.lab  ## read and run the chapters in JupyterLab: d2lmini-chapters/
	$(PY) -m d2lmini lab $(if $(LABFLAGS),-- $(LABFLAGS))

# SOLUTIONS=no leaves the folded answers out, for a class that is to find them: build/book-exercises.
book: $(VENV)/.test  ## chapters, guides and a reference as pages that need no Jupyter or network: build/book
	$(PY) tests/tools/build_book.py $(if $(filter no,$(SOLUTIONS)),--without-solutions) $(BOOKFLAGS)

install: $(VENV)/.test  ## only make .venv with all that the other targets need

test: lint types doctest unit memory chapters size browser  ## everything below, in this order

lint: $(VENV)/.test  ## formatting and lint (ruff)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .

types: $(VENV)/.test  ## type hints (mypy)
	$(PY) -m mypy

doctest: $(VENV)/.test  ## the examples in docstrings
	$(PY) -m pytest -q -n logical --doctest-modules d2lmini $(addprefix tests/tools/,$(addsuffix .py,\
		check_memory run_chapters run_examples size_table))

# The tests where memory is lent, kept and given back run once, under the memory checker.
CHECKED := tour check_memory ownership loans storage storage_books program plan passes cached_op \
	compiled_training compiled_overlap hybridize_nets lazy convolve_rows convolve_winograd pool_apart \
	normalize nn pointwise trainer kvstore virtual_gpus gluon_data indexing

# One process for each core: most tests wait for one thread or another.
SAMPLE ?= 4
unit: $(VENV)/.test  ## the tests, but for those of `memory`; of a law's rows one in four (SAMPLE=1: all)
	$(PY) -m pytest -q -n logical --dist worksteal --sample $(SAMPLE) $(foreach name,$(CHECKED),--ignore-glob='*/test_$(name).py') tests

# test_short_road has both: what runs at once without the checker is queued under it.
memory: $(VENV)/.test  ## the tests of memory's users, under the memory checker (D2LMINI_CHECK_MEMORY=1)
	D2LMINI_CHECK_MEMORY=1 $(PY) -m pytest -q -n logical --dist worksteal \
		$(wildcard $(foreach name,$(CHECKED) short_road,tests/test_$(name).py tests/*/test_$(name).py))

# Two at a time: half of a chapter is waiting, and what it says must hold on a busy machine too.
chapters: $(VENV)/.test  ## run every chapter and compare its outputs (nbval)
	$(PY) -m pytest -q -n 2 --dist loadfile -p nbval --nbval --nbval-current-env --nbval-cell-timeout 300 --timeout 600 \
		--nbval-sanitize-with chapters/nbval_sanitize.cfg chapters

# Each cell twice, Run All twice, the sections backward, on one core, beside four programs that spin: half an hour.
chapters-again: $(VENV)/.test  ## run the chapters as readers do who go back, and on a busy machine: nothing may fail or hang
	for order in cells-twice twice backward; do $(PY) tests/tools/run_chapters.py . $(CHAPTERS) --order $$order || exit 1; done
	$(PY) tests/tools/run_chapters.py . $(CHAPTERS) --cores 1
	$(PY) tests/tools/run_chapters.py . $(CHAPTERS) --busy 4 --times 3

size: $(VENV)/.test  ## lines and tokens per folder, without docstrings and comments
	$(PY) tests/tools/size_table.py

browser: $(VENV)/.test  ## test-browser where widgets or chapters changed, else one of its tests; says loudly if there is no browser
	$(PY) tests/browser/run.py --if-possible $(BROWSERFLAGS)

test-browser: $(VENV)/.test  ## chapters and widgets in JupyterLab in a real browser; keeps screenshots in build/
	$(PY) tests/browser/run.py $(BROWSERFLAGS)

format: $(VENV)/.test  ## rewrite the code in the project's format
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

outputs: $(VENV)/.test  ## run every chapter and store its outputs
	$(PY) tests/tools/execute_chapters.py

bench: $(VENV)/.test  ## time the workloads beside NumPy, PyTorch, JAX and MXNet, where given
	$(PY) tests/benchmarks/run.py $(BENCHFLAGS)

claims: $(VENV)/.test  ## check the chapters' claims about speed on this machine
	$(PY) tests/benchmarks/claims.py $(CLAIMSFLAGS)

# Then each public name once, called with drawn arguments: SWEEPFLAGS="nd --seeds 20" asks more.
test-mxnet: $(VENV)/.test  ## the tests that ask the real MXNet, and a sweep of calls (D2LMINI_MXNET_PYTHON names its interpreter)
	@test -n "$$D2LMINI_MXNET_PYTHON" || { echo "set D2LMINI_MXNET_PYTHON to a Python that has mxnet==1.9.1 and numpy==1.23.5"; exit 1; }
	$(PY) -m pytest -q $$(grep -rl 'mxnet: Oracle' --include='test_*.py' tests)
	$(PY) tests/generators/sweep/run.py --seeds 1 --first 1 --least 0.97 --list $(SWEEPFLAGS)

# Each in an environment of its own, made once: they bring versions of Jupyter with them.
test-graders: $(VENV)/.test  ## grade an assignment of three chapters by nbgrader's and otter's own commands
	for grader in nbgrader otter-grader; do test -x build/graders/$$grader/bin/python || { \
		$(PYTHON) -m venv build/graders/$$grader && build/graders/$$grader/bin/python -m pip install $(PIPFLAGS) $$grader ipykernel -e ".[lab]"; } || exit 1; done
	D2LMINI_NBGRADER_PYTHON=build/graders/nbgrader/bin/python D2LMINI_OTTER_PYTHON=build/graders/otter-grader/bin/python \
		$(PY) -m pytest -q tests/cli/test_assign_graders.py

# 77: something that it needs is not on this machine, and it has said so.
test-cuda-stub: $(VENV)/.test  ## CuPy itself on stand-ins for CUDA's libraries, built here: no GPU, but a C++ compiler
	$(PY) tests/gpu/stub/run.py $(STUBFLAGS) || [ $$? -eq 77 ]

test-gpu: $(VENV)/.test  ## the tests that need a real GPU (CUDA), and a table of what it does
	$(PY) -c 'import cupy; cupy.ones((2, 2)) @ cupy.ones((2, 2))' 2>/dev/null || $(PY) -m pip install $(PIPFLAGS) -e ".[$(or $(GPU_EXTRA),gpu)]"
	$(PY) tests/gpu/run.py $(GPUFLAGS)

# What of the matrix runs: MATRIXFLAGS="-s tests -p 3.12", "-s wheel -- --quick"; noxfile.py says more.
test-all: $(VENV)/.test  ## the matrix: every Python on this machine, oldest and newest NumPy and JupyterLab, the wheel alone
	$(PY) tests/tools/matrix.py $(MATRIXFLAGS)

stress: $(VENV)/.test  ## the long runs: a million tasks, memory growth; what a trace costs
	$(PY) -m pytest -q -m stress --timeout 3600 tests

fuzz: $(VENV)/.test  ## damaged files for every reader (docs/hostile-input.md), drawn programs for every engine
	$(PY) tests/fuzz/run.py $(FUZZFLAGS)
	$(PY) tests/generators/run.py $(PROGRAMFLAGS)

soak: $(VENV)/.test  ## the library in every use at once, for an hour (docs/tried.md)
	PYTHONPATH=tests/tools $(PY) tests/soak/soak.py $(SOAKFLAGS)

growth: $(VENV)/.test  ## how cost grows: tasks, dependencies, devices, batches, layers
	$(PY) tests/benchmarks/growth.py $(GROWTHFLAGS)

clean:  ## remove .venv and everything that tools left behind
	rm -rf $(VENV) build dist .nox .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name .ipynb_checkpoints -type d -prune -exec rm -rf {} +

# --- the environment: made once, and again only when pyproject.toml has changed ---

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "d2lmini needs Python 3.10 or newer, but $(PYTHON) is " + sys.version.split()[0] + "; name another one: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

$(VENV)/.lab: pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "installing d2lmini and JupyterLab into $(VENV) (a minute or two, once)"
	@$(PY) -m pip install $(PIPFLAGS) -e ".[lab]"
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "installing d2lmini, JupyterLab and the test tools into $(VENV) (a minute or two, once)"
	@$(PY) -m pip install $(PIPFLAGS) -e ".[lab,test]"
	@touch $(VENV)/.lab $@
