# What one may ask of this repository. Everything goes into ./build.
BIN  := $(CURDIR)/build/bin
TIME ?= 30s

# Which specs of Kubernetes' suites are run, and how.
SPECS = $(if $(FOCUS),-focus '$(FOCUS)') $(if $(SKIP),-skip '$(SKIP)') $(if $(LABELS),-labels '$(LABELS)') $(if $(PROCS),-procs $(PROCS)) $(ARGS)

.PHONY: help run test ci lint bench fuzz budgets clocks hollow api clients uml parity e2e prometheus suite conformance conformance-v2 conformance-local storage takeover upgrade differential controlplanes cost kubeadm critest test-vm compare release nightly tools shells build clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 12

run: ## the agent and examples/manifests, until Ctrl-C; RUNTIME=containerd
	@command -v go >/dev/null || { echo "missing: go, see https://go.dev/dl"; exit 1; }
	@CGO_ENABLED=0 go build -trimpath -o $(BIN)/run ./internal/cmd/run
	@exec $(BIN)/run $(ARGS)

build: ## the agent with its monitor, into build/bin
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags='-s -w' -o $(BIN)/nodewright-monitor ./localcri/monitor/cmd
	gzip -9nc $(BIN)/nodewright-monitor | tee examples/agent/monitor/nodewright-monitor.gz > examples/edge/monitor/nodewright-monitor.gz
	CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o $(BIN)/agent ./examples/agent

test: ## every test, with the race detector, and 300 simulated lives of the agent without
	go test -race -timeout 25m ./...
	go test -count=1 ./internal/sim -run TestSeeds -seeds 300 -sims 4

ci: export CI = true
ci: tools build lint test ## what must be green before a change goes in; needs root
	go test -count=1 -run TestBudgets .
	RUN_ONCE=1 $(MAKE) run
	$(MAKE) parity e2e

lint: $(BIN)/golangci-lint ## golangci-lint over everything
	go vet ./...
	go vet -tags clients,compare ./examples/agent
	go -C e2e vet -tags kubelet,older . ./apart ./controlplane ./parity ./conformance/...
	$(BIN)/golangci-lint run ./...
	cd e2e && $(BIN)/golangci-lint run --build-tags kubelet,older . ./apart ./controlplane ./parity ./conformance/...

bench: ## every benchmark
	go test -run '^$$' -bench . -benchmem ./...

fuzz: ## every fuzz target, TIME=30s each
	@set -e; go list -f '{{range .TestGoFiles}}{{$$.Dir}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$$.Dir}}/{{.}} {{end}}' ./... | tr ' ' '\n' | \
	  xargs -r grep -Ho '^func Fuzz[A-Za-z0-9_]*' | while IFS=: read -r file func; do \
	    echo "== $${func#func } in $$(dirname $$file)"; \
	    go test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(TIME) -fuzzminimizetime 20x $$(dirname $$file); done

budgets: ## measure what each package weighs, and rewrite the table of docs/weights.md
	go test -count=1 -timeout 30m -run TestBudgets . -update

api: ## rewrite api/next.txt with what stable packages export
	go test -count=1 -run TestAPI . -args -update-api

hollow: ## a thousand nodes without machines in one process, at rest: memory, CPU, calls; ARGS='-kubeconfig ~/.kube/config -nodes 100'
	go build -o $(BIN)/hollow ./examples/hollow
	$(BIN)/hollow $(or $(ARGS),-nodes 1000 -pods-per-node 3 -for 1m)

test-vm: tools ## the tests that need root, in a VM with cgroup v2; PKG=./cri ARGS='-run X -timeout 30m'; ARGS=-uml for one that is much faster, and knows less
	CGO_ENABLED=0 go build -o $(BIN)/testvm ./internal/cmd/testvm
	@exec $(BIN)/testvm $(ARGS) $(PKG)

uml: ## a user-mode Linux of Debian's newest sources, in ten minutes: for test-vm ARGS=-uml and conformance-v2, twice as fast as the one of its package, with cpusets
	internal/cmd/testvm/uml.sh build/vm/uml

parity: ## flags, fields, gates, metrics, events, endpoints, pod fields and admission beside the kubelet's sources
	go -C e2e test -count=1 ./parity

e2e: tools shells build ## the agent as a node of a real cluster; RUNTIME=localcri ARGS='-v -run TestBurst -burst 100'
	go -C e2e build -o $(BIN)/cluster ./cmd/cluster
	go -C e2e test -race -count=1 -timeout 20m -skip 'TestPrometheus$$' . $(ARGS)

prometheus: tools shells build ## Prometheus scrapes the agent, and expressions of kubernetes-mixin find its series; needs root
	go -C e2e build -o $(BIN)/cluster ./cmd/cluster
	go -C tools/prometheus build -ldflags '-s -w' -o $(BIN)/promcheck .
	go -C e2e test -count=1 -timeout 20m -v -run 'TestPrometheus$$' . $(ARGS)

