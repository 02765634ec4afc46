package nodewright_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/internal/testprogram"
)

const module = "github.com/nodewright/nodewright"

// layers are those of ARCHITECTURE.md, by the first elements of packages' paths. A package
// may import those of lower layers, and none of its own but those below the same element.
var layers = [][]string{
	0: {"cri", "checkpoint", "podmeta", "numa"},
	1: {"podlife", "podspec", "podstatus", "topology", "cpumgr", "memmgr", "fit"},
	2: {"podworker", "pleg", "podmgr", "podruntime", "images", "statusmgr", "probe", "volumemgr", "cgroups", "eviction", "node", "gc", "pluginmgr", "devicemgr", "dra", "network", "record", "signature"},
	3: {"kubeapi", "server", "csi", "localcri", "localapi", "bundle"},
	4: {"agent"},
	5: {"nodeagent", "kubeletconfig"},
	6: {"examples"},
}

// joins says which packages put others of their own layer together: a pod is placed
// by all kinds of resources, its status describes what is decided about it, a node is made
// from a configuration that is loaded.
var joins = map[string][]string{
	"fit":       {"topology", "cpumgr", "memmgr"},
	"podstatus": {"podlife"},
	"nodeagent": {"kubeletconfig"},
}

// parts are the packages of the agent's concerns: they import the contract, the
// conversation with people and blocks, and neither the core nor each other.
var parts = []string{"csi", "lifecycle", "pressure", "resources"}

// insides are packages below agent/internal that parts may import: they are
// blocks that nobody else needs. The others are the core's.
var insides = []string{"hostchains", "sysctl", "preempt"}

// kits are for the tests of those who use this module, and for ours: no package that
// is none of them imports them.
var kits = []string{
	"agent/agenttest", "checkpoint/checkpointtest", "cri/critest", "kubeapi/kubeapitest", "network/networktest", "node/kerneltest", "nodeagent/hollow", "volumemgr/plugintest",
}

// benches are programs for the tests of others, which are made of kits.
var benches = []string{"examples/hollow"}

// support holds what only tests and make run need, which may import anything
// and be imported by tests alone, and what is shared.
const support = "internal"

// podTypes is what a package needs that writes pods down for people.
var podTypes = []string{
	"k8s.io/api/core/v1",
	"k8s.io/apimachinery/pkg/apis/meta/v1",
	"k8s.io/apimachinery/pkg/types",
	"k8s.io/apimachinery/pkg/util/duration",
}

