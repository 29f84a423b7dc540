# make help lists the targets. Everything that a target needs is installed or
# built by it; see scripts/setup.sh.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO        := scripts/go
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
IMAGE_DIR ?= $(CURDIR)/.cache/images
EMBEDDED  := internal/embedded/bin
STATIC    := CGO_ENABLED=0
LDFLAGS   := -s -w

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  \033[1m%-16s\033[0m %s\n", $$1, $$2}'

.PHONY: demo
demo: build ## set up, build, make the base image, start the daemon, run Python in a gVisor sandbox
	@scripts/demo.sh

.PHONY: demo-stop
demo-stop: ## stop what demo started and remove its sandboxes
	@scripts/demo.sh stop

TESTFLAGS ?=
TESTENV = CUBBY_TEST_IMAGE_DIR=$(IMAGE_DIR) CUBBY_TEST_BIN=$(CURDIR)/bin/cubby
.PHONY: test
test: test-ready ## set up and run every test but the slow and the long ones, with real gVisor and crun sandboxes (root); TESTFLAGS=-count=1 those too whose result is known
	$(TESTENV) scripts/test.sh run $(TESTFLAGS)

.PHONY: test-slow
test-slow: test-ready ## what a change passes besides: attacks, crashes, programs of others (test/slow.txt); TESTFLAGS as for test
	$(TESTENV) scripts/test.sh slow $(TESTFLAGS)

SEEDS ?= 50
PARTS ?=
.PHONY: test-long
test-long: test-ready ## what make test has no time for: official clients, coding agents, everyday tools, public registries, a race-built daemon, SEEDS durability seeds and 200 sleepers, fuzzing (root, hours); PARTS="agents e2e cli image security race drivers durability fuzz": some of it
	$(TESTENV) SEEDS=$(SEEDS) scripts/test.sh long $(PARTS)

.PHONY: test-budget
test-budget: test-ready ## every test of make test and make test-slow, one package at a time; fails when a package takes half again as long as test/budgets.txt gives it (root); PACKAGES="./internal/egress ./test/e2e" and RUN=REGEXP: some of them
	$(TESTENV) scripts/test.sh budget

.PHONY: test-flaky
test-flaky: test-ready ## every test of make test and make test-slow ten times; fails when one failed twice (root, hours); PACKAGES and RUN as for test-budget
	$(TESTENV) scripts/test.sh flaky

export PACKAGES RUN

# What waits for the network or one processor goes beside what compiles.
.PHONY: test-ready
test-ready:
	@if [ "$$(id -u)" != 0 ]; then echo "this starts real sandboxes and needs root; make test-unit does not" >&2; exit 1; fi
	@$(MAKE) --no-print-directory -j2 setup-test build
	@$(MAKE) --no-print-directory -j2 images openapi-tools app-packages example-packages langgraph-packages compile-tests

.PHONY: openapi-tools
openapi-tools: setup-test
	@scripts/openapi-tools.sh >/dev/null

.PHONY: langgraph-packages
langgraph-packages: setup-test
	@scripts/langgraph-packages.sh node >/dev/null
	@scripts/langgraph-packages.sh oracle >/dev/null
	@scripts/langgraph-packages.sh python >/dev/null

.PHONY: app-packages
app-packages: setup-test
	@scripts/app-packages.sh vite >/dev/null
	@scripts/app-packages.sh opencode >/dev/null

.PHONY: example-packages
example-packages: setup-test
	@scripts/example-packages.sh >/dev/null

.PHONY: compile-tests
compile-tests: setup-test embedded
	@scripts/test.sh compile

.PHONY: test-sdk-python
test-sdk-python: setup-test build images ## test the Python SDK against a real daemon, and build its packages (root)
	CUBBY_TEST_IMAGE_DIR=$(IMAGE_DIR) CUBBY_TEST_BIN=$(CURDIR)/bin/cubby scripts/sdk-python.sh test
	scripts/sdk-python.sh build

.PHONY: test-sdk-typescript
test-sdk-typescript: setup-test build image ## test the TypeScript SDK against a real daemon, and build its package (root)
	CUBBY_TEST_IMAGE_DIR=$(IMAGE_DIR) CUBBY_TEST_BIN=$(CURDIR)/bin/cubby scripts/sdk-typescript.sh test
	scripts/sdk-typescript.sh build

.PHONY: test-sdks
test-sdks: test-sdk-python test-sdk-typescript

.PHONY: test-unit
test-unit: ## the tests that need neither root nor installed programs
	modfile=$$(scripts/gvisor.sh) && $(GO) test -modfile=$$modfile -race -shuffle=on github.com/cubbyhq/cubby/...

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (default 20s)
	@scripts/fuzz.sh $${FUZZTIME:-20s}

ROUNDS ?= 20
CYCLES ?= 60
.PHONY: durability
durability: setup-test build image ## kill the daemon under load ROUNDS times in each configuration, and compare CYCLES sleeps, forks, rollbacks and the like; SEED repeats the random choices (root)
	CUBBY_TEST_IMAGE_DIR=$(IMAGE_DIR) CUBBY_TEST_BIN=$(CURDIR)/bin/cubby CUBBY_TEST_ROUNDS=$(ROUNDS) CUBBY_TEST_CYCLES=$(CYCLES) CUBBY_TEST_SEED=$(SEED) \
		$(GO) test -tags root -count 1 -timeout 4h -v -run TestDurability ./test/durability

.PHONY: build
build: setup embedded ## build bin/cubby with the programs that it carries
	@mkdir -p bin
	@[ ! -e bin/cubby ] || cp -p bin/cubby bin/.before
	$(STATIC) $(GO) build -trimpath -ldflags '$(LDFLAGS) -X github.com/cubbyhq/cubby/internal/telemetry.Version=$(VERSION)' -o bin/cubby ./cmd/cubby
	@# Tests that ran with it need not run again: go looks at the time.
	@! cmp -s bin/.before bin/cubby || touch -r bin/.before bin/cubby
	@rm -f bin/.before

# The programs that run beside or inside sandboxes, compressed for go:embed.
.PHONY: embedded
embedded: setup
	@mkdir -p .cache/programs $(EMBEDDED)
	$(STATIC) $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o .cache/programs/cubby-init ./cmd/cubby-init
	modfile=$$(scripts/gvisor.sh) && $(STATIC) $(GO) build -modfile=$$modfile -trimpath -ldflags '$(LDFLAGS)' -o .cache/programs/runsc ./cmd/runsc
	$(STATIC) $(GO) run -trimpath ./internal/embedded/pack -out $(EMBEDDED) .cache/programs/cubby-init .cache/programs/runsc

.PHONY: image
image: build ## build the base image into IMAGE_DIR unless it is there
	@scripts/image-ready.sh $(IMAGE_DIR) || bin/cubby image build base --image-dir $(IMAGE_DIR)

.PHONY: images
images: image ## build the images base and r into IMAGE_DIR unless they are there
	@scripts/image-ready.sh $(IMAGE_DIR) r || bin/cubby image build r --image-dir $(IMAGE_DIR)

.PHONY: test-vm
test-vm: ## try cubby in a virtual machine with cgroup version 2 and systemd; ARCH=arm64: an arm64 one (root)
	scripts/vm.sh

.PHONY: bench
bench: images ## print the figures of docs/performance.md (root)
	bin/cubby bench --image-dir $(IMAGE_DIR)

.PHONY: install
install: build ## install to /usr/local/bin and set up the systemd service
	install -m 0755 bin/cubby /usr/local/bin/cubby
	install -m 0644 deploy/cubby.service /etc/systemd/system/cubby.service
	@echo "now: systemctl daemon-reload && systemctl enable --now cubby"

.PHONY: lint
lint: setup-test ## formatting, vet, golangci-lint, the linters of api/openapi.json
	@scripts/gofmt.sh
	@scripts/lint-openapi.sh
	$(STATIC) $(GO) vet -trimpath github.com/cubbyhq/cubby/... && $(STATIC) $(GO) vet -trimpath -tags root,long ./...
	$(STATIC) GOFLAGS=-trimpath $(GO) tool -modfile=tools/lint/go.mod golangci-lint run --build-tags root,long ./...
	cd client && $(STATIC) GOFLAGS=-trimpath ../$(GO) tool -modfile=../tools/lint/go.mod golangci-lint run ./...
	@scripts/client-oldest.sh

.PHONY: generate
generate: setup-test ## regenerate api/gen, api/openapi.json, the TypeScript SDK's types and the Python SDK's blocking half
	scripts/generate.sh

.PHONY: check-generate
check-generate: generate ## fail when generated files are not what generate makes
	@git diff --exit-code --stat -- api sdk cmd/runsc || { echo "generated files differ: commit what make generate made" >&2; exit 1; }

.PHONY: setup setup-test
setup:
	@scripts/setup.sh run
setup-test: setup
	@scripts/setup.sh test

.PHONY: clean
clean: ## remove what was built; caches and images stay
	rm -rf bin .cache/programs $(EMBEDDED)/*.zst $(EMBEDDED)/*.sha256
