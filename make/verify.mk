# What is run now and then, or by who works on one thing. Each heading says how long it takes (at most, where it is a
# time limit; what is built the first time comes on top: Kubernetes' programs take ten minutes and more), whether it needs
# root, and what it changes on the machine outside of ./build and temporary directories. All but "nothing" may also install
# packages of Debian that are missing.

.PHONY: fuzz mutants clocks arm64 test-vm rootless uml gpu nightly parity takeover upgrade incidents kubeadm controlplanes differential cost prometheus page clients peers ecosystem nri suite conformance conformance-v2 conformance-local storage critest bench scale hollow compare budgets api monitor release known cluster kubelet ginkgo

# Which specs of Kubernetes' suites are run, and how.
SPECS = $(if $(FOCUS),-focus '$(FOCUS)') $(if $(SKIP),-skip '$(SKIP)') $(if $(LABELS),-labels '$(LABELS)') $(if $(PROCS),-procs $(PROCS)) $(ARGS)

# What several targets need.
known: # of those that take places of the machine which a node of its own would have
	@test "$(I_KNOW)" = 1 || { echo "$(MAKECMDGOALS) takes /var/lib/kubelet and /var/log/containers of this machine and removes them at its end; I_KNOW=1 if that may be" >&2; exit 1; }

cluster: # etcd, the API server, the controllers, the scheduler and kubectl in one program
	go -C e2e build -o $(BIN)/cluster ./cmd/cluster

kubelet:
	go -C e2e build -o $(BIN)/kubelet k8s.io/kubernetes/cmd/kubelet

ginkgo:
	go -C e2e build -o $(BIN)/ginkgo github.com/onsi/ginkgo/v2/ginkgo
	go -C e2e build -o $(BIN)/conformance ./conformance

## Tests that take long

# TIME for each of some 150 targets, 30 s: 75 minutes; no root; changes nothing.
TIME ?= 30s
fuzz: ## every fuzz target, TIME=30s each
	@set -e; go list -f '{{range .TestGoFiles}}{{$$.Dir}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$$.Dir}}/{{.}} {{end}}' ./... | tr ' ' '\n' | \
	  xargs -r grep -Ho '^func Fuzz[A-Za-z0-9_]*' | while IFS=: read -r file func; do \
	    echo "== $${func#func } in $$(dirname $$file)"; \
	    go test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(TIME) -fuzzminimizetime 20x $$(dirname $$file); done

# An hour at most, 10 s and more for each mutant; no root; changes nothing.
mutants: ## mistakes that programmers make, each compiled into the tests that have to find it; ONLY=placement
	go test -count=1 -timeout 3h -parallel 2 -v -run 'TestMutants$$$(if $(ONLY),/of/$(ONLY))' ./internal/mutants -mutants

# An hour at most; no root; changes nothing.
SEEDS ?= 2000
clocks: ## SEEDS simulated lives of the agent on a machine whose wall clock jumps by years, at run time and over reboots
	mkdir -p build/clocks
	sed -f internal/sim/wallclock.sed "$$(go env GOROOT)/src/time/time.go" > build/clocks/time.go
	printf '{"Replace":{"%s":"%s"}}' "$$(go env GOROOT)/src/time/time.go" "$(CURDIR)/build/clocks/time.go" > build/clocks/overlay.json
	go test -count=1 -timeout 60m -overlay build/clocks/overlay.json -tags wallclock ./internal/sim -run 'TestSeeds|TestSchedules' -sims 1 -seeds $(SEEDS) -seed $$(date +%s)0000

# Half an hour at most, most of it compiling; root only to install qemu; changes nothing. Left out is what qemu-user lacks:
# openat2, the start of other arm64 programs, and some of /proc. test-vm ARCH=arm64 has that.
DIFFERS = ./cgroups ./internal/diskusage ./internal/kernel ./internal/safefile ./internal/sampleimage ./localcri/internal/ocispec ./localcri/nodewright-monitor ./network/bridge ./node
UNDER_QEMU = GOARCH=arm64 go test -short -skip '^Test(Real|Held|ProcessOfThisMachine|DeviceNodesOfTooMuch|Log|Lines|FullDisk)'
arm64: ## the agent and the monitor are built for arm64 and riscv64; unit tests of what differs by architecture, and with pages of 64 KiB, run as arm64 programs under qemu-user
	@command -v qemu-aarch64-static >/dev/null || { apt-get update -qq && apt-get install -qq -y --no-install-recommends qemu-user-static; }
	for arch in arm64 riscv64; do GOARCH=$$arch go build ./examples/agent ./localcri/nodewright-monitor || exit; done
	$(UNDER_QEMU) -run '^Test' -exec qemu-aarch64-static $(DIFFERS)
	$(UNDER_QEMU) -exec qemu-aarch64-static -run TestPlatforms ./localcri/image
	$(UNDER_QEMU) -run '^Test' -exec 'qemu-aarch64-static -p 65536' ./cgroups ./podspec