// shared lists the packages of support that any layer may import, and what
// each of them may import beside the standard library.
var shared = map[string][]string{
	"internal/bootid":         nil, // which boot of the machine this is
	"internal/callerror":      nil, // what a call said, for people
	"internal/detached":       nil, // calls that may never return
	"internal/kubeletsum":     nil, // checksums of a kubelet's files
	"internal/outputlimit":    nil, // how much of the output of a command its caller uses
	"internal/ownerlock":      nil, // files that one process has
	"internal/podcgroup":      nil, // pods in the names of cgroups
	"internal/retry":          nil, // back-off
	"internal/seconds":        nil, // durations that do not overflow
	"internal/slots":          nil, // so much at a time, and what hangs does not count
	"internal/source":         nil, // hosts that requests come from
	"internal/strategicpatch": nil, // patches for API servers
	"internal/wake":           nil, // signals that wake a loop
	"internal/wirecount":      nil, // how much a message would become

	// Who is told of changes.
	"internal/subscription": {"internal/wake"},

	// Metrics of several values on one registerer.
	"internal/promshare": {"github.com/prometheus/client_golang/prometheus", "github.com/prometheus/client_model/go"},

	// Plugins behind sockets, with answers that are counted before they are decoded.
	"internal/pluginconn": {
		"google.golang.org/grpc", "google.golang.org/grpc/backoff", "google.golang.org/grpc/codes", "google.golang.org/grpc/credentials/insecure",
		"google.golang.org/grpc/mem", "google.golang.org/grpc/status", "google.golang.org/protobuf/proto", "google.golang.org/protobuf/reflect/protoreflect",
		"internal/callerror", "internal/wirecount",
	},

	// A runtime of this process, served as one of another.
	"internal/criserver": {
		"google.golang.org/grpc", "google.golang.org/grpc/codes", "google.golang.org/grpc/metadata", "google.golang.org/grpc/status",
		"google.golang.org/protobuf/proto", "k8s.io/cri-api/pkg/apis", "k8s.io/cri-api/pkg/apis/runtime/v1",
	},

	// Bounds of HTTP servers, and what their clients share.
	"internal/httpbound": {"go.uber.org/zap", "internal/source"},

	// Events that are one, and those of an object that are too many.
	"internal/correlate": {"golang.org/x/time/rate", "k8s.io/api/core/v1", "k8s.io/apimachinery/pkg/types"},

	// Patches of clients of an API server, and the kinds that they are of.
	"internal/patch": {"github.com/evanphx/json-patch/v5", "internal/schema", "sigs.k8s.io/json"},
	"internal/schema": {
		"k8s.io/apimachinery/pkg/api/resource", "k8s.io/apimachinery/pkg/apis/meta/v1", "k8s.io/apimachinery/pkg/runtime", "k8s.io/apimachinery/pkg/runtime/schema",
		"k8s.io/apimachinery/pkg/util/intstr", "sigs.k8s.io/structured-merge-diff/v6/schema", "sigs.k8s.io/structured-merge-diff/v6/typed",
	},

	// Tables and descriptions for people.
	"internal/podtext": append([]string{"k8s.io/utils/ptr"}, podTypes...),

	// Pods that may be nonsense.
	"internal/podcheck": append([]string{"k8s.io/apimachinery/pkg/util/validation", "k8s.io/apimachinery/pkg/util/validation/field"}, podTypes...),
	// What several kinds of the API have: sources of volumes, claims, selectors.
	"internal/apicheck": append([]string{
		"k8s.io/apimachinery/pkg/apis/meta/v1/validation", "k8s.io/apimachinery/pkg/util/validation", "k8s.io/apimachinery/pkg/util/validation/field",
	}, podTypes...),

	"internal/profile": nil, // pprof over HTTP, bounded

	// Errors with a gRPC status.
	"internal/rpcerror": {"google.golang.org/grpc/codes", "google.golang.org/grpc/status"},

	// What is wrong with a manifest, in words.
	"internal/manifestwords": {"go.yaml.in/yaml/v3", "internal/callerror", "internal/quantity", "k8s.io/apimachinery/pkg/api/resource"},

	// Files of the kernel's own.
	"internal/kernelfile": {"golang.org/x/sys/unix"},
	"internal/kernel":     {"internal/kernelfile"},

	// Directories of pods: removed, measured, given to a group, kept in memory.
	"internal/rmtree":    {"golang.org/x/sys/unix", "internal/dirwalk"},
	"internal/diskusage": {"golang.org/x/sys/unix", "internal/dirwalk", "internal/kernel", "internal/kernelfile", "internal/safefile"},
	"internal/fsgroup":   {"golang.org/x/sys/unix", "internal/dirwalk"},
	"internal/scratch":   {"golang.org/x/sys/unix", "internal/rmtree", "volumemgr/mount"},

	// Files that survive a crash; trees and files that somebody else may have
	// made, and those whose file system may not answer.
	"internal/dirwalk":  {"golang.org/x/sys/unix"},
	"internal/durable":  {"internal/safefile"},
	"internal/safefile": {"golang.org/x/sys/unix"},
	"internal/dirwatch": {"github.com/fsnotify/fsnotify", "internal/detached", "internal/wake"},
	"internal/slowfile": {"internal/detached", "internal/safefile"},

	// Devices of CDI specifications.
	"internal/cdi": {
		"github.com/opencontainers/runtime-spec/specs-go", "go.uber.org/zap",
		"tags.cncf.io/container-device-interface/pkg/cdi", "tags.cncf.io/container-device-interface/pkg/parser", "tags.cncf.io/container-device-interface/specs-go",
		"internal/callerror", "internal/detached", "internal/manifestguard", "internal/safefile",
	},

	// Namespaces, kept by mounts.
	"internal/nspin": {"golang.org/x/sys/unix"},

	// Ports of the node, held by sockets.
	"internal/hostports": {"golang.org/x/sys/unix", "github.com/mdlayher/netlink", "internal/safefile", "internal/podcgroup"},

	// Loop devices, by ioctl.
	"internal/loopdev": {"golang.org/x/sys/unix"},

	// Quantities that parse for ever, and manifests that cost more than they say.
	"internal/quantity":      {"k8s.io/apimachinery/pkg/api/resource"},
	"internal/manifestguard": {"go.yaml.in/yaml/v2", "sigs.k8s.io/yaml", "k8s.io/apimachinery/pkg/api/resource", "internal/quantity"},
}

