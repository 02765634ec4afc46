package cgroups_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/internal/cgroupstest"
)

// What this package itself costs: the kernel is in memory.
func BenchmarkEnsureDestroy100(b *testing.B) {
	tree := cgroupstest.NewTree(cgroups.V2)
	m, err := cgroups.New(cgroups.Config{FS: tree, Notifier: tree, Kill: tree.Kill})
	if err != nil {
		b.Fatal(err)
	}
	var pods []*v1.Pod
	for i := range 100 {
		pods = append(pods, pod(fmt.Sprint("p", i), "cpu=250m memory=16Mi", "cpu=500m memory=64Mi"))
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range pods {
			if err := m.Ensure(b.Context(), p); err != nil {
				b.Fatal(err)
			}
		}
		for _, p := range pods {
			if err := m.Destroy(b.Context(), p.UID); err != nil {
				b.Fatal(err)
			}
		}
		tree.Writes()
	}
}
