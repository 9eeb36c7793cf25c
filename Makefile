# Everything a developer runs. `make` alone explains itself; only python3, pip and make have to be there.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-peers test-coverage lint bench soak docs lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 16

setup: $(STAMP) ## a virtual environment in .venv with everything pinned

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: setup ## train DAC and SAC side by side in the maze: curves, histograms and a page in demo/
	$(BIN)/python -m dac.cli.demo

lint: setup ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint ## lint, types and tests
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: setup ## the tests that train for minutes
	$(BIN)/python -m pytest -m slow

test-peers: .peers-venv/.installed ## compared with other libraries themselves, in an environment of their own
	DAC_PEERS=1 .peers-venv/bin/python -m pytest tests/peers

.peers-venv/.installed: tests/peers/requirements.txt pyproject.toml
	$(PYTHON) -m venv .peers-venv
	.peers-venv/bin/python -m pip install --quiet --disable-pip-version-check -r tests/peers/requirements.txt --editable .
	@touch $@

test-coverage: setup ## the tests of `make test`, and which lines of dac/ they reach
	$(BIN)/python -m pytest -n 2 --dist loadfile --cov=dac --cov-report=term:skip-covered

bench: setup .bench-venv/.installed ## speed, as ratios: to this machine's matrix product, to SBX, to Stable-Baselines3
	$(BIN)/python bench/update.py --members 1,4
	$(BIN)/python bench/density.py --members 1,4
	$(BIN)/python bench/maze.py
	$(BIN)/python bench/robots.py
	$(BIN)/python bench/replay.py
	$(BIN)/python bench/heap.py
	$(BIN)/python bench/checkpoints.py
	$(BIN)/python bench/compare.py
	PYTHONPATH=. .bench-venv/bin/python bench/peers_train.py

.bench-venv/.installed: bench/requirements.txt
	$(PYTHON) -m venv .bench-venv
	.bench-venv/bin/python -m pip install --quiet --disable-pip-version-check -r bench/requirements.txt
	@touch $@

soak: setup ## two hours of one run: memory, descriptors and speed must stay flat
	$(BIN)/python bench/soak.py --hours 2

docs: setup ## the documentation as a web site in site/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/sphinx-build -W --keep-going -E -q docs site

lock: ## write requirements.lock anew from the ranges in pyproject.toml
	rm -rf .lock-venv && $(PYTHON) -m venv .lock-venv
	.lock-venv/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	.lock-venv/bin/python -m pip install --quiet . --group dev
	.lock-venv/bin/python -m pip freeze --exclude diversity-actor-critic > requirements.lock
	rm -rf .lock-venv

clean: ## remove everything that was generated
	rm -rf $(VENV) .bench-venv .peers-venv .jax-cache .mypy_cache .ruff_cache .pytest_cache demo runs site soak