// banned says which packages nobody may bring in, and who may nevertheless.
var banned = []struct {
	prefix string
	except []string
	why    string
}{
	{"k8s.io/kubernetes", nil, "it cannot be imported by those who import us"},
	{"k8s.io/client-go/kubernetes", nil, "the clientset and its scheme weigh 17 MB"},
	{"go.opentelemetry.io/otel/sdk", []string{"record"}, "only record/otlp exports to OpenTelemetry"},
	{"github.com/containerd/nri", []string{"localcri"}, "only localcri/nri runs plugins of NRI"},
	// The agent's command line has it for JSONPath, as kubectl.
	{"k8s.io/client-go", []string{"kubeapi", "examples"}, "only the package that talks to an API server needs it"},
}

// light lists what a package must do without, to be worth taking alone.
var light = map[string][]string{
	"checkpoint":   {"k8s.io/", "go.uber.org/", "github.com/prometheus/", "google.golang.org/"},
	"numa":         {"k8s.io/", "go.uber.org/", "github.com/prometheus/", "google.golang.org/"},
	"cpumgr":       {"k8s.io/", "go.uber.org/", "github.com/prometheus/", "google.golang.org/"},
	"memmgr":       {"k8s.io/", "go.uber.org/", "github.com/prometheus/", "google.golang.org/"},
	"topology":     {"k8s.io/", "go.uber.org/", "github.com/prometheus/", "google.golang.org/"},
	"cri/observed": {"k8s.io/api/", "k8s.io/cri-api", "google.golang.org/"},
	"podmeta":      {"k8s.io/cri-api", "google.golang.org/grpc", "go.uber.org/", "github.com/prometheus/"},
	"podlife":      {"k8s.io/cri-api", "google.golang.org/grpc", "go.uber.org/", "github.com/prometheus/"},
	"podstatus":    {"k8s.io/cri-api", "google.golang.org/grpc", "go.uber.org/", "github.com/prometheus/"},
	"podworker":    {"k8s.io/cri-api", "google.golang.org/grpc"},
	"pleg":         {"k8s.io/cri-api", "google.golang.org/grpc"},
	"podmgr":       {"k8s.io/cri-api", "google.golang.org/grpc"},
	"statusmgr":    {"k8s.io/cri-api", "google.golang.org/grpc"},
	"eviction":     {"k8s.io/cri-api", "google.golang.org/grpc"},
	"cgroups":      {"k8s.io/cri-api", "google.golang.org/grpc"},
	"volumemgr":    {"k8s.io/cri-api", "google.golang.org/grpc"},
	"probe":        {"k8s.io/cri-api", "google.golang.org/grpc"},
	"localcri":     {"github.com/containerd/containerd", "github.com/containerd/nri", "github.com/containerd/ttrpc"},
	"record":       {"go.opentelemetry.io/", "k8s.io/cri-api", "google.golang.org/grpc", "github.com/prometheus/"},
	// Who stays alone links no client of API servers: that is nodeagent/cluster.
	"nodeagent": {module + "/kubeapi", "k8s.io/client-go", "github.com/container-storage-interface"},
	// What a cluster says of drivers is not the drivers' interface.
	"nodeagent/cluster": {"github.com/container-storage-interface"},
	"agent":             {"github.com/container-storage-interface"},
	// Whoever wires single blocks by hand reads the kubelet's file as well.
	"kubeletconfig": {module + "/agent", module + "/server", module + "/kubeapi", "k8s.io/cri-api", "google.golang.org/grpc"},

	// Who brings a network of his own pays for no other.
	"network":        {"k8s.io/", "github.com/prometheus/", "google.golang.org/", "github.com/containernetworking/", "github.com/vishvananda/", "github.com/google/nftables"},
	"network/bridge": {"github.com/containernetworking/"},
	"network/cni":    {"github.com/vishvananda/", "github.com/google/nftables"},

	// What somebody takes alone is not heavier than what it does.
	"probe/check":     {"k8s.io/", "sigs.k8s.io/", "go.uber.org/", "github.com/prometheus/", "google.golang.org/", "golang.org/x/", module + "/"},
	"eviction/rank":   {"k8s.io/cri-api", "google.golang.org/grpc", "go.uber.org/", "github.com/prometheus/"},
	"eviction/notify": {"k8s.io/", "go.uber.org/", "github.com/prometheus/", "google.golang.org/"},
	"node/oom":        {"k8s.io/api/", "google.golang.org/grpc"},
	"node/logind":     {"k8s.io/", "github.com/prometheus/", "google.golang.org/"},
	"gc":              {"k8s.io/api/", "k8s.io/cri-api", "google.golang.org/grpc"},
	"gc/crigc":        {"k8s.io/api/", module + "/agent"},
	"gc/logrotate":    {"k8s.io/api/", "google.golang.org/grpc"},
	"server/auth":     {"k8s.io/cri-api", "google.golang.org/grpc", "go.uber.org/", "github.com/prometheus/"},
	"kubeapi/seal":    {"k8s.io/", "go.uber.org/", "github.com/prometheus/", "google.golang.org/"},
	"localapi/store":  {"k8s.io/api/", "github.com/prometheus/", "google.golang.org/"},

	"podworker/serial": {"k8s.io/", "go.uber.org/", "github.com/prometheus/", "google.golang.org/", "golang.org/x/"},
}

