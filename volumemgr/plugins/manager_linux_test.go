package plugins

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/diskusage"
	"github.com/nodewright/nodewright/internal/diskusage/quotatest"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// live is a source whose objects change.
type live struct {
	mu   sync.Mutex
	text string
}

func (l *live) set(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = text
}

func (l *live) Get(context.Context, string, string, string) (*ContentObject, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &ContentObject{Version: l.text, Data: map[string][]byte{"key": []byte(l.text)}}, nil
}

// A pod's volumes from the first mount over a change and a restart of the agent
// to the end, with a real manager on a real kernel.
func TestWithTheManager(t *testing.T) {
	plugintest.RequireMounts(t)
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	src := &live{text: "one"}
	start := func() (*volumemgr.Manager, func()) {
		list, err := New(Config{Mounter: &mount.Kernel{}, Root: root, Source: src})
		if err != nil {
			t.Fatal(err)
		}
		m, err := volumemgr.New(volumemgr.Config{Root: root, Plugins: list, Mounter: Mounter(&mount.Kernel{})})
		if err != nil {
			t.Fatal(err)
		}
		return m, testrun.Start(t, m.Run)
	}
	mode := int32(0o644)
	name := v1.LocalObjectReference{Name: "x"}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}, Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "c"}},
		Volumes: []v1.Volume{
			{Name: "memory", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
			{Name: "map", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: name, DefaultMode: &mode}}},
			{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "x", DefaultMode: &mode}}},
		},
	}}
	for _, v := range pod.Spec.Volumes {
		c := &pod.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}

	m, stop := start()
	got, err := m.Mount(t.Context(), pod)
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v (%v)", got, err)
	}
	read := func(volume string) string {
		data, err := os.ReadFile(filepath.Join(got[volume].Path, "key"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if read("map") != "one" || read("secret") != "one" || !got["map"].ReadOnly {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(filepath.Join(got["memory"].Path, "key"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}

	// Readers watch the directory for the rename of ..data.
	w, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Add(got["map"].Path); err != nil {
		t.Fatal(err)
	}
	src.set("two")
	m.Changed(volumemgr.Ref{Kind: "ConfigMap", Namespace: "ns", Name: "x"})
	for late := time.After(time.Minute); read("map") != "two"; {
		select {
		case <-w.Events:
		case <-late:
			t.Fatal("the change does not arrive")
		}
	}
	stop()

	m, stop = start()
	if got, err = m.Mount(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if read("map") != "two" || read("secret") != "two" || read("memory") != "mine" {
		t.Error("a restart changes what volumes have")
	}
	if err := m.Unmount(t.Context(), "u"); err != nil {
		t.Error(err)
	}
	stop()
	for _, v := range got {
		if _, err := os.Lstat(v.Path); err == nil {
			t.Errorf("%s is left", v.Path)
		}
	}
	if table, err := (&mount.Kernel{}).Under(t.Context(), root); err != nil || len(table) > 0 {
		t.Errorf("still mounted: %v (%v)", table, err)
	}
}

// The statistics of a volume are those of its project only if the agent made it: a container can give
// the directory of its volume a project too, and so hide what it wrote before.
func TestStatsOfProjects(t *testing.T) {
	root := quotatest.Disk(t)
	list, err := New(Config{Mounter: &mount.Kernel{}, Root: root, Source: &live{}, Projects: true})
	must(t, err)
	m, err := volumemgr.New(volumemgr.Config{Root: root, Plugins: list, Mounter: Mounter(&mount.Kernel{})})
	must(t, err)
	testrun.Start(t, m.Run)
	for uid, hostUsers := range map[types.UID]bool{"own": false, "host": true} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: uid}, Spec: v1.PodSpec{
			HostUsers:  &hostUsers,
			Containers: []v1.Container{{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
			Volumes:    []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
		}}
		got, err := m.Mount(t.Context(), pod)
		must(t, err)
		path := got["v"].Path
		if hostUsers { // as the container could
			must(t, diskusage.Assign(path))
		}
		f, err := os.Create(filepath.Join(path, "file"))
		must(t, err)
		_, err = f.Write(make([]byte, 1<<20))
		must(t, errors.Join(err, f.Sync(), os.Remove(f.Name())))
		stats, err := m.Stats(t.Context(), uid)
		if err != nil || len(stats) != 1 || (stats[0].Usage.Used > 1<<20) == hostUsers {
			t.Errorf("hostUsers %v: %+v, %v; want the removed file to count in a project of the agent's alone", hostUsers, stats, err)
		}
		must(t, errors.Join(f.Close(), m.Remove(t.Context(), uid)))
	}
}