# Two hours at most on 2 cores; root only to install qemu; changes nothing.
test-vm: $(if $(ARCH),,tools pasta) ## the tests that need root, in a VM with cgroup v2; PKG=./cri ARGS='-run X -timeout 30m'; ARGS=-uml for one that is much faster, and knows less; ARCH=arm64 for a pod's life on an emulated arm64 machine
	go build -o $(BIN)/testvm ./internal/cmd/testvm
	@exec $(BIN)/testvm $(if $(ARCH),-arch $(ARCH)) $(ARGS) $(PKG)

# 5 minutes after make uml; root only to install passt and uidmap; changes nothing.
rootless: tools pasta ## an ordinary user runs the agent, in a user-mode Linux with cgroup v2
	go build -o $(BIN)/testvm ./internal/cmd/testvm
	$(BIN)/testvm -uml -memory 3G -timeout 15m -run TestAgentWithoutRoot ./examples/agent

# 10 minutes; root only to install what kernels are compiled with; changes nothing.
uml: ## a user-mode Linux of Debian's newest sources, for test-vm ARGS=-uml and conformance-v2, twice as fast as the one of its package, with cpusets
	internal/cmd/testvm/uml.sh build/vm/uml

# 4 minutes; root; changes nothing. Elsewhere than on a machine with an NVIDIA GPU it says so and ends.
gpu: ## a pod with an NVIDIA GPU of the machine, without a device plugin: of the CDI specification of nvidia-ctk, or of one of the test's own
	@if ! ls /dev/nvidia[0-9]* >/dev/null 2>&1; then echo "skipped: this machine has no NVIDIA GPU, there is no /dev/nvidia0"; exit 0; fi; \
	  { [ -x $(BIN)/runc ] || command -v runc >/dev/null || CGO_ENABLED=1 go -C tools build -o $(BIN)/runc github.com/opencontainers/runc; } && \
	  go test -tags gpu -count=1 -timeout 4m -v -run 'TestGPU$$' ./examples/agent $(ARGS)

# A night; root; what its parts change. Without I_KNOW=1 it leaves out differential, which takes /var/lib/kubelet.
nightly: tools ## what takes hours: 20,000 pods that come and go, 5,000 edits and restarts, 10,000 simulated lives of the agent, every mutant, every fuzz target for 5 minutes, cgroup v2, Kubernetes' own suite
	go test -count=1 -timeout 90m ./internal/hostile -run 'TestChurn|TestUpdates|TestRestarts|TestFailingPulls|TestAPIPods|TestRequests' -churn 20000 -lives 5000 -v
	go test -count=1 -timeout 90m ./agent -run 'TestStartsAndRemovalsInterleaved|TestPlacementProperty' -seeds 100
	go test -count=1 -timeout 90m ./csi -run OnDisks -every
	go test -count=1 -timeout 90m ./internal/sim -run TestSeeds -seeds 10000 -seed $$(date +%s)0000 -v
	go test -count=1 -timeout 90m ./internal/sim -run TestSeeds -node -seeds 1000 -seed $$(date +%s)0000 -v
	go test -count=1 -timeout 90m ./internal/sim -run TestSeeds -long -seeds 300 -seed $$(date +%s)0000 -v
	go test -count=1 -timeout 90m ./examples/agent -run 'TestAgentKilled|TestVolumesOutliveTheAgent' -deaths 200 -v
	$(MAKE) mutants clocks
	$(MAKE) fuzz TIME=5m
	$(MAKE) test-vm uml rootless
	SYSTEMD=1 $(MAKE) test-vm PKG=./internal/cmd/release ARGS='-run OnSystemd'
	$(MAKE) takeover upgrade $(if $(I_KNOW),differential) controlplanes kubeadm prometheus clients
	$(MAKE) conformance