// pure packages have no business with the outside world.
var pure = map[string][]string{
	"podlife":       {"os", "net/http", "time.Now", "time.Sleep"},
	"podspec":       {"os", "net/http", "time.Now", "time.Sleep"},
	"podstatus":     {"os", "net/http", "time.Now", "time.Sleep"},
	"podmeta":       {"os", "net/http", "time.Now", "time.Sleep"},
	"eviction/rank": {"os", "net/http", "time.Now", "time.Sleep"},
	"numa":          {"net/http", "time.Now", "time.Sleep"},
	"cpumgr":        {"os", "net/http", "time.Now", "time.Sleep"},
	"memmgr":        {"os", "net/http", "time.Now", "time.Sleep"},
	"topology":      {"os", "net/http", "time.Now", "time.Sleep"},
}

// pkg is what go list reports a package.
type pkg struct {
	ImportPath string
	Name       string
	Dir        string
	Standard   bool
	GoFiles    []string
	Imports    []string
	Deps       []string
}

// listed has the packages of the module, once a test has asked for them.
var listed []pkg

func list(t *testing.T) []pkg {
	t.Helper()
	if listed != nil {
		return listed
	}
	out := testprogram.Go(t, ".", "list", "-json=ImportPath,Name,Dir,Standard,GoFiles,Imports,Deps", "./...")
	for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		listed = append(listed, p)
	}
	return listed
}

// topPackage is the first element of a package's path within the module.
func topPackage(path string) (name string, ours bool) {
	rest, ok := strings.CutPrefix(path, module)
	if !ok {
		return "", false
	}
	name, _, _ = strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	return name, true
}

func layerOf(name string) int {
	return slices.IndexFunc(layers, func(names []string) bool { return slices.Contains(names, name) })
}

func TestLayers(t *testing.T) {
	for _, p := range list(t) {
		from, _ := topPackage(p.ImportPath)
		if from == "" || from == support {
			continue
		}
		layer := layerOf(from)
		if layer < 0 {
			t.Errorf("%s is in no layer of the table", p.ImportPath)
			continue
		}
		for _, dep := range p.Imports {
			to, ours := topPackage(dep)
			if isKit(dep) && !isKit(p.ImportPath) && !slices.Contains(benches, strings.TrimPrefix(p.ImportPath, module+"/")) {
				t.Errorf("%s imports %s, which is for tests", p.ImportPath, dep)
			}
			switch {
			case !ours || to == from:
			case to == support && (isShared(dep) || layer == layerOf("examples")):
			case to == support:
				t.Errorf("%s imports %s, which is for tests", p.ImportPath, dep)
			case layerOf(to) == layer && slices.Contains(joins[from], to):
			case layerOf(to) == layer:
				t.Errorf("%s imports %s of the same layer", p.ImportPath, dep)
			case layerOf(to) > layer:
				t.Errorf("%s on layer %d imports %s on layer %d", p.ImportPath, layer, dep, layerOf(to))
			}
		}
	}
}

