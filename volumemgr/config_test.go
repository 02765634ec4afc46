package volumemgr_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/rmtree"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

type named struct {
	plugintest.Fake
	name string
}

func (n *named) Name() string { return n.name }

func TestNewTellsAllMistakes(t *testing.T) {
	_, err := volumemgr.New(volumemgr.Config{
		Root:    "pods/",
		Plugins: []volumemgr.Plugin{&named{name: "a/b"}, nil, &named{name: "a/b"}, &named{name: "a~b"}, &named{name: ""}},
	})
	if err == nil {
		t.Fatal("New succeeded")
	}
	for _, want := range []string{
		`Config.Root is "pods/"`, "Config.Mounter is required", "Config.Plugins[1] is nil",
		`Config.Plugins[2]: another plugin has the name "a/b"`, `Config.Plugins[3] is named "a~b"`, `Config.Plugins[4] is named ""`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q\ndoes not say %q", err, want)
		}
	}
	if _, err := volumemgr.New(volumemgr.Config{Root: "/", Mounter: plugintest.New()}); err == nil || !strings.Contains(err.Error(), "Config.Plugins is required") {
		t.Errorf("error = %v", err)
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		node := plugintest.New()
		_ = node.MkdirAll(where("old", "fake", "x"), 0o750)
		_ = node.MkdirAll(root+"/pods/strange/volumes/nobody/x", 0o750)
		r := start(t, node, func(c *volumemgr.Config) { c.Metrics = reg })
		r.mount(newPod("u1", emptyDir("a"), configMap("b", "x")))
		_ = r.Sweep(t.Context(), only("u1", "old"))
		got := map[string]float64{}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					name += "," + l.GetValue()
				}
				got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		for name, want := range map[string]float64{
			"volume_manager_total_volumes,kubernetes.io/fake,actual_state_of_world":            2,
			"volume_manager_total_volumes,kubernetes.io/fake,desired_state_of_world":           1,
			"volume_manager_total_volumes,kubernetes.io/fake-content,actual_state_of_world":    1,
			"volume_manager_total_volumes,kubernetes.io/fake-content,desired_state_of_world":   1,
			"reconstruct_volume_operations_total":                                              1,
			"reconstruct_volume_operations_errors_total":                                       1,
			"storage_operation_duration_seconds,false,volume_mount,success,kubernetes.io/fake": 1,
			"volume_operation_total_seconds,overall_volume_mount,kubernetes.io/fake":           1,
			"kubelet_orphan_pod_cleaned_volumes":                                               1,
			"kubelet_orphan_pod_cleaned_volumes_errors":                                        0,
		} {
			if got[name] != want {
				t.Errorf("%s = %v, want %v", name, got[name], want)
			}
		}
		if t.Failed() {
			t.Logf("%v", got)
		}
	})
	reg := prometheus.NewRegistry()
	cfg := volumemgr.Config{Root: "/", Plugins: []volumemgr.Plugin{&plugintest.Fake{}}, Mounter: plugintest.New(), Metrics: reg}
	if _, err := volumemgr.New(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := volumemgr.New(cfg); err != nil {
		t.Errorf("a second one on the same registry: %v", err)
	}
}

// realDirs makes plain directories on the real disk.
type realDirs struct{}

func (*realDirs) Name() string                    { return "kubernetes.io/fake" }
func (*realDirs) Supports(s *volumemgr.Spec) bool { return s.Volume.EmptyDir != nil }
func (*realDirs) SetUp(_ context.Context, v *volumemgr.Volume) (volumemgr.Result, error) {
	return volumemgr.Result{Path: v.Path}, os.MkdirAll(v.Path, 0o750)
}
func (*realDirs) TearDown(_ context.Context, v *volumemgr.Volume) error { return rmtree.Remove(v.Path) }

// noMounts is a mount table with nothing in it.
type noMounts struct{ *plugintest.Node }

func (noMounts) Mounts(string) ([]volumemgr.Mount, error) { return nil, nil }

