package nodeagent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

func TestPlacementConfig(t *testing.T) {
	machine := numa.Uniform(2, 1, 4, 1, 4<<30) // 8 CPUs
	capacity := v1.ResourceList{v1.ResourceMemory: resource.MustParse("8Gi")}
	for _, tc := range []struct {
		name, content string
		was           bool // placed in an earlier life
		read          error
		want          func(fit.PlacementConfig) bool
		err           string
	}{
		{name: "nothing", read: errors.New("not read"), want: func(c fit.PlacementConfig) bool { return c.Idle() && len(c.Machine.CPUs) == 0 }},
		{name: "nothing any more", was: true, want: func(c fit.PlacementConfig) bool { return c.Idle() && len(c.Machine.CPUs) == 8 }},
		{
			name: "CPUs by list", content: "cpuManagerPolicy: static\nsystemReserved: {cpu: '3'}\nreservedSystemCPUs: 2-3",
			want: func(c fit.PlacementConfig) bool {
				return c.ReservedCPUs.MilliCPU == 0 && c.ReservedCPUs.CPUs.String() == "2-3" && c.CPUPolicy == fit.CPUStatic
			},
		},
		{
			name: "CPUs by number", content: "cpuManagerPolicy: static\nsystemReserved: {cpu: 300m}\nkubeReserved: {cpu: '1'}\ntopologyManagerPolicy: restricted\ntopologyManagerScope: pod",
			want: func(c fit.PlacementConfig) bool {
				return c.ReservedCPUs.MilliCPU == 1300 && c.TopologyPolicy == "restricted" && c.TopologyScope == "pod"
			},
		},
		{name: "CPUs by nothing", content: "cpuManagerPolicy: static", err: "invalid configuration for this machine, which has CPUs 0-7 on NUMA nodes 0-1: "},
		{name: "CPUs that are not there", content: "cpuManagerPolicy: static\nreservedSystemCPUs: '9'", err: "9"},
		{name: "a machine that cannot be read", content: "cpuManagerPolicy: static\nreservedSystemCPUs: '0'", read: errors.New("sys: gone"), err: "the machine cannot be read: sys: gone"},
		{
			name: "memory by list", content: "memoryManagerPolicy: Static\nsystemReserved: {memory: 900Mi}\nreservedMemory: [{numaNode: 0, limits: {memory: 600Mi}}, {numaNode: 1, limits: {memory: 400Mi}}]",
			want: func(c fit.PlacementConfig) bool { return c.ReservedMemory[1][memmgr.Memory] == 400<<20 },
		},
		{
			name: "memory by a list that does not add up", content: "memoryManagerPolicy: Static\nsystemReserved: {memory: 900Mi}\nreservedMemory: [{numaNode: 0, limits: {memory: 900Mi}}]",
			err: "invalid configuration: reservedMemory: want the sum of systemReserved, kubeReserved and evictionHard: ",
		},
		{
			name: "memory without a list", content: "memoryManagerPolicy: Static\nsystemReserved: {memory: 412Mi}",
			want: func(c fit.PlacementConfig) bool {
				return c.ReservedMemory[0][memmgr.Memory]+c.ReservedMemory[1][memmgr.Memory] == 512<<20
			},
		},
		{
			name: "memory in percent", content: "memoryManagerPolicy: Static\nevictionHard: {memory.available: 25%}",
			want: func(c fit.PlacementConfig) bool {
				return c.ReservedMemory[0][memmgr.Memory]+c.ReservedMemory[1][memmgr.Memory] == 2<<30
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, _, err := load(t, configHead+tc.content)
			if err != nil {
				t.Fatal(err)
			}
			root := t.TempDir()
			if tc.was {
				if err := os.Mkdir(filepath.Join(root, "placement"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			got, err := placementOf(filepath.Join(root, "placement"), c, capacity, func() (numa.Machine, error) { return machine, tc.read })
			switch {
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("error %v, want %q", err, tc.err)
			case tc.err == "" && (err != nil || !tc.want(got)):
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
