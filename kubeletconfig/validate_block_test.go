package kubeletconfig

import (
	"strings"
	"testing"
)

func TestValidateGC(t *testing.T) {
	for _, tc := range []struct {
		content string
		want    string // of the error; "" means that there is none
	}{
		{"imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 0", ""},
		{"imageGCHighThresholdPercent: 101", "imageGCHighThresholdPercent: 101: want 0 to 100"},
		{"imageGCHighThresholdPercent: -1", "imageGCHighThresholdPercent: -1: want 0 to 100"},
		{"imageGCLowThresholdPercent: -1", "imageGCLowThresholdPercent: -1: want 0 to 100"},
		{"imageGCLowThresholdPercent: 101", "imageGCLowThresholdPercent: 101: want 0 to 100"},
		{"imageGCLowThresholdPercent: 85", "imageGCLowThresholdPercent: 85: want less than imageGCHighThresholdPercent, which is 85"},
		{"imageMinimumGCAge: 1h", ""},
		{"imageMinimumGCAge: -1s", `imageMinimumGCAge: "-1s": want a duration of 0 or more`},
		{"imageMaximumGCAge: 121s", ""},
		{"imageMaximumGCAge: 2m", `imageMaximumGCAge: "2m0s": want 0 (no limit), or more than imageMinimumGCAge, which is 2m0s`},
		{"imageMaximumGCAge: -1s", `imageMaximumGCAge: "-1s": want a duration of 0`},
		{"containerLogMaxSize: 1Gi", ""},
		{"containerLogMaxSize: '-1'", ""},
		{"containerLogMaxSize: '0'", `containerLogMaxSize: "0": want a quantity of bytes such as 10Mi, or a negative one to rotate no logs`},
		{"containerLogMaxSize: 10MB", `containerLogMaxSize: "10MB": want a quantity`},
		{"containerLogMaxSize: 100m", `containerLogMaxSize: "100m": want a quantity`},
		{"containerLogMaxFiles: 2", ""},
		{"containerLogMaxFiles: 1", "containerLogMaxFiles: 1: want 2 or more"},
		{"containerLogMaxWorkers: 0", "containerLogMaxWorkers: 0: want 1 or more"},
		{"containerLogMonitorInterval: 3s", ""},
		{"containerLogMonitorInterval: 2s", `containerLogMonitorInterval: "2s": want a duration of 3s or more`},
	} {
		t.Run(tc.content, func(t *testing.T) { wantMistake(t, configHead+tc.content, tc.want) })
	}
}

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
		{"cpuManagerPolicyOptions: {full-pcpus-only: 'true'}", `cpuManagerPolicyOptions: {"full-pcpus-only":"true"}: want compatible options: policy none has no options`},
		{"cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: 'true'}", ""},
		{"cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: 'maybe'}", `cpuManagerPolicyOptions.full-pcpus-only: "maybe": want true or false`},
		{"cpuManagerPolicy: static\ncpuManagerPolicyOptions: {fast: 'true'}", `cpuManagerPolicyOptions.fast: "true": want true or false for a known option`},
		{"cpuManagerPolicy: static\ncpuManagerPolicyOptions: {align-by-socket: 'true'}", `cpuManagerPolicyOptions.align-by-socket: "true": want`},
		{"cpuManagerPolicy: static\nfeatureGates: {CPUManagerPolicyAlphaOptions: true}\ncpuManagerPolicyOptions: {align-by-socket: 'true'}", ""},
		{
			"cpuManagerPolicy: static\ntopologyManagerPolicy: single-numa-node\nfeatureGates: {CPUManagerPolicyAlphaOptions: true}\ncpuManagerPolicyOptions: {align-by-socket: 'true'}",
			`cpuManagerPolicyOptions: {"align-by-socket":"true"}: want compatible options: `,
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
			wantMistake(t, configHead+tc.content, tc.want)
		})
	}
	_, warnings, _, err := load(t, configHead+"featureGates: {PodsAPI: true, PodLevelResourceManagers: false}")
	if err != nil || len(warnings) != 1 || !strings.HasPrefix(warnings[0], "featureGates.PodsAPI: true has no effect") {
		t.Errorf("warnings %q, %v", warnings, err)
	}
}

func TestParallelPulls(t *testing.T) {
	for _, tc := range []struct {
		content string
		want    int
	}{
		{"", 1},
		{"serializeImagePulls: true", 1},
		{"serializeImagePulls: false", 0}, // any number
		{"maxParallelImagePulls: 4", 4},
		{"maxParallelImagePulls: 1\nserializeImagePulls: false", 1},
	} {
		c, _, _, err := load(t, configHead+tc.content)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.ParallelPulls(); got != tc.want {
			t.Errorf("%q: %d pulls at a time, want %d", tc.content, got, tc.want)
		}
	}
}
