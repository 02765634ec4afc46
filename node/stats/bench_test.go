package stats_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/node/stats"
)

// bigNode is a node of 500 pods of two containers, as files on a disk: the cost of
// opening and reading them, without that of the kernel adding up its counters.
func bigNode(b *testing.B) *stats.Collector {
	b.Helper()
	m := newNode()
	m.runtime.sandboxes, m.runtime.containers = nil, nil
	for i := range 500 {
		uid := fmt.Sprintf("uid%d", i)
		dir := "kubepods/burstable/pod" + uid
		v2(m.cgroups, dir, 5, 5)
		m.runtime.sandboxes = append(m.runtime.sandboxes, stats.Sandbox{ID: "s" + uid, UID: types.UID(uid), Name: uid, Ready: true, HostNetwork: true})
		for j := range 2 {
			id := fmt.Sprintf("c%d-%d", i, j)
			v2(m.cgroups, dir+"/"+id, 5, 5)
			m.runtime.containers = append(m.runtime.containers, stats.Container{ID: id, Name: fmt.Sprint(j), SandboxID: "s" + uid, Running: true,
				Layer: &stats.Filesystem{Mountpoint: "/images", Used: n(1)}})
		}
	}
	root := b.TempDir()
	for name, f := range m.cgroups {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	m.cfg.Cgroups = kernel.Dir(root)
	m.cfg.MaxAge = time.Nanosecond
	return m.manager(b)
}

func BenchmarkSummary500Pods(b *testing.B) {
	s := bigNode(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Fresh(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNode500Pods(b *testing.B) {
	s := bigNode(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Node(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDetails500Pods(b *testing.B) {
	s := bigNode(b)
	b.ReportAllocs()
	for b.Loop() {
		all, err := s.Details(func(types.UID) (string, bool, bool) { return "", false, true })
		if err != nil || len(all) < 500 {
			b.Fatal(len(all), err)
		}
	}
}
