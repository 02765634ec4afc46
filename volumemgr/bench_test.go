package volumemgr_test

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// free is a plugin that does nothing, so that the manager alone is measured.
type free struct{ plugintest.FakeContent }

func (*free) Supports(*volumemgr.Spec) bool { return true }
func (f *free) SetUp(_ context.Context, v *volumemgr.Volume) (volumemgr.Result, error) {
	if f.Hook != nil && v.Remount {
		return volumemgr.Result{Path: v.Path}, f.Hook(nil, "", nil)
	}
	return volumemgr.Result{Path: v.Path}, nil
}
func (*free) TearDown(context.Context, *volumemgr.Volume) error { return nil }

// thousand is a manager of 200 pods with 5 volumes each.
func thousand(b *testing.B, plugin *free) (m *volumemgr.Manager, pods []*v1.Pod) {
	b.Helper()
	node := plugintest.New()
	m, err := volumemgr.New(volumemgr.Config{Root: "/root", Plugins: []volumemgr.Plugin{plugin}, Mounter: node, Files: node})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Run(ctx)
	}()
	b.Cleanup(func() {
		cancel()
		<-ended
	})
	for i := range 200 {
		var volumes []v1.Volume
		for j := range 5 {
			volumes = append(volumes, configMap(fmt.Sprint("v", j), fmt.Sprint("object-", i, "-", j)))
		}
		pods = append(pods, newPod(types.UID(fmt.Sprint("u", i)), volumes...))
		if _, err := m.Mount(b.Context(), pods[i]); err != nil {
			b.Fatal(err)
		}
	}
	return m, pods
}

// One of 1,000 volumes has changed: from the news to the volume made again.
func BenchmarkOneOfThousandChanged(b *testing.B) {
	done := make(chan struct{})
	plugin := &free{}
	plugin.Hook = func(context.Context, string, *volumemgr.Volume) error {
		done <- struct{}{}
		return nil
	}
	m, _ := thousand(b, plugin)
	ref := volumemgr.Ref{Kind: "ConfigMap", Namespace: "default", Name: "object-100-2"}
	b.ReportAllocs()
	for b.Loop() {
		m.Changed(ref)
		<-done
	}
}

// A sync of a pod whose 5 volumes are mounted, among 1,000.
func BenchmarkMountAgain(b *testing.B) {
	m, pods := thousand(b, &free{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Mount(b.Context(), pods[100]); err != nil {
			b.Fatal(err)
		}
	}
}

// A pod with 5 volumes comes and goes, among 1,000.
func BenchmarkMountUnmount(b *testing.B) {
	m, pods := thousand(b, &free{})
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Unmount(b.Context(), pods[100].UID); err != nil {
			b.Fatal(err)
		}
		if _, err := m.Mount(b.Context(), pods[100]); err != nil {
			b.Fatal(err)
		}
	}
}
