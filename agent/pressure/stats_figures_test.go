package pressure

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/internal/diskusage"
	"github.com/nodewright/nodewright/node/stats"
)

// A signal is there if all is known that it takes.
func TestWhatASignalTakes(t *testing.T) {
	full := stats.Usage{At: time.Unix(9, 0), Memory: new(uint64(700)), WorkingSet: new(uint64(600)), MemoryLimit: new(uint64(1000))}
	for name, change := range map[string]func(*stats.Usage){
		"nothing of the use":   func(u *stats.Usage) { u.Memory = nil },
		"nothing of the cache": func(u *stats.Usage) { u.WorkingSet = nil },
		"no limit":             func(u *stats.Usage) { u.MemoryLimit = nil },
	} {
		u := full
		change(&u)
		if f := memoryFigure(&u); f != nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if f := memoryFigure(nil); f != nil {
		t.Errorf("nothing: %+v", f)
	}
	f := memoryFigure(&full)
	if f == nil || f.Available != 400 || f.Capacity != 1000 || f.InactiveFile != 100 || !f.Time.Equal(full.At) {
		t.Errorf("memory: %+v, want 400 of 1000 and 100 that can be dropped", f)
	}
	full.WorkingSet = new(uint64(2000))
	if f := memoryFigure(&full); f.Available != 0 {
		t.Errorf("more in use than the limit: %d available", f.Available)
	}

	disk := stats.FilesystemDisk{At: time.Unix(9, 0)}
	disk.Device, disk.Available, disk.Capacity = 7, 10, 100
	if d := filesystem(&disk); d.Device != "7" || d.Bytes.Available != 10 || d.Bytes.Capacity != 100 || !d.Bytes.Time.Equal(disk.At) || d.Inodes != nil {
		t.Errorf("a file system that makes inodes on demand: %+v", d)
	}
	disk.Inodes, disk.InodesFree = 1000, 5
	if d := filesystem(&disk); d.Inodes == nil || d.Inodes.Available != 5 || d.Inodes.Capacity != 1000 {
		t.Errorf("inodes: %+v", d.Inodes)
	}
	if d := filesystem(nil); d.Bytes != nil || d.Inodes != nil || d.Device != "" {
		t.Errorf("nothing: %+v", d)
	}
}

// Figures that a summary leaves out are left out, and count as 0.
func TestUsageOfAPod(t *testing.T) {
	at := time.Unix(9, 0)
	if u := usageOfPod(&statsapi.PodStats{}, at); !reflect.DeepEqual(u, &rank.Usage{Time: at}) {
		t.Errorf("nothing: %+v", u)
	}
	p := statsapi.PodStats{
		Memory: &statsapi.MemoryStats{WorkingSetBytes: new(uint64(5))}, ProcessStats: &statsapi.ProcessStats{ProcessCount: new(uint64(6))},
		EphemeralStorage: &statsapi.FsStats{UsedBytes: new(uint64(7))},
		Containers: []statsapi.ContainerStats{
			{Name: "full", Memory: &statsapi.MemoryStats{WorkingSetBytes: new(uint64(1))}, Rootfs: &statsapi.FsStats{UsedBytes: new(uint64(2))}, Logs: &statsapi.FsStats{UsedBytes: new(uint64(3)), InodesUsed: new(uint64(4))}},
			{Name: "bare", Memory: &statsapi.MemoryStats{}, Rootfs: &statsapi.FsStats{InodesUsed: new(uint64(4))}},
		},
		VolumeStats: []statsapi.VolumeStats{
			{Name: "known", FsStats: statsapi.FsStats{UsedBytes: new(uint64(8))}}, {Name: "not"},
		},
	}
	p.Memory.Time.Time = time.Unix(8, 0)
	p.VolumeStats[0].Time.Time = time.Unix(7, 0)
	want := &rank.Usage{
		Time: time.Unix(8, 0), Memory: 5, Processes: 6, EphemeralStorage: 7,
		Containers: []rank.ContainerUsage{
			{Name: "full", Memory: 1, Rootfs: &rank.Disk{Bytes: 2}, Logs: &rank.Disk{Bytes: 3, Inodes: 4}}, {Name: "bare"},
		},
		Volumes: []rank.VolumeUsage{{Name: "known", Used: rank.Disk{Bytes: 8}, Time: time.Unix(7, 0)}},
	}
	if u := usageOfPod(&p, at); !reflect.DeepEqual(u, want) {
		t.Errorf("got  %+v\nwant %+v", u, want)
	}
}

// A newer figure of a volume is the pod's too; an older one, and one of a pod of
// which nothing is known, changes nothing else.
func TestNewerFigureOfAVolume(t *testing.T) {
	at := time.Unix(100, 0)
	for _, tc := range []struct {
		all  int64
		now  diskusage.Usage
		want rank.Usage
	}{
		{50, diskusage.Usage{Used: 30, InodesUsed: 3, At: at.Add(1)}, rank.Usage{EphemeralStorage: 70, Volumes: []rank.VolumeUsage{{Name: "v", Used: rank.Disk{Bytes: 30, Inodes: 3}, Time: at.Add(1)}}}},
		{0, diskusage.Usage{Used: 30, InodesUsed: 3, At: at.Add(1)}, rank.Usage{Volumes: []rank.VolumeUsage{{Name: "v", Used: rank.Disk{Bytes: 30, Inodes: 3}, Time: at.Add(1)}}}},
		{50, diskusage.Usage{Used: 30, At: at}, rank.Usage{EphemeralStorage: 50, Volumes: []rank.VolumeUsage{{Name: "v", Used: rank.Disk{Bytes: 10}, Time: at}}}},
		{50, diskusage.Usage{Used: 5, At: at.Add(1), AtLeast: true}, rank.Usage{EphemeralStorage: 50, Volumes: []rank.VolumeUsage{{Name: "v", Used: rank.Disk{Bytes: 10}, Time: at}}}},
		{50, diskusage.Usage{Used: 30, At: at.Add(1), AtLeast: true}, rank.Usage{EphemeralStorage: 70, Volumes: []rank.VolumeUsage{{Name: "v", Used: rank.Disk{Bytes: 30}, Time: at.Add(1)}}}},
		{50, diskusage.Usage{}, rank.Usage{EphemeralStorage: 50, Volumes: []rank.VolumeUsage{{Name: "v", Used: rank.Disk{Bytes: 10}, Time: at}}}},
	} {
		u := rank.Usage{EphemeralStorage: tc.all, Volumes: []rank.VolumeUsage{{Name: "v", Used: rank.Disk{Bytes: 10}, Time: at}}}
		if noteVolume(&u, 0, tc.now); !reflect.DeepEqual(u, tc.want) {
			t.Errorf("%d in all, %+v: %+v, want %+v", tc.all, tc.now, u, tc.want)
		}
	}
}

// A volume whose disk hangs is measured by one at a time, and holds up no other;
// run ends the measurements and returns after the last of them.
func TestLimitMeters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l limitMeters
		k, other := meterKey{"a", "v"}, meterKey{"b", "v"}
		quick := func(context.Context, *diskusage.Meter) {}
		if l.start(t.Context(), k, quick) {
			t.Error("measured outside of run")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.run(ctx) }()
		synctest.Wait()

		free := make(chan struct{})
		var measured context.Context
		var first *diskusage.Meter
		hang := func(ctx context.Context, m *diskusage.Meter) { measured, first = ctx, m; <-free }
		if !l.start(t.Context(), k, hang) || l.start(t.Context(), k, quick) || !l.start(t.Context(), other, quick) {
			t.Error("a volume is measured twice at a time, or keeps others from being measured")
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("run returned before its measurements")
		default:
		}
		if measured.Err() == nil {
			t.Error("the context of a measurement outlasts run")
		}
		close(free)
		<-ended
		if l.start(t.Context(), k, quick) {
			t.Error("measured after run")
		}

		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		go l.run(ctx)
		synctest.Wait()
		l.start(t.Context(), k, func(_ context.Context, m *diskusage.Meter) {
			if m != first {
				t.Error("the meter's memory is lost")
			}
		})
		synctest.Wait()
		l.retain(func(uid types.UID) bool { return uid == "a" })
		if len(l.meters) != 1 || l.meters[k] == nil {
			t.Errorf("meters of %v are kept", l.meters)
		}
	})
}

// A pod that hides a file below a path that is too long for the kernel, and more
// files than a walk has time for, exceeds its limit all the same.
func TestWhatAPodHidesCounts(t *testing.T) {
	dir := t.TempDir()
	deep := dir
	for range 15 {
		deep = filepath.Join(deep, strings.Repeat("d", 250))
	}
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(deep)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	below := strings.Repeat(strings.Repeat("d", 250)+"/", 10)
	if err := root.MkdirAll(below, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := root.WriteFile(below+"hidden", make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	limit := resource.MustParse("512Ki")
	pod := &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}}}
	u := rank.Usage{Volumes: []rank.VolumeUsage{{Name: "v"}}}
	noteVolume(&u, 0, walk(t.Context(), make(chan struct{}, 1), &diskusage.Meter{}, dir, limit.Value()))
	if v, ok := rank.Violated(rank.Candidate{Pod: pod, Usage: &u}, false); !ok || v.Limit != rank.EmptyDirLimit {
		t.Errorf("%+v: %+v, want a violation of the volume's limit", u, v)
	}
}
