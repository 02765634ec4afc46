package nodeagent

import (
	"reflect"
	"testing"
	"time"

	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/gc"
)

func TestEvictionConfig(t *testing.T) {
	for _, flags := range [][]string{
		nil,
		{"--eviction-pressure-transition-period=30s", "--eviction-minimum-reclaim=nodefs.available=1Gi", "--local-storage-capacity-isolation=false"},
	} {
		b := newBuilder(t, "", flags...)
		e, err := b.eviction()
		if err != nil || !e.Standalone || e.IgnoreLimits == *b.Config.LocalStorageCapacityIsolation {
			t.Errorf("eviction %+v, %v", e, err)
		}
		if flags != nil && (e.Transition != 30*time.Second || !e.IgnoreLimits || e.Thresholds[1].MinReclaim.Value != 1<<30) {
			t.Errorf("eviction %+v", e)
		}
		b.Cluster = &Cluster{}
		if e, err := b.eviction(); err != nil || e.Standalone {
			t.Errorf("in a cluster: %+v, %v", e, err)
		}
	}
}

// The memory of all pods has the hard threshold of the node's, if it is limited.
func TestAllocatableThreshold(t *testing.T) {
	for content, want := range map[string]bool{"": true, "cgroupsPerQOS: false": false, "enforceNodeAllocatable: [none]": false} {
		e, err := newBuilder(t, content).eviction()
		if err != nil {
			t.Fatal(err)
		}
		last := e.Thresholds[len(e.Thresholds)-1]
		if got := last.Signal == rank.SignalAllocatableMemory && last.Value.Value == 100<<20; got != want {
			t.Errorf("%q: last threshold %+v", content, last)
		}
	}
}

func TestCollectionConfig(t *testing.T) {
	kubelet := pressure.CollectionConfig{
		ImagePolicy:     &gc.ImagePolicy{High: 85, Low: 80, MinAge: 2 * time.Minute},
		ContainerPolicy: &gc.ContainerPolicy{MaxPerContainer: 1, MaxContainers: -1},
		Logs:            pressure.LogRotation{MaxSize: 10 << 20, MaxFiles: 5, Workers: 1, Longest: 10 * time.Second},
	}
	for _, tc := range []struct {
		flags   []string
		content string
		want    pressure.CollectionConfig
	}{
		{nil, "", kubelet},
		{
			[]string{"--minimum-container-ttl-duration=1m", "--maximum-dead-containers=20", "--maximum-dead-containers-per-container=2"},
			"imageGCHighThresholdPercent: 90\nimageGCLowThresholdPercent: 50\nimageMinimumGCAge: 1m\nimageMaximumGCAge: 24h\ncontainerLogMaxSize: 1Mi\ncontainerLogMaxFiles: 3\ncontainerLogMaxWorkers: 2\ncontainerLogMonitorInterval: 5s",
			pressure.CollectionConfig{
				ImagePolicy:     &gc.ImagePolicy{High: 90, Low: 50, MinAge: time.Minute, MaxAge: 24 * time.Hour},
				PinnedImages:    []string{"a:1", "b/*"},
				ContainerPolicy: &gc.ContainerPolicy{MinAge: time.Minute, MaxPerContainer: 2, MaxContainers: 20},
				Logs:            pressure.LogRotation{MaxSize: 1 << 20, MaxFiles: 3, PodBudget: 200 << 20, Workers: 2, Longest: 5 * time.Second},
			},
		},
	} {
		b := newBuilder(t, tc.content, tc.flags...)
		b.Settings = Settings{PodLogBudget: tc.want.Logs.PodBudget, PinnedImages: tc.want.PinnedImages}
		got := b.collection()
		if got.Store == nil || got.PodLogsDir != "/var/log/pods" || got.ContainerLogsDir != "/var/log/containers" {
			t.Errorf("%s: %+v", tc.content, got)
		}
		got = pressure.CollectionConfig{ImagePolicy: got.ImagePolicy, PinnedImages: got.PinnedImages, ContainerPolicy: got.ContainerPolicy, Logs: got.Logs}
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", tc.content, got, tc.want)
		}
	}
	if !newBuilder(t, "containerLogMaxSize: '-1'").collection().Logs.Off {
		t.Error("logs are rotated")
	}
}