// A part is of use to an agent that has none of the others.
func TestPartsStandAlone(t *testing.T) {
	const below = module + "/agent/"
	left := map[string]bool{}
	for _, name := range parts {
		left[below+name] = true
	}
	for _, p := range list(t) {
		name, found := strings.CutPrefix(p.ImportPath, below)
		if !found || !slices.Contains(parts, name) {
			continue
		}
		delete(left, p.ImportPath)
		for _, dep := range p.Imports {
			inside, isInside := strings.CutPrefix(dep, below+"internal/")
			if isInside && slices.Contains(insides, inside) {
				continue
			}
			if dep == module+"/agent" || strings.HasPrefix(dep, below) && dep != below+"part" && dep != below+"local" {
				t.Errorf("%s imports %s; a part imports agent/part, agent/local and blocks", p.ImportPath, dep)
			}
		}
	}
	for path := range left {
		t.Errorf("%s is in the table of parts, and is not there", path)
	}
}

func isKit(path string) bool {
	return slices.Contains(kits, strings.TrimPrefix(path, module+"/"))
}

func isShared(path string) bool {
	_, ok := shared[strings.TrimPrefix(path, module+"/")]
	return ok
}

// What any block may import weighs next to nothing.
func TestSharedImports(t *testing.T) {
	left := maps.Clone(shared)
	for _, p := range list(t) {
		within := strings.TrimPrefix(p.ImportPath, module+"/")
		may, ok := shared[within]
		if !ok {
			continue
		}
		delete(left, within)
		for _, dep := range p.Imports {
			domain, _, _ := strings.Cut(dep, "/")
			if strings.Contains(domain, ".") && !slices.Contains(may, strings.TrimPrefix(dep, module+"/")) {
				t.Errorf("%s imports %s, which the table does not allow it", p.ImportPath, dep)
			}
		}
	}
	for name := range left {
		t.Errorf("%s is in the table of shared packages, and does not exist", name)
	}
}

func TestBannedImports(t *testing.T) {
	for _, p := range list(t) {
		name, _ := topPackage(p.ImportPath)
		within := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, dep := range p.Deps {
			for _, b := range banned {
				if layerOf(name) >= 5 && len(b.except) > 0 && !slices.Contains(p.Imports, dep) {
					continue // a node or an example has it by a package that may
				}
				if (dep == b.prefix || strings.HasPrefix(dep, b.prefix+"/")) && !slices.Contains(b.except, name) {
					t.Errorf("%s depends on %s: %s", p.ImportPath, dep, b.why)
				}
			}
			for _, prefix := range light[within] {
				if strings.HasPrefix(dep, prefix) {
					t.Errorf("%s depends on %s, which is too heavy for it", p.ImportPath, dep)
				}
			}
		}
	}
}

// No package is named for nothing, none runs code at its import, and the pure
// ones are.
func TestHabits(t *testing.T) {
	for _, p := range list(t) {
		if slices.Contains([]string{"util", "utils", "common", "helpers", "misc"}, p.Name) {
			t.Errorf("%s: the name %q says nothing", p.ImportPath, p.Name)
		}
		within := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
					t.Errorf("%s has an init function", path)
				}
			}
			for _, i := range f.Imports {
				if slices.Contains(pure[within], strings.Trim(i.Path.Value, `"`)) {
					t.Errorf("%s imports %s, and %s is pure", path, i.Path.Value, within)
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					if pure[within] != nil {
						t.Errorf("%s starts a goroutine, and %s is pure", path, within)
					}
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && slices.Contains(pure[within], x.Name+"."+n.Sel.Name) {
						t.Errorf("%s calls %s.%s, and %s is pure", path, x.Name, n.Sel.Name, within)
					}
				}
				return true
			})
		}
	}
}