## Beside the kubelet and Kubernetes' own programs

# Minutes, most of them compiling; no root; changes nothing.
parity: ## flags, fields, gates, metrics, events, endpoints, pod fields and admission beside the kubelet's sources
	go -C e2e test -count=1 -timeout 20m ./parity

# 30 minutes at most; root; nothing: it has mounts and a network of its own.
takeover: tools shells build cluster kubelet ## a node that the kubelet ran, continued by the agent, and back
	go -C e2e test -tags kubelet -count=1 -timeout 30m -v -run TestTakeover . $(ARGS)

# 45 minutes at most; root; nothing: it has mounts and a network of its own.
incidents: tools shells build cluster kubelet ## incidents made on purpose: the answers of agent why beside the kubelet's events, statuses and log; ARGS='-incidents.report FILE -incidents.only oom'
	go -C e2e test -tags kubelet -count=1 -timeout 45m -v -run TestIncidentsBesideKubelet . $(ARGS)

# 30 minutes at most; root; nothing: it has mounts and a network of its own.
upgrade: tools shells build cluster ## agents of earlier releases replaced by this one under running pods, and back, over containerd and localcri; ARGS='-upgrade.from v0.1.0 -upgrade.over localcri'
	go -C e2e test -tags kubelet -count=1 -timeout 30m -v -run TestUpgrade . $(ARGS)

# 30 minutes at most; root; nothing: it has mounts and a network of its own.
kubeadm: tools shells build cluster ## kubeadm join, upgrade node and reset with the agent in the kubelet's place
	release=$$(go -C e2e list -m -f '{{.Version}}' k8s.io/kubernetes) && minor=$${release#v1.} && version=k8s.io/component-base/version && \
	  go -C e2e build -ldflags "-X $$version.gitVersion=$$release -X $$version.gitMajor=1 -X $$version.gitMinor=$${minor%%.*}" -o $(BIN)/kubeadm k8s.io/kubernetes/cmd/kubeadm
	go -C e2e test -tags kubelet -count=1 -timeout 30m -v -run TestKubeadm . $(ARGS)

# 30 minutes at most; root; nothing.
controlplanes: tools shells build cluster ## a pod's life on control planes of Kubernetes 1.34 to 1.37; what is older is built below tools/controlplane
	for minor in 1.34 1.35 1.36; do go -C tools/controlplane/$$minor build -ldflags '-s -w' -o $(BIN)/controlplane-$$minor/ tool || exit 1; done
	go -C e2e test -tags older -count=1 -timeout 30m -v -run TestControlPlanes . $(ARGS)

# 30 minutes at most; root; TAKES /var/lib/kubelet and /var/log/containers.
differential: known tools shells build cluster kubelet ## pods run by the kubelet and by the agent, statuses and events compared; I_KNOW=1
	go -C e2e test -tags kubelet -count=1 -timeout 30m -v -run TestDifferential . $(ARGS)

# 30 minutes at most; root; TAKES /var/lib/kubelet and /var/log/containers.
cost: known tools shells build cluster kubelet ## what 60 pods cost the kubelet and the agent in turn: CPU, memory, calls; ARGS='-cost.rounds 2 -cost.pods 250 -cost.profile /tmp/profiles -cost.of /tmp/agent-before,agent'; I_KNOW=1
	go -C e2e test -tags kubelet -count=1 -timeout 30m -v -run TestCost . $(ARGS)

# 20 minutes at most; root; nothing.
prometheus: tools shells build cluster ## Prometheus scrapes the agent, and expressions of kubernetes-mixin find its series
	go -C tools/prometheus build -ldflags '-s -w' -o $(BIN)/promcheck .
	go -C e2e test -count=1 -timeout 20m -v -run 'TestPrometheus$$' . $(ARGS)

# 5 minutes at most; root only to install Chromium, of 270 MB; nothing but that package.
page: ## the agent's page in Chromium: widths, light and dark, contrast, keyboard, search, logs, an agent that is down; PICTURES=dir
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core; }
	PICTURES='$(if $(PICTURES),$(abspath $(PICTURES)))' go -C tools/page test -count=1 -timeout 10m . $(ARGS)

