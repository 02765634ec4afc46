package plugins

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// one is a source of one ConfigMap and one Secret for all.
type one struct{}

func (one) Get(context.Context, string, string, string) (*ContentObject, error) {
	return &ContentObject{Version: "1", Data: map[string][]byte{"a": []byte("1"), "b": []byte("2")}}, nil
}

// fivePod uses an emptyDir, one in memory, a ConfigMap, a Secret and the
// downward API.
func fivePod(uid string) *v1.Pod {
	mode := int32(0o644)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "default", UID: types.UID(uid)}}
	add := func(name string, s v1.VolumeSource) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: s})
	}
	add("disk", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
	add("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}})
	add("config", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "c"}, DefaultMode: &mode}})
	add("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s", DefaultMode: &mode}})
	add("down", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{DefaultMode: &mode, Items: []v1.DownwardAPIVolumeFile{
		{Path: "a", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}},
		{Path: "b", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.uid"}},
	}}})
	c := v1.Container{Name: "c"}
	for _, v := range pod.Spec.Volumes {
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	pod.Spec.Containers = []v1.Container{c}
	return pod
}

// byHand does the work of the plugins for a fivePod with system calls only.
func byHand(b *testing.B, root, uid string) {
	check := func(err error) {
		if err != nil {
			b.Error(err)
		}
	}
	for _, v := range []struct {
		plugin, name  string
		tmpfs, filled bool
	}{
		{"empty-dir", "disk", false, false}, {"empty-dir", "memory", true, false}, {"configmap", "config", false, true},
		{"secret", "secret", true, true}, {"downward-api", "down", true, true},
	} {
		dir := filepath.Join(root, "pods", uid, "volumes", "kubernetes.io~"+v.plugin, v.name)
		check(os.MkdirAll(dir, 0o750))
		if v.tmpfs {
			check(syscall.Mount("tmpfs", dir, "tmpfs", 0, ""))
		}
		check(os.Chmod(dir, 0o777)) //nolint:gosec // as an emptyDir has it
		if !v.filled {
			continue
		}
		check(os.Mkdir(filepath.Join(dir, "..1"), 0o755)) //nolint:gosec // as a ConfigMap has it
		for _, f := range []string{"a", "b"} {
			check(os.WriteFile(filepath.Join(dir, "..1", f), []byte("1"), 0o644)) //nolint:gosec // as a ConfigMap has it
			check(os.Symlink("..data/"+f, filepath.Join(dir, f)))
		}
		check(os.Symlink("..1", filepath.Join(dir, "..data_tmp")))
		check(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
}

func (b bench) unmountAll(root string) {
	table, err := (&mount.Kernel{}).Table(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range table {
		if mount.IsBelow(e.Target, root) {
			_ = syscall.Unmount(e.Target, syscall.MNT_DETACH)
		}
	}
	if err := os.RemoveAll(filepath.Join(root, "pods")); err != nil {
		b.Fatal(err)
	}
}

type bench struct{ *testing.B }

// The time from the request until the five volumes of each pod are mounted, for 1, 10 and 100
// pods at once, by the manager and by hand.
func BenchmarkPods(b *testing.B) {
	plugintest.RequireMounts(b)
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("byHand/%d", n), func(b *testing.B) {
			root := b.TempDir()
			for b.Loop() {
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() { byHand(b, root, fmt.Sprint("p", i)) })
				}
				wg.Wait()
				b.StopTimer()
				bench{b}.unmountAll(root)
				b.StartTimer()
			}
		})
		b.Run(fmt.Sprintf("manager/%d", n), func(b *testing.B) {
			root := b.TempDir()
			m, stop := manager(b, root)
			defer stop()
			for b.Loop() {
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						if _, err := m.Mount(b.Context(), fivePod(fmt.Sprint("p", i))); err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				for i := range n {
					if err := m.Remove(b.Context(), types.UID(fmt.Sprint("p", i))); err != nil {
						b.Error(err)
					}
				}
				b.StartTimer()
			}
		})
	}
}

// The processor time that 100 pods with 500 volumes cost while nothing happens.
func BenchmarkRest(b *testing.B) {
	plugintest.RequireMounts(b)
	m, stop := manager(b, b.TempDir())
	defer stop()
	for i := range 100 {
		if _, err := m.Mount(b.Context(), fivePod(fmt.Sprint("p", i))); err != nil {
			b.Fatal(err)
		}
	}
	used := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	before := used()
	for b.Loop() {
		time.Sleep(3 * time.Second)
	}
	b.ReportMetric(float64((used()-before).Microseconds())/b.Elapsed().Seconds(), "cpu-us/s")
	b.StopTimer()
	for i := range 100 {
		if err := m.Remove(context.Background(), types.UID(fmt.Sprint("p", i))); err != nil {
			b.Error(err)
		}
	}
}

func manager(b *testing.B, root string) (m *volumemgr.Manager, stop func()) {
	kernel := &mount.Kernel{}
	list, err := New(Config{Mounter: kernel, Root: root, Source: one{}})
	if err != nil {
		b.Fatal(err)
	}
	m, err = volumemgr.New(volumemgr.Config{Root: root, Plugins: list, Mounter: Mounter(kernel)})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	return m, func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}
}