suite: tools shells build
	go -C e2e build -o $(BIN)/ginkgo github.com/onsi/ginkgo/v2/ginkgo
	go -C e2e test -c -ldflags '-s -w' -o $(BIN)/e2e_node.test k8s.io/kubernetes/test/e2e_node
	go -C e2e build -o $(BIN)/conformance ./conformance

conformance: suite ## Kubernetes' own suite for nodes against the agent; RUNTIME=localcri FOCUS='ConfigMap|Secrets' LABELS='NodeConformance && Serial' PROCS=1
	$(BIN)/conformance $(SPECS)

conformance-v2: suite ## the same on cgroup v2, in a user-mode Linux, which has one CPU, 9 GiB and a disk; FOCUS, SKIP, LABELS and PROCS as above
	CGO_ENABLED=0 go build -o $(BIN)/testvm ./internal/cmd/testvm
	$(BIN)/testvm -uml -memory 9G -disk 24G -timeout 3h -command "e2e/conformance/usermode.sh $(SPECS)"

storage: tools shells build ## the storage suites of Kubernetes against examples/csidriver, or with mock drivers; FOCUS=... SKIP=... ARGS='-attach -mock -kubelet build/bin/kubelet'
	go -C e2e build -o $(BIN)/cluster ./cmd/cluster
	go -C e2e build -o $(BIN)/ginkgo github.com/onsi/ginkgo/v2/ginkgo
	go -C e2e build -o $(BIN)/kubelet k8s.io/kubernetes/cmd/kubelet
	go -C e2e test -c -ldflags '-s -w' -o $(BIN)/e2e.test k8s.io/kubernetes/test/e2e
	go -C e2e build -o $(BIN)/conformance ./conformance
	CGO_ENABLED=0 go -C tools/csi build -ldflags '-s -w' -o $(BIN)/ tool
	CGO_ENABLED=0 go -C tools/csi/provisioner build -ldflags '-s -w' -o $(BIN)/ tool
	go build -o $(BIN)/csidriver ./examples/csidriver
	$(BIN)/conformance -storage -out build/storage $(SPECS)

conformance-local: tools shells build ## the conformance specs of a node against the agent alone, whose own API they use; FOCUS=... SKIP=... PROCS=...
	go -C e2e build -o $(BIN)/cluster ./cmd/cluster
	go -C e2e build -o $(BIN)/ginkgo github.com/onsi/ginkgo/v2/ginkgo
	go -C e2e test -c -ldflags '-s -w' -o $(BIN)/e2e.test k8s.io/kubernetes/test/e2e
	go -C e2e build -o $(BIN)/conformance ./conformance
	$(BIN)/conformance -local -out build/conformance-local $(SPECS)

takeover: tools shells build ## a node that the kubelet ran, continued by the agent, and back; needs root, touches nothing of the machine
	go -C e2e build -o $(BIN)/cluster ./cmd/cluster
	go -C e2e build -o $(BIN)/kubelet k8s.io/kubernetes/cmd/kubelet
	go -C e2e test -tags kubelet -count=1 -timeout 30m -v -run TestTakeover . $(ARGS)

upgrade: tools shells build ## agents of earlier releases replaced by this one under running pods, and back, over containerd and localcri; needs root, touches nothing of the machine; ARGS='-upgrade.from v0.1.0 -upgrade.over localcri'
	go -C e2e build -o $(BIN)/cluster ./cmd/cluster
	go -C e2e test -tags kubelet -count=1 -timeout 30m -v -run TestUpgrade . $(ARGS)

differential: tools shells build ## pods run by the kubelet and by the agent, statuses and events compared; takes /var/lib/kubelet on this machine
	go -C e2e build -o $(BIN)/cluster ./cmd/cluster
	go -C e2e build -o $(BIN)/kubelet k8s.io/kubernetes/cmd/kubelet
	go -C e2e test -tags kubelet -count=1 -timeout 30m -v -run TestDifferential . $(ARGS)

cost: tools shells build ## what 60 pods cost the kubelet and the agent in turn: CPU, memory, calls; takes /var/lib/kubelet; ARGS='-cost.rounds 2 -cost.pods 250 -cost.profile /tmp/profiles -cost.of /tmp/agent-before,agent'
	go -C e2e build -o $(BIN)/cluster ./cmd/cluster
	go -C e2e build -o $(BIN)/kubelet k8s.io/kubernetes/cmd/kubelet
	go -C e2e test -tags kubelet -count=1 -timeout 30m -v -run TestCost . $(ARGS)

controlplanes: tools shells build ## a pod's life on control planes of Kubernetes 1.34 to 1.37; what is older is built below tools/controlplane
	go -C e2e build -o $(BIN)/cluster ./cmd/cluster
	for minor in 1.34 1.35 1.36; do go -C tools/controlplane/$$minor build -ldflags '-s -w' -o $(BIN)/controlplane-$$minor/ tool || exit 1; done
	go -C e2e test -tags older -count=1 -timeout 30m -v -run TestControlPlanes . $(ARGS)

