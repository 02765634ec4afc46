# What most people ask of this repository; make/verify.mk has the rest. Everything goes into ./build.
BIN := $(CURDIR)/build/bin

# All that is compiled without the race detector, which needs cgo, is compiled in one configuration.
export CGO_ENABLED := 0
# make lint vets all packages; go test would do it again, and for the packages that they import.
export GOFLAGS += -vet=off

.DEFAULT_GOAL := help
.PHONY: help run build test lint e2e ci tools shells clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 12
	@echo "make/verify.mk has $$(sed -n 's/^\([a-z0-9-]*\):.*##.*/\1/p' make/verify.mk | paste -sd ' ' | fmt -w 100)"

run: ## the agent and examples/manifests, until Ctrl-C; RUNTIME=containerd
	@command -v go >/dev/null || { echo "missing: go, see https://go.dev/dl"; exit 1; }
	@go build -o $(BIN)/run ./internal/cmd/run
	@exec $(BIN)/run $(ARGS)

build: ## the agent, into build/bin
	go build -ldflags='-s -w' -o $(BIN)/agent ./examples/agent

test: ## every test with the race detector, then without it those that drive another program, and 300 simulated lives of the agent
	CGO_ENABLED=1 go test -race -timeout 25m ./...
	go test -timeout 25m -parallel 6 ./internal/hostile
	go test -count=1 ./internal/sim -run TestSeeds -seeds 300

lint: $(BIN)/golangci-lint ## golangci-lint over everything; it does what go vet does, too
	$(BIN)/golangci-lint run ./...
	$(BIN)/golangci-lint run --build-tags clients,compare,gpu,liveheap,nri,otlp ./examples/agent
	cd e2e && $(BIN)/golangci-lint run --build-tags kubelet,older,ecosystem . ./apart ./controlplane ./csidriver ./parity ./conformance/...

e2e: tools shells build cluster ## the agent as a node of a real cluster, in 20 minutes at most; needs root; RUNTIME=localcri ARGS='-v -run TestBurst -burst 100'
	go -C e2e test -count=1 ./csidriver
	go -C e2e test -count=1 -timeout 20m -skip 'TestPrometheus$$' . $(ARGS)

ci: export CI = true
ci: tools shells cluster build lint test ## what must be green before a change goes in: nothing is skipped for want of a program; needs root
	go test -count=1 -timeout 25m -run TestBudgets .
	RUN_ONCE=1 $(MAKE) run
	$(MAKE) parity e2e

# containerd, runc, CNI plugins, crictl and benchstat, pinned in tools/go.mod, and packages of Debian that tests look with.
tools:
	@go build -o $(BIN)/run ./internal/cmd/run
	@$(BIN)/run --tools-only

# Of Debian: what images of tests are made of. A busybox that needs a loader is another package's.
shells:
	@{ command -v bash-static && busybox=$$(command -v busybox) && ! ldd $$busybox; } >/dev/null 2>&1 || \
	  { apt-get update -qq && apt-get -o DPkg::Lock::Timeout=300 install -qq -y --no-install-recommends busybox-static bash-static; }

# Of Debian: what the agent of an ordinary user runs.
pasta:
	@{ command -v pasta && command -v newuidmap; } >/dev/null 2>&1 || \
	  { apt-get update -qq && apt-get -o DPkg::Lock::Timeout=300 install -qq -y --no-install-recommends passt uidmap; }

$(BIN)/golangci-lint: tools/lint/go.mod
	GOBIN=$(BIN) go -C tools/lint install tool
	@touch $@

clean: ## remove what was built
	rm -rf build

include make/verify.mk
