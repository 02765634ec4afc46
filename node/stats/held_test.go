package stats

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/internal/diskusage"
)

// Each removed file is charged to what it was in: the root of a container, a volume of the
// pod, or another of its files; and to nobody if it was in none of these.
func TestHeldFilesAreChargedToWhatTheyWereIn(t *testing.T) {
	const node = 5
	pods := "/kubelet/pods/u1/"
	files := map[string][]diskusage.HeldFile{
		"a": {
			{Overlay: true, Device: 9, Bytes: 1},
			{Root: pods + "volumes/kubernetes.io~empty-dir/v", Device: node, Bytes: 2},
			{Root: pods + "volumes/kubernetes.io~empty-dir/v/sub/path", Device: node, Bytes: 4},
			{Root: pods + "containers/a/termination-log-0", Device: node, Bytes: 8},
			{Root: pods + "volumes/kubernetes.io~empty-dir/counted", Device: node, Bytes: 512}, // by the kernel
		},
		"c": {
			{Overlay: true, Work: "/run/c/work", Bytes: 1024}, // by the kernel
		},
		"d": {
			{Overlay: true, Work: "/run/c/work", Bytes: 2048}, // an overlay of its own, which names another's directory
		},
		"b": {
			{Overlay: true, Device: 10, Bytes: 16},
			{Root: pods + "volumes/kubernetes.io~empty-dir/v", Device: 6, Bytes: 32}, // a tmpfs
			{Root: "/kubelet/pods/u2/volumes/kubernetes.io~empty-dir/v", Device: node, Bytes: 64},
			{Root: "/data", Device: node, Bytes: 128}, // a host path
			{Root: "/", Device: 7, Bytes: 256},        // a claim
		},
	}
	counted := map[string]bool{"/agent/pods/u1/plugins/kubernetes.io~empty-dir/counted": true, "/run/c/work": true}
	h := heldFiles{root: "/agent", counted: func(dir string) bool { return counted[dir] }, device: func() uint64 { return node }, find: func(int) func([]string) []diskusage.HeldFile {
		return func(pids []string) []diskusage.HeldFile { return files[pids[0]] }
	}}
	got := h.look("u1", map[string][]string{"a": {"a"}, "b": {"b"}, "c": {"c"}, "d": {"d"}})
	if !maps.Equal(got.layers, map[string]Amount{"a": {1, 1}, "b": {16, 1}, "d": {2048, 1}}) || !maps.Equal(got.volumes, map[string]Amount{"v": {6, 2}}) || got.other != (Amount{8, 1}) {
		t.Errorf("%+v", got)
	}
}

// However often somebody asks, a pod's processes are looked at seldom, and the less often
// the longer it takes.
func TestHeldFilesAreLookedForSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks, takes := 0, time.Duration(0)
		h := heldFiles{device: func() uint64 { return 1 }, find: func(int) func([]string) []diskusage.HeldFile {
			return func([]string) []diskusage.HeldFile {
				looks++
				time.Sleep(takes)
				return nil
			}
		}}
		ask := func(uid types.UID) {
			h.of(t.Context(), uid, func() map[string][]string { return map[string][]string{"c": {"1"}} })
		}
		for range 61 {
			ask("u1")
			time.Sleep(time.Second)
		}
		if looks != 7 {
			t.Errorf("%d looks in a minute, want 7", looks)
		}
		takes = time.Second
		ask("u2")
		looks = 0
		for range 100 {
			ask("u2")
			time.Sleep(time.Second)
		}
		if looks != 0 {
			t.Errorf("%d looks within 100 s of one that took a second", looks)
		}
		time.Sleep(heldForgot)
		ask("u3")
		if len(h.last) != 1 {
			t.Errorf("%d pods are remembered that nobody asks for", len(h.last)-1)
		}
	})
}

func TestHold(t *testing.T) {
	f := &statsapi.FsStats{UsedBytes: ptr[uint64](1), InodesUsed: ptr[uint64](2)}
	shared := f.UsedBytes
	hold(f, Amount{10, 1})
	hold(f, Amount{})
	hold(nil, Amount{10, 1})
	hold(&statsapi.FsStats{}, Amount{10, 1})
	if *f.UsedBytes != 11 || *f.InodesUsed != 3 || *shared != 1 {
		t.Errorf("%d bytes, %d files; the figure it was made of is %d", *f.UsedBytes, *f.InodesUsed, *shared)
	}
}