kubeadm: tools shells build ## kubeadm join, upgrade node and reset with the agent in the kubelet's place; needs root, touches nothing of the machine
	go -C e2e build -o $(BIN)/cluster ./cmd/cluster
	release=$$(go -C e2e list -m -f '{{.Version}}' k8s.io/kubernetes) && minor=$${release#v1.} && version=k8s.io/component-base/version && \
	  go -C e2e build -ldflags "-X $$version.gitVersion=$$release -X $$version.gitMajor=1 -X $$version.gitMinor=$${minor%%.*}" -o $(BIN)/kubeadm k8s.io/kubernetes/cmd/kubeadm
	go -C e2e test -tags kubelet -count=1 -timeout 30m -v -run TestKubeadm . $(ARGS)

critest: tools shells ## Kubernetes' own suite for runtimes against localcri on this machine, as root; ARGS='-critest.args "-ginkgo.focus=Streaming"' for a part
	go -C tools test -c -o $(BIN)/critest sigs.k8s.io/cri-tools/cmd/critest
	go test -count=1 -v -timeout 1h -run TestCritest ./localcri -args -critest $(BIN)/critest $(ARGS)

compare: tools build ## the agent with localcri and with containerd in turns: starts, memory, CPU, logs, images; ARGS='-compare.rounds 1 -compare.only starts'
	PATH=$(BIN):$$PATH go test -tags compare -count=1 -timeout 60m -v -run TestCompare ./examples/agent $(ARGS)

clients: tools build ## Helm, a controller of controller-runtime and Python's client with the agent's own API; needs root
	go -C e2e build -o $(BIN)/cluster ./cmd/cluster
	go -C tools/helm build -ldflags '-s -w' -o $(BIN)/ tool
	go -C tools/controllerruntime build -ldflags '-s -w' -o $(BIN)/controller .
	@/usr/bin/python3 -c 'import kubernetes' 2>/dev/null || { apt-get update -qq && apt-get install -qq -y --no-install-recommends python3-kubernetes; }
	PATH=$(BIN):$$PATH go test -tags clients -count=1 -timeout 20m -v -run 'TestHelm|TestControllerRuntime|TestPython' ./examples/agent $(ARGS)

release: ## programs, Debian packages, images and lists of modules of HEAD, into build/release; ARGS='--arch amd64'
	go run ./internal/cmd/release --out build/release $(ARGS)

SEEDS ?= 2000
clocks: ## SEEDS simulated lives of the agent on a machine whose wall clock jumps by years, at run time and over reboots
	mkdir -p build/clocks
	sed -f internal/sim/wallclock.sed "$$(go env GOROOT)/src/time/time.go" > build/clocks/time.go
	printf '{"Replace":{"%s":"%s"}}' "$$(go env GOROOT)/src/time/time.go" "$(CURDIR)/build/clocks/time.go" > build/clocks/overlay.json
	go test -count=1 -vet=off -timeout 60m -overlay build/clocks/overlay.json -tags wallclock ./internal/sim -run 'TestSeeds|TestSchedules' -sims 1 -seeds $(SEEDS) -seed $$(date +%s)0000

nightly: ## what takes hours: 20,000 pods that come and go, 5,000 edits and restarts, 10,000 simulated lives of the agent, every fuzz target for 5 minutes, cgroup v2, Kubernetes' own suite
	go test -count=1 -timeout 90m ./internal/hostile -run 'TestChurn|TestUpdates|TestRestarts|TestFailingPulls|TestAPIPods|TestRequests' -churn 20000 -lives 5000 -v
	go test -count=1 -timeout 90m ./csi -run OnDisks -every
	go test -count=1 -timeout 90m ./internal/sim -run TestSeeds -seeds 10000 -seed $$(date +%s)0000 -v
	go test -count=1 -timeout 90m ./internal/sim -run TestSeeds -node -seeds 1000 -seed $$(date +%s)0000 -v
	go test -count=1 -timeout 90m ./internal/sim -run TestSeeds -long -seeds 300 -seed $$(date +%s)0000 -v
	$(MAKE) clocks
	$(MAKE) fuzz TIME=5m
	$(MAKE) test-vm
	SYSTEMD=1 $(MAKE) test-vm PKG=./internal/cmd/release ARGS='-run TestPackageOnSystemd'
	$(MAKE) takeover upgrade differential controlplanes kubeadm prometheus clients
	$(MAKE) conformance

tools: ## containerd, runc, CNI plugins, crictl and benchstat, pinned in tools/go.mod
	@CGO_ENABLED=0 go build -trimpath -o $(BIN)/run ./internal/cmd/run
	@$(BIN)/run --tools-only

shells: # the images of these tests are made of them
	@command -v busybox >/dev/null && command -v bash-static >/dev/null || { apt-get update -qq && apt-get install -qq -y --no-install-recommends busybox-static bash-static; }

$(BIN)/golangci-lint: tools/lint/go.mod
	GOBIN=$(BIN) go -C tools/lint install tool
	@touch $@

clean: ## remove what was built
	rm -rf build