// readers have paths of the kernel's file systems, and say what for. What internal/kernel parses is
// in none of them but cgroups, whose statistics go through its FS, numa, which reads a node of NUMA
// and imports little, and the monitor, which is small.
var readers = map[string]string{
	"agent/internal/sysctl":        "kernel parameters, which it sets",
	"agent/pressure":               "names of files for notices of the kernel",
	"agent/resources":              "text of an error",
	"cgroups":                      "writes cgroups, and reads what it wrote with the same deadlines",
	"cri/critest":                  "commands inside of containers",
	"eviction/notify":              "notices of the kernel",
	"examples/hollow":              "its own size",
	"examples/images/testbox":      "its own program, inside of a container",
	"gc/logrotate":                 "opens again a file that it holds",
	"internal/bootid":              "identity of the boot, of a root that may be a test's",
	"internal/diskusage":           "open files of processes",
	"internal/fsgroup":             "changes a file that it holds",
	"internal/hostports":           "sockets of processes",
	"internal/loopdev":             "loop devices",
	"internal/nspin":               "namespaces",
	"internal/safefile":            "opens again a file that it holds",
	"internal/scratch":             "user namespace of this process",
	"localcri":                     "arguments and signals of processes, namespaces, modules",
	"localcri/image":               "opens again a file that it holds",
	"localcri/internal/facts":      "abilities of the kernel and of this process, the mount of a path",
	"localcri/internal/monitor":    "path of a socket that it holds",
	"localcri/internal/ocispec":    "mounts and masked paths of containers",
	"localcri/internal/spaces":     "namespaces, kernel parameters, which it sets",
	"localcri/internal/usage":      "kills and freezes cgroups, open files, a network namespace of its own thread",
	"localcri/nodewright-monitor":  "is 2 MB, and has its own lines",
	"network":                      "namespaces, open files of processes",
	"network/bridge":               "namespaces, kernel parameters, which it sets",
	"network/cni":                  "open files of this process",
	"network/cni/internal/fakecni": "a plugin for tests",
	"node":                         "reaps processes of a cgroup, whether AppArmor is on",
	"node/oom":                     "one counter by inotify, for which a read must follow each notice",
	"node/stats":                   "defaults of its file systems, open files of processes",
	"node/status":                  "names of the kernel, the firmware and the machine",
	"nodeagent":                    "mount point of cgroups for node/oom",
	"nodeagent/csi":                "whether SELinux is on",
	"nodeagent/rootless":           "delegated cgroups, namespaces of the holder, kernel parameters that forbid namespaces",
	"numa":                         "topology",
	"podspec":                      "masked paths of containers",
	"volumemgr/mount":              "mounts by path of a file that it holds, the mount table",
	"volumemgr/plugins":            "block devices, which it scans and removes",
	"volumemgr/plugintest":         "this program",
}

// kernelPaths are literals of paths of the kernel's file systems.
var kernelPaths = regexp.MustCompile(`^/?(proc|sys)(/|$)|^cgroup\.|^(memory|cpu|cpuacct|pids|io)\.(current|stat|events|pressure|max|usage)`)

// Who reads the kernel does it by internal/kernel, which has limits of size and time; the others
// are here with what they need beside it.
func TestWhoReadsTheKernel(t *testing.T) {
	left := maps.Clone(readers)
	for _, p := range list(t) {
		within := strings.TrimPrefix(p.ImportPath, module+"/")
		found := ""
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.ImportSpec:
					return false
				case *ast.BasicLit:
					if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && kernelPaths.MatchString(s) {
						found = name + ": " + n.Value
					}
				}
				return true
			})
		}
		from, _ := topPackage(p.ImportPath)
		if _, may := readers[within]; found != "" && !may && within != "internal/kernel" && (from != support || isShared(p.ImportPath)) {
			t.Errorf("%s has the path of a kernel's file, and is not in the table: %s", p.ImportPath, found)
		}
		if found != "" {
			delete(left, within)
		}
	}
	for within := range left {
		t.Errorf("%s is in the table of readers of the kernel, and has no path of it", within)
	}
}
