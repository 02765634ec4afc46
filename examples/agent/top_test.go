package main

import (
	"bytes"
	"testing"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func TestTop(t *testing.T) {
	pods := []statsapi.PodStats{
		{PodRef: statsapi.PodReference{Namespace: "a", Name: "web"}, CPU: &statsapi.CPUStats{UsageNanoCores: new(uint64(1_500_000))}, Memory: &statsapi.MemoryStats{WorkingSetBytes: new(uint64(3<<20 + 1))}},
		{PodRef: statsapi.PodReference{Namespace: "b", Name: "unknown"}, CPU: &statsapi.CPUStats{}},
	}
	var b bytes.Buffer
	if err := writePodsTop(&b, pods, ""); err != nil {
		t.Fatal(err)
	}
	if want := "NAMESPACE   NAME      CPU(cores)   MEMORY(bytes)\na           web       2m           4Mi\nb           unknown   -            -\n"; b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	if !withoutRate(&statsapi.Summary{Pods: pods}) || withoutRate(&statsapi.Summary{Pods: pods[:1]}) {
		t.Error("rates that are not known are not seen")
	}
	b.Reset()
	if err := writePodsTop(&b, pods, "c"); err != nil || bytes.Contains(b.Bytes(), []byte("web")) {
		t.Errorf("another namespace: %v\n%s", err, b.String())
	}
	b.Reset()
	node := &statsapi.NodeStats{
		NodeName: "edge", Memory: &statsapi.MemoryStats{AvailableBytes: new(uint64(1 << 20))}, Fs: &statsapi.FsStats{AvailableBytes: new(uint64(5 << 20))},
		Rlimit: &statsapi.RlimitStats{NumOfRunningProcesses: new(int64(42))},
	}
	if err := writeNodeTop(&b, node); err != nil {
		t.Fatal(err)
	}
	if want := "NAME   CPU(cores)   MEMORY(bytes)   MEMORY FREE   DISK FREE   THREADS\nedge   -            -               1Mi           5Mi         42\n"; b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