// Stats with a real disk, and a root directory behind a link: paths are those of the mount table.
func TestStatsOnDisk(t *testing.T) {
	tmp, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(tmp, "link")
	if err := os.Symlink(filepath.Join(tmp, "root"), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(tmp, "root"), 0o755); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		d := &realDirs{}
		r := start(t, plugintest.New(), func(c *volumemgr.Config) {
			c.Root, c.Files, c.Mounter, c.Plugins = link, nil, noMounts{}, []volumemgr.Plugin{d}
		})
		pod := newPod("u1", emptyDir("a"), emptyDir("b"))
		pod.Spec.Volumes[1].EmptyDir.Medium = v1.StorageMediumMemory
		ms := r.mount(pod)
		if want := filepath.Join(tmp, "root/pods/u1/volumes/kubernetes.io~fake/a"); ms["a"].Path != want {
			t.Errorf("path = %s, want %s", ms["a"].Path, want)
		}
		if err := os.WriteFile(filepath.Join(ms["a"].Path, "file"), make([]byte, 100_000), 0o600); err != nil {
			t.Fatal(err)
		}
		stats, err := r.Stats(t.Context(), "u1")
		if err != nil || len(stats) != 2 {
			t.Fatalf("Stats = %v, %v", stats, err)
		}
		if s := stats[0]; s.Name != "a" || !s.Ephemeral || s.Usage.Used < 100_000 || s.Usage.InodesUsed != 2 {
			t.Errorf("stats = %+v", s)
		}
		if stats[1].Ephemeral {
			t.Error("a volume in memory counts as storage of the node")
		}
		if err := os.WriteFile(filepath.Join(ms["a"].Path, "more"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		again, _ := r.Stats(t.Context(), "u1")
		if again[0].Usage.InodesUsed != 2 {
			t.Error("a directory was walked twice within a minute")
		}
		if err := r.Remove(t.Context(), "u1"); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadDir(filepath.Join(tmp, "root/pods")); len(got) > 0 {
			t.Errorf("left: %v", got)
		}
		if got, err := r.Stats(t.Context(), "u1"); len(got) > 0 || err != nil {
			t.Errorf("Stats of a pod that is gone = %v, %v", got, err)
		}
	})
}

// If a volume is too large for one walk, the result is what was counted so far, and never less
// than before.
func TestStatsOfALargeVolume(t *testing.T) {
	tmp, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		d := &realDirs{}
		r := start(t, plugintest.New(), func(c *volumemgr.Config) {
			c.Root, c.Files, c.Mounter, c.Plugins = tmp, nil, noMounts{}, []volumemgr.Plugin{d}
		})
		dir := r.mount(newPod("u1", emptyDir("a")))["a"].Path
		const files = 3500
		for i := range files {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		// A walk rests for 1ms after each 1,000 files.
		look := func(within time.Duration) volumemgr.Usage {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			stats, err := r.Stats(ctx, "u1")
			if err != nil || len(stats) != 1 || !stats[0].Ephemeral {
				t.Fatalf("Stats = %+v, %v", stats, err)
			}
			return stats[0].Usage
		}
		for call, want := range []int64{1001, 2001, 3001, files + 1} {
			if u := look(time.Millisecond); u.InodesUsed != want || u.AtLeast != (want < files) {
				t.Errorf("call %d: %+v, want %d files", call, u, want)
			}
		}
		time.Sleep(time.Minute)
		if u := look(time.Millisecond); u.InodesUsed != files+1 || !u.AtLeast {
			t.Errorf("the second time: %+v, want %d files at least", u, files+1)
		}
		if u := look(time.Minute); u.InodesUsed != files+1 || u.AtLeast {
			t.Errorf("%+v, want %d files", u, files+1)
		}
	})
}

// Calls for an unknown pod.
func TestUnknownPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		if r.Mounted("x") || r.Why("x") != nil || !slices.Equal(r.Pods(), nil) {
			t.Error("something is known of a pod that never was")
		}
		if err := r.Remove(t.Context(), "x"); err != nil {
			t.Errorf("Remove: %v", err)
		}
	})
}
