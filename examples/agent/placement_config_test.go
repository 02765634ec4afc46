package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/agent/fit"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

func TestPlacementConfigMistakes(t *testing.T) {
	for _, tc := range []struct{ content, want string }{
		{"cpuManagerPolicy: static", ""},
		{"cpuManagerPolicy: Static", `cpuManagerPolicy: "Static": want one of none, static`},
		{"memoryManagerPolicy: Static", ""},
		{"memoryManagerPolicy: BestEffort", `memoryManagerPolicy: "BestEffort": want one of None, Static`},
		{"topologyManagerPolicy: single-numa-node", ""},
		{"topologyManagerPolicy: strict", `topologyManagerPolicy: "strict": want one of none, best-effort, restricted, single-numa-node`},
		{"topologyManagerScope: node", `topologyManagerScope: "node": want one of container, pod`},
		{"reservedSystemCPUs: 0-1,8", ""},
		{"reservedSystemCPUs: 0-", `reservedSystemCPUs: "0-": want a list of CPUs`},
		{"cpuManagerPolicyOptions: {full-pcpus-only: 'true'}", `cpuManagerPolicyOptions: {"full-pcpus-only":"true"}: want options that go together: policy none has no options`},
		{"cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: 'true'}", ""},
		{"cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: 'maybe'}", `cpuManagerPolicyOptions.full-pcpus-only: "maybe": want true or false`},
		{"cpuManagerPolicy: static\ncpuManagerPolicyOptions: {fast: 'true'}", `cpuManagerPolicyOptions.fast: "true": want true or false for a known option`},
		{"cpuManagerPolicy: static\ncpuManagerPolicyOptions: {align-by-socket: 'true'}", `cpuManagerPolicyOptions.align-by-socket: "true": want`},
		{"cpuManagerPolicy: static\nfeatureGates: {CPUManagerPolicyAlphaOptions: true}\ncpuManagerPolicyOptions: {align-by-socket: 'true'}", ""},
		{
			"cpuManagerPolicy: static\ntopologyManagerPolicy: single-numa-node\nfeatureGates: {CPUManagerPolicyAlphaOptions: true}\ncpuManagerPolicyOptions: {align-by-socket: 'true'}",
			`cpuManagerPolicyOptions: {"align-by-socket":"true"}: want options that go together: `,
		},
		{
			"cpuManagerPolicy: static\ncpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: 'true', distribute-cpus-across-numa: 'true'}",
			`cpuManagerPolicyOptions: {`,
		},
		{"topologyManagerPolicyOptions: {max-allowable-numa-nodes: '5'}", ""}, // does not matter to none
		{"topologyManagerPolicy: restricted\ntopologyManagerPolicyOptions: {max-allowable-numa-nodes: '5'}", `topologyManagerPolicyOptions.max-allowable-numa-nodes: "5": want`},
		{"topologyManagerPolicy: restricted\ntopologyManagerPolicyOptions: {prefer-closest-numa-nodes: 'true'}", ""},
		{"reservedMemory: [{numaNode: 0, limits: {memory: 1Gi, hugepages-2Mi: 4Mi}}]", ""},
		{"reservedMemory: [{numaNode: 64, limits: {memory: 1Gi}}]", `reservedMemory[0].numaNode: 64: want 0 to 63`},
		{"reservedMemory: [{numaNode: 0}]", `reservedMemory[0].limits: null: want memory or hugepages-<size>`},
		{"reservedMemory: [{numaNode: 0, limits: {memory: '0'}}]", `reservedMemory[0].limits.memory: "0": want a quantity above 0`},
		{"reservedMemory: [{numaNode: 0, limits: {cpu: '1'}}]", `reservedMemory[0].limits.cpu: "1": want memory or hugepages-<size>`},
		{"reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 0, limits: {memory: 1Gi}}]", `reservedMemory[1].limits.memory: "1Gi": want memory or hugepages-<size>, once for a node`},
	} {
		t.Run(tc.content, func(t *testing.T) {
			_, warnings, path, err := load(t, configHead+tc.content)
			switch {
			case len(warnings) > 0:
				t.Errorf("warnings %q", warnings)
			case tc.want == "" && err != nil:
				t.Errorf("error %v, want none", err)
			case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "invalid configuration: "+path+": "+tc.want)):
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	_, warnings, _, err := load(t, configHead+"featureGates: {NodeSwap: true, PodLevelResourceManagers: false}")
	if err != nil || len(warnings) != 1 || !strings.HasPrefix(warnings[0], "featureGates.NodeSwap ") {
		t.Errorf("warnings %q, %v", warnings, err)
	}
}

func TestPlacementConfig(t *testing.T) {
	machine := numa.Uniform(2, 1, 4, 1, 4<<30) // 8 CPUs
	capacity := v1.ResourceList{v1.ResourceMemory: resource.MustParse("8Gi")}
	for _, tc := range []struct {
		name, content string
		was           bool // placed in an earlier life
		read          error
		want          func(fit.Config) bool
		err           string
	}{
		{name: "nothing", read: errors.New("not read"), want: func(c fit.Config) bool { return c.Idle() && len(c.Machine.CPUs) == 0 }},
		{name: "nothing any more", was: true, want: func(c fit.Config) bool { return c.Idle() && len(c.Machine.CPUs) == 8 }},
		{
			name: "CPUs by list", content: "cpuManagerPolicy: static\nsystemReserved: {cpu: '3'}\nreservedSystemCPUs: 2-3",
			want: func(c fit.Config) bool {
				return c.ReservedCPUs.MilliCPU == 0 && c.ReservedCPUs.CPUs.String() == "2-3" && c.CPUPolicy == fit.CPUStatic
			},
		},
		{
			name: "CPUs by number", content: "cpuManagerPolicy: static\nsystemReserved: {cpu: 300m}\nkubeReserved: {cpu: '1'}\ntopologyManagerPolicy: restricted\ntopologyManagerScope: pod",
			want: func(c fit.Config) bool {
				return c.ReservedCPUs.MilliCPU == 1300 && c.TopologyPolicy == "restricted" && c.TopologyScope == "pod"
			},
		},
		{name: "CPUs by nothing", content: "cpuManagerPolicy: static", err: "invalid configuration for this machine, which has CPUs 0-7 on NUMA nodes 0-1: "},
		{name: "CPUs that are not there", content: "cpuManagerPolicy: static\nreservedSystemCPUs: '9'", err: "9"},
		{name: "a machine that cannot be read", content: "cpuManagerPolicy: static\nreservedSystemCPUs: '0'", read: errors.New("sys: gone"), err: "the machine cannot be read: sys: gone"},
		{
			name: "memory by list", content: "memoryManagerPolicy: Static\nsystemReserved: {memory: 900Mi}\nreservedMemory: [{numaNode: 0, limits: {memory: 600Mi}}, {numaNode: 1, limits: {memory: 400Mi}}]",
			want: func(c fit.Config) bool { return c.ReservedMemory[1][memmgr.Memory] == 400<<20 },
		},
		{
			name: "memory by a list that does not add up", content: "memoryManagerPolicy: Static\nsystemReserved: {memory: 900Mi}\nreservedMemory: [{numaNode: 0, limits: {memory: 900Mi}}]",
			err: "invalid configuration: reservedMemory: want what systemReserved, kubeReserved and evictionHard come to: ",
		},
		{
			name: "memory without a list", content: "memoryManagerPolicy: Static\nsystemReserved: {memory: 412Mi}",
			want: func(c fit.Config) bool {
				return c.ReservedMemory[0][memmgr.Memory]+c.ReservedMemory[1][memmgr.Memory] == 512<<20
			},
		},
		{
			name: "memory in percent", content: "memoryManagerPolicy: Static\nevictionHard: {memory.available: 25%}",
			want: func(c fit.Config) bool {
				return c.ReservedMemory[0][memmgr.Memory]+c.ReservedMemory[1][memmgr.Memory] == 2<<30
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, _, _, err := load(t, configHead+tc.content)
			if err != nil {
				t.Fatal(err)
			}
			root := t.TempDir()
			if tc.was {
				if err := os.Mkdir(filepath.Join(root, "placement"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			got, err := placementOf(root, c, capacity, func() (numa.Machine, error) { return machine, tc.read })
			switch {
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("error %v, want %q", err, tc.err)
			case tc.err == "" && (err != nil || !tc.want(got)):
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// fitter answers with what it was told to.
type fitter struct {
	local.Agent
	answer local.Fit
	asked  *v1.Pod
}

func (f *fitter) Fit(pod *v1.Pod) local.Fit {
	f.asked = pod
	return f.answer
}

func TestPlacementFitCommand(t *testing.T) {
	f := &fitter{}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := local.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: local.Handler(f, nil)} //nolint:gosec // of a test
	go func() { _ = srv.Serve(l) }()
	defer func() { _ = srv.Close() }()
	manifest := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(manifest, []byte(box("a", "sleep, forever")), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := execute(t.Context(), stdio{strings.NewReader("kind: Node"), &out, &errs}, append(args, "--socket", socket))
		return code, out.String(), errs.String()
	}
	f.answer = local.Fit{Fits: true, Containers: []local.FitContainer{
		{Name: "c", CPUs: "1-2", Own: true, MemoryNodes: "0", Memory: map[string]uint64{"memory": 1 << 30, "hugepages-2Mi": 4 << 20}, Hint: local.FitHint{Nodes: "0", Preferred: true}},
		{Name: "log", CPUs: "0,3"},
	}}
	code, out, errs := ask("fit", "-f", manifest)
	want := `CONTAINER   CPUS           MEMORY                  MEMORY NODES   HINT
c           1-2            1Gi,hugepages-2Mi=4Mi   0              0 (preferred)
log         0,3 (shared)   -                       any            any
`
	if code != 0 || out != want || f.asked.Name != "a" {
		t.Errorf("%d, %q\n%s", code, errs, out)
	}
	f.answer = local.Fit{Reason: "TopologyAffinityError", Message: "no room", Steps: []string{"container c: too large"}}
	if code, out, errs := ask("fit", "-f", manifest); code != 1 || out != "does not fit: TopologyAffinityError: no room\ncontainer c: too large\n" || errs != "" {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	code, out, _ = ask("fit", "-f", manifest, "-o", "json")
	var back local.Fit
	if err := json.Unmarshal([]byte(out), &back); err != nil || code != 1 || back.Reason != f.answer.Reason {
		t.Errorf("%d, %q, %v", code, out, err)
	}
	for _, c := range [][]string{{"fit"}, {"fit", "pod.yaml"}, {"fit", "-f", "/none"}, {"fit", "-f", "-"}, {"fit", "-f", manifest, "-o", "yaml"}} {
		if code, out, errs := ask(c...); code != 1 || out != "" || !strings.HasPrefix(errs, "agent: ") {
			t.Errorf("%q: %d, %q, %q", c, code, out, errs)
		}
	}
}
