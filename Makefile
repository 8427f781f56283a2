# Everything here sets itself up: a virtual environment in .venv, an editable install with the dev group.
# PYTHON chooses the interpreter (3.11 or newer), PYTEST_ARGS are passed on to pytest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check format bench soak lowest interop clean

demo: $(READY)
	@$(BIN)/sayagain demo claude

test: $(READY)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python -m bench $(BENCH_ARGS)

soak: $(READY)
	$(BIN)/python -m tests.soak $(SOAK_ARGS)

# The pure tests with the lowest versions that pyproject.toml admits: the bounds are real.
lowest:
	$(PYTHON) .ci/lowest.py $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pytest tests/pure tests/agent tests/transports

# The public SDKs, for the tests marked `interop`; run with SAYAGAIN_ORACLES=.oracles.
interop:
	sh .ci/oracles.sh .oracles

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]' --group dev
	@touch $(READY)

clean:
	rm -rf $(VENV) $(VENV)-lowest .oracles
