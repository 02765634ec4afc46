package agent

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/node/stats"
	"github.com/nodewright/nodewright/volumemgr/usage"
)

func n64(n uint64) *uint64 { return &n }

// A signal is there if all is known that it takes.
func TestWhatASignalTakes(t *testing.T) {
	full := stats.Usage{At: time.Unix(9, 0), Memory: n64(700), WorkingSet: n64(600), MemoryLimit: n64(1000)}
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
	full.WorkingSet = n64(2000)
	if f := memoryFigure(&full); f.Available != 0 {
		t.Errorf("more in use than the limit: %d available", f.Available)
	}

	disk := stats.NodeDisk{At: time.Unix(9, 0)}
	disk.Device, disk.Available, disk.Capacity = 7, 10, 100
	if d := filesystem(&disk); d.Device != "7" || d.Bytes.Available != 10 || d.Bytes.Capacity != 100 || !d.Bytes.Time.Equal(disk.At) || d.Inodes != nil {
		t.Errorf("a file system that makes inodes as it needs them: %+v", d)
	}
	disk.Inodes, disk.InodesFree = 1000, 5
	if d := filesystem(&disk); d.Inodes == nil || d.Inodes.Available != 5 || d.Inodes.Capacity != 1000 {
		t.Errorf("inodes: %+v", d.Inodes)
	}
	if d := filesystem(nil); d.Bytes != nil || d.Inodes != nil || d.Device != "" {
		t.Errorf("nothing: %+v", d)
	}
}

// What a summary leaves out is left out, and counts nothing.
func TestUsageOfAPod(t *testing.T) {
	at := time.Unix(9, 0)
	if u := usageOfPod(&statsapi.PodStats{}, at); !reflect.DeepEqual(u, &rank.Usage{Time: at}) {
		t.Errorf("nothing: %+v", u)
	}
	p := statsapi.PodStats{
		Memory: &statsapi.MemoryStats{WorkingSetBytes: n64(5)}, ProcessStats: &statsapi.ProcessStats{ProcessCount: n64(6)},
		EphemeralStorage: &statsapi.FsStats{UsedBytes: n64(7)},
		Containers: []statsapi.ContainerStats{
			{Name: "full", Memory: &statsapi.MemoryStats{WorkingSetBytes: n64(1)}, Rootfs: &statsapi.FsStats{UsedBytes: n64(2)}, Logs: &statsapi.FsStats{UsedBytes: n64(3), InodesUsed: n64(4)}},
			{Name: "bare", Memory: &statsapi.MemoryStats{}, Rootfs: &statsapi.FsStats{InodesUsed: n64(4)}},
		},
		VolumeStats: []statsapi.VolumeStats{
			{Name: "known", FsStats: statsapi.FsStats{UsedBytes: n64(8)}}, {Name: "not"},
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

// A newer figure of a volume is the pod's too; an older one, and one of a pod
// of which nothing is known, changes nothing else.
func TestNewerFigureOfAVolume(t *testing.T) {
	at := time.Unix(100, 0)
	for _, tc := range []struct {
		all  int64
		now  usage.Usage
		want rank.Usage
	}{
		{50, usage.Usage{Used: 30, InodesUsed: 3, At: at.Add(1)}, rank.Usage{EphemeralStorage: 70, Volumes: []rank.VolumeUsage{{Name: "v", Used: rank.Disk{Bytes: 30, Inodes: 3}, Time: at.Add(1)}}}},
		{0, usage.Usage{Used: 30, InodesUsed: 3, At: at.Add(1)}, rank.Usage{Volumes: []rank.VolumeUsage{{Name: "v", Used: rank.Disk{Bytes: 30, Inodes: 3}, Time: at.Add(1)}}}},
		{50, usage.Usage{Used: 30, At: at}, rank.Usage{EphemeralStorage: 50, Volumes: []rank.VolumeUsage{{Name: "v", Used: rank.Disk{Bytes: 10}, Time: at}}}},
		{50, usage.Usage{}, rank.Usage{EphemeralStorage: 50, Volumes: []rank.VolumeUsage{{Name: "v", Used: rank.Disk{Bytes: 10}, Time: at}}}},
	} {
		u := rank.Usage{EphemeralStorage: tc.all, Volumes: []rank.VolumeUsage{{Name: "v", Used: rank.Disk{Bytes: 10}, Time: at}}}
		if noteVolume(&u, 0, tc.now); !reflect.DeepEqual(u, tc.want) {
			t.Errorf("%d in all, %+v: %+v, want %+v", tc.all, tc.now, u, tc.want)
		}
	}
}

// A volume whose disk does not answer holds up no pass, and is measured by one at
// a time; what is gone is forgotten.
func TestLimitMeters(t *testing.T) {
	var l limitMeters
	k, other := meterKey{"a", "v"}, meterKey{"b", "v"}
	m := l.take(k)
	if m == nil || l.take(k) != nil || l.take(other) == nil {
		t.Fatal("a meter is taken twice, or keeps others from theirs")
	}
	l.put(m)
	if l.take(k) != m {
		t.Error("what a meter knows is lost")
	}
	l.retain(func(uid types.UID) bool { return uid == "a" })
	if len(l.meters) != 1 || l.meters[k] != m {
		t.Errorf("%v are remembered", l.meters)
	}
	synctest.Test(t, func(t *testing.T) {
		s := evictionStats{&Agent{}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.freshen(ctx, []*v1.Pod{{}}, nil) // nothing is known of it
	})
}