# 20 minutes at most; root; nothing but the package python3-kubernetes.
clients: tools build cluster ## Helm, a controller of controller-runtime and Python's client with the agent's own API
	go -C tools/helm build -ldflags '-s -w' -o $(BIN)/ tool
	go -C tools/controllerruntime build -ldflags '-s -w' -o $(BIN)/controller .
	@/usr/bin/python3 -c 'import kubernetes' 2>/dev/null || { apt-get update -qq && apt-get install -qq -y --no-install-recommends python3-kubernetes; }
	PATH=$(BIN):$$PATH go test -tags clients -count=1 -timeout 20m -v -run 'TestHelm|TestControllerRuntime|TestPython' ./examples/agent $(ARGS)

# Two hours; root; nothing but packages of Debian.
PEERS ?=
peers: tools build ## others' tests: CRI-O's and containerd's, of checkouts below PEERS=dir (cri-o, bats-core, containerd), kubectl's, critest, Helm 4, stern and the JavaScript client, and those of `clients`
	@for p in bash-static busybox-static jq netcat-openbsd; do dpkg -s $$p >/dev/null 2>&1 || { apt-get update -qq && apt-get install -qq -y --no-install-recommends $$p; }; done
	go build -o $(BIN)/peers-crio ./internal/peers/crio
	if [ -d '$(PEERS)/containerd' ]; then cd '$(PEERS)/containerd' && go test -c -o $(BIN)/containerd-integration ./integration; fi
	release=$$(go -C e2e list -m -f '{{.Version}}' k8s.io/kubernetes) && minor=$${release#v1.} && version=k8s.io/component-base/version && \
	  go -C e2e build -ldflags "-s -w -X $$version.gitVersion=$$release -X $$version.gitMajor=1 -X $$version.gitMinor=$${minor%%.*}" -o $(BIN)/peers-kubectl k8s.io/kubernetes/cmd/kubectl
	go -C tools/helm4 build -ldflags '-s -w' -o $(BIN)/helm4 helm.sh/helm/v4/cmd/helm
	go -C tools/stern build -ldflags '-s -w' -o $(BIN)/stern github.com/stern/stern
	@if command -v npm >/dev/null; then npm install --silent --no-save --prefix build/peers-js @kubernetes/client-node@1.4.0; fi
	PEERS='$(if $(PEERS),$(abspath $(PEERS)))' go test -count=1 -timeout 2h -v ./internal/peers $(ARGS)
	$(MAKE) critest clients

# An hour and a half at most; root; nothing but packages of Debian: it has mounts and a network of its own.
ECOSYSTEM ?=
ecosystem: tools shells build cluster ## others' programs on the node and beside it, of modules, Debian, and checkouts below ECOSYSTEM=dir; ARGS='-ecosystem.only k9s,rsyslog -ecosystem.nodes alone-localcri'
	ECOSYSTEM='$(if $(ECOSYSTEM),$(abspath $(ECOSYSTEM)))' go -C e2e test -tags ecosystem -count=1 -timeout 90m -v -run TestEcosystem . $(ARGS)

# A minute; root; nothing.
nri: tools ## sample plugins of NRI on the agent's own runtime; ECOSYSTEM=dir has a checkout of github.com/containerd/nri
	for p in device-injector logger ulimit-adjuster; do go -C '$(abspath $(ECOSYSTEM))'/nri/plugins/$$p build -o $(BIN)/nri/$$p . || exit; done
	NRI_PLUGINS=$(BIN)/nri CI=true go test -count=1 -v -run TestSamplePlugins ./localcri

## Kubernetes' own suites

# The programs of the suite for nodes: 10 minutes; no root; changes nothing.
suite: tools shells build ginkgo
	go -C e2e test -c -ldflags '-s -w' -o $(BIN)/e2e_node.test k8s.io/kubernetes/test/e2e_node
	go -C e2e build -o $(BIN)/conformance ./conformance

# 30 to 45 minutes; root; nothing on cgroup v1; on v2 it takes the kubelet's ports and directories, and refuses where there are any.
conformance: suite ## Kubernetes' own suite for nodes against the agent; RUNTIME=localcri FOCUS='ConfigMap|Secrets' LABELS='NodeConformance && Serial' PROCS=1
	$(BIN)/conformance $(SPECS)

# 3 hours at most; no root; nothing.
conformance-v2: suite ## the same on cgroup v2, in a user-mode Linux, which has one CPU, 9 GiB and a disk; FOCUS, SKIP, LABELS and PROCS as above
	go build -o $(BIN)/testvm ./internal/cmd/testvm
	$(BIN)/testvm -uml -memory 9G -disk 24G -timeout 3h -command "e2e/conformance/usermode.sh $(SPECS)"

# An hour; root; as conformance.
conformance-local: tools shells build cluster ginkgo ## the conformance specs of a node against the agent alone, whose own API they use; FOCUS=... SKIP=... PROCS=...
	go -C e2e test -c -ldflags '-s -w' -o $(BIN)/e2e.test k8s.io/kubernetes/test/e2e
	$(BIN)/conformance -local -out build/conformance-local $(SPECS)

# An hour; root; as conformance.
storage: tools shells build cluster kubelet ginkgo ## the storage suites of Kubernetes against e2e/csidriver, or with mock drivers; FOCUS=... SKIP=... ARGS='-attach -mock -kubelet build/bin/kubelet'
	go -C e2e test -c -ldflags '-s -w' -o $(BIN)/e2e.test k8s.io/kubernetes/test/e2e
	go -C tools/csi build -ldflags '-s -w' -o $(BIN)/ tool
	go -C tools/csi/provisioner build -ldflags '-s -w' -o $(BIN)/ tool
	go -C e2e build -o $(BIN)/csidriver ./csidriver
	$(BIN)/conformance -storage -out build/storage $(SPECS)

# An hour at most; root; nothing.
critest: tools shells ## Kubernetes' own suite for runtimes against localcri; ARGS='-critest.args "-ginkgo.focus=Streaming"' for a part
	go -C tools test -c -o $(BIN)/critest sigs.k8s.io/cri-tools/cmd/critest
	go test -count=1 -v -timeout 1h -run TestCritest ./localcri -args -critest $(BIN)/critest $(ARGS)

## Figures, lists, releases

# Minutes; root for some; changes nothing.
bench: ## every benchmark
	go test -run '^$$' -bench . -benchmem ./...

# 10 minutes for 100 pods, more for more; root; nothing. With the kubelet beside the agent if build/bin has one (make kubelet).
scale: tools build ## bursts of pods on the agent's own runtime, on containerd and on the kubelet; PODS=100,500 ARGS='--rounds 1 --cpus 0-1 --nodes own --network none'
	go build -o $(BIN)/scale ./internal/cmd/scale
	$(BIN)/scale --pods $(or $(PODS),100) --markdown build/scale.md --svg build/scale.svg $(ARGS)

# 2 minutes; no root; changes nothing.
hollow: ## a thousand nodes without machines in one process, at rest: memory, CPU, calls; ARGS='-kubeconfig ~/.kube/config -nodes 100'
	go build -o $(BIN)/hollow ./examples/hollow
	$(BIN)/hollow $(or $(ARGS),-nodes 1000 -pods-per-node 3 -for 1m)

# An hour at most; root; nothing.
compare: tools build ## the agent with localcri and with containerd in turns: starts, memory, CPU, logs, images; ARGS='-compare.rounds 1 -compare.only starts'
	PATH=$(BIN):$$PATH go test -tags compare -count=1 -timeout 60m -v -run TestCompare ./examples/agent $(ARGS)

# 30 minutes at most; no root; rewrites a table of docs/reference/weights.md.
budgets: ## measure what each package weighs, and rewrite the table of docs/reference/weights.md
	go test -count=1 -timeout 30m -run TestBudgets . -update

# A minute; no root; rewrites localcri/internal/monitor/program.
monitor: ## the program of localcri's monitors, which its package carries: after each change of its sources, and with a new Go
	go test -count=1 -run 'TestProgramsAreOfTheirSources$$' ./localcri/internal/monitor -args -update

# A minute; no root; rewrites api/next.txt.
api: ## rewrite api/next.txt with what stable packages export
	go test -count=1 -run TestAPI . -args -update-api

# Minutes; no root; changes nothing.
release: ## programs, Debian packages, images and lists of modules of HEAD, into build/release; ARGS='--arch amd64'
	go run ./internal/cmd/release --out build/release $(ARGS)
