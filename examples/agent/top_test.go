package main

import (
	"bytes"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func TestTop(t *testing.T) {
	pods := []statsapi.PodStats{
		{PodRef: statsapi.PodReference{Namespace: "a", Name: "web"}, CPU: &statsapi.CPUStats{UsageNanoCores: new(uint64(1_500_000))}, Memory: &statsapi.MemoryStats{WorkingSetBytes: new(uint64(3<<20 + 1))}},
		{PodRef: statsapi.PodReference{Namespace: "b", Name: "unknown"}, CPU: &statsapi.CPUStats{}},
	}
	var b bytes.Buffer
	if err := (&topFlags{}).writePods(&b, pods); err != nil {
		t.Fatal(err)
	}
	if want := "NAMESPACE   NAME      CPU(cores)   MEMORY(bytes)\na           web       2m           4Mi\nb           unknown   -            -\n"; b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	if !withoutRate(&statsapi.Summary{Pods: pods}) || withoutRate(&statsapi.Summary{Pods: pods[:1]}) {
		t.Error("rates that are not known are not seen")
	}
	pods = append(pods, statsapi.PodStats{PodRef: statsapi.PodReference{Namespace: "a", Name: "db"},
		CPU: &statsapi.CPUStats{UsageNanoCores: new(uint64(9_000_000))}, Memory: &statsapi.MemoryStats{WorkingSetBytes: new(uint64(1 << 20))},
		Containers: []statsapi.ContainerStats{{Name: "c", CPU: &statsapi.CPUStats{UsageNanoCores: new(uint64(1_000_000))}}, {Name: "d", CPU: &statsapi.CPUStats{UsageNanoCores: new(uint64(8_000_000))}}}})
	for _, tc := range []struct {
		f    topFlags
		want string
	}{
		{topFlags{sortBy: "cpu", noHeaders: true}, "a db 9m 1Mi a web 2m 4Mi b unknown - -"},
		{topFlags{sortBy: "memory", noHeaders: true}, "a web 2m 4Mi a db 9m 1Mi b unknown - -"},
		{topFlags{containers: true, sortBy: "cpu"}, "NAMESPACE POD NAME CPU(cores) MEMORY(bytes) a db d 8m - a db c 1m -"},
	} {
		b.Reset()
		if err := tc.f.writePods(&b, pods); err != nil || strings.Join(strings.Fields(b.String()), " ") != tc.want {
			t.Errorf("%+v: %v, %q, want %q", tc.f, err, b.String(), tc.want)
		}
	}
	b.Reset()
	node := &statsapi.NodeStats{
		NodeName: "edge", Memory: &statsapi.MemoryStats{AvailableBytes: new(uint64(1 << 20))}, Fs: &statsapi.FsStats{AvailableBytes: new(uint64(5 << 20))},
		Rlimit: &statsapi.RlimitStats{NumOfRunningProcesses: new(int64(42))},
	}
	for _, tc := range []struct {
		cpu, memory uint64
		want        string
	}{{0, 0, "edge - - - - 1Mi 5Mi 42"}, {500_000_000, 256 << 20, "edge 500m 25% 256Mi 25% 1Mi 5Mi 42"}} {
		if tc.cpu > 0 {
			node.CPU, node.Memory.WorkingSetBytes = &statsapi.CPUStats{UsageNanoCores: &tc.cpu}, &tc.memory
		}
		b.Reset()
		err := (&topFlags{noHeaders: true}).writeNode(&b, node, v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")})
		if got := strings.Join(strings.Fields(b.String()), " "); err != nil || got != tc.want {
			t.Errorf("%v, %q, want %q", err, got, tc.want)
		}
	}
}
