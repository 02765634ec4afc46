# What one may ask of this repository. Everything goes into ./build.
BIN  := $(CURDIR)/build/bin
TIME ?= 30s

.PHONY: help run test ci lint bench fuzz budgets e2e conformance test-vm tools build clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

run: ## containerd, the agent and examples/manifests, until Ctrl-C
	@command -v go >/dev/null || { echo "missing: go, see https://go.dev/dl"; exit 1; }
	@go build -o $(BIN)/run ./internal/cmd/run
	@exec $(BIN)/run $(ARGS)

build: ## the agent, into build/bin
	xargs -d '\n' -a internal/agentbuild/flags sh -c 'exec go build "$$@" -o $(BIN)/agent ./examples/agent' build

test: ## every test, with the race detector
	go test -race -timeout 25m ./...

ci: export CI = true
ci: tools build lint test ## what must be green before a change goes in; needs root
	go test -count=1 -run TestBudgets .
	RUN_ONCE=1 $(MAKE) run
	$(MAKE) e2e

lint: $(BIN)/golangci-lint ## golangci-lint over everything
	go vet ./...
	go -C e2e vet . ./controlplane ./conformance/...
	$(BIN)/golangci-lint run ./...
	cd e2e && $(BIN)/golangci-lint run . ./controlplane ./conformance/...

bench: ## every benchmark
	go test -run '^$$' -bench . -benchmem ./...

fuzz: ## every fuzz target, TIME=30s each
	@set -e; go list -f '{{range .TestGoFiles}}{{$$.Dir}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$$.Dir}}/{{.}} {{end}}' ./... | tr ' ' '\n' | \
	  xargs -r grep -Ho '^func Fuzz[A-Za-z0-9_]*' | while IFS=: read -r file func; do \
	    echo "== $${func#func } in $$(dirname $$file)"; \
	    go test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(TIME) $$(dirname $$file); done

budgets: ## measure what each package weighs and rewrite the README's table
	go test -count=1 -run TestBudgets . -update

test-vm: tools ## the tests that need root, in a VM with cgroup v2; PKG=./cri ARGS='-run X -timeout 30m'
	CGO_ENABLED=0 go build -o $(BIN)/testvm ./internal/cmd/testvm
	@exec $(BIN)/testvm $(ARGS) $(PKG)

e2e: tools build ## the agent as a node of a real cluster; ARGS='-v -run TestBurst -burst 100'
	go -C e2e build -o $(BIN)/cluster ./cmd/cluster
	go -C e2e test -race -count=1 -timeout 20m . $(ARGS)

conformance: tools build ## Kubernetes' own suite for nodes against the agent; FOCUS='ConfigMap|Secrets' LABELS='NodeConformance && Serial' PROCS=1
	go -C e2e build -o $(BIN)/ginkgo github.com/onsi/ginkgo/v2/ginkgo
	go -C e2e test -c -ldflags '-s -w' -o $(BIN)/e2e_node.test k8s.io/kubernetes/test/e2e_node
	go -C e2e build -o $(BIN)/conformance ./conformance
	$(BIN)/conformance $(if $(FOCUS),-focus '$(FOCUS)') $(if $(SKIP),-skip '$(SKIP)') $(if $(LABELS),-labels '$(LABELS)') $(if $(PROCS),-procs $(PROCS)) $(ARGS)

tools: ## containerd, runc, CNI plugins, crictl and benchstat, pinned in tools/go.mod
	@go build -o $(BIN)/run ./internal/cmd/run
	@$(BIN)/run --tools-only

$(BIN)/golangci-lint: tools/lint/go.mod
	GOBIN=$(BIN) go -C tools/lint install tool
	@touch $@

clean: ## remove what was built
	rm -rf build
