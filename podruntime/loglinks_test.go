package podruntime

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/cri/observed"
)

// logged is a node with both directories of logs.
type logged struct {
	t           *testing.T
	rt          *critest.Runtime
	m           *Manager
	w           *world
	logs, links string
}

func newLogged(t *testing.T, init []string, names ...string) *logged {
	t.Helper()
	root := t.TempDir()
	l := &logged{t: t, rt: critest.New(), w: build(v1.RestartPolicyAlways, init, names...),
		logs: filepath.Join(root, "pods"), links: filepath.Join(root, "containers")}
	l.rt.AddImage("img")
	for _, list := range [][]v1.Container{l.w.pod.Spec.InitContainers, l.w.pod.Spec.Containers} {
		for i := range list {
			list[i].Command = []string{"out", "hello of " + list[i].Name, "sleep", "forever"}
		}
	}
	var err error
	if l.m, err = New(Config{Runtime: l.rt, Images: present{}, PodLogsDir: l.logs + "/", ContainerLogsDir: l.links}); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *logged) look() *observed.Pod {
	l.t.Helper()
	pod, err := cri.NewReader(l.rt).Inspect(l.t.Context(), l.w.pod.UID)
	if err != nil {
		l.t.Fatal(err)
	}
	return pod
}

func (l *logged) sync() {
	l.t.Helper()
	req := request(l.t, l.w, l.look())
	req.Spec.Node.PodLogsDir = l.logs
	mustSync(l.t, l.m, req)
}

// read maps the links' names to what they lead to.
func (l *logged) read() map[string]string {
	l.t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(l.links)
	if err != nil && !os.IsNotExist(err) {
		l.t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(l.links, e.Name()))
		if err != nil {
			b = []byte("dangling")
		}
		out[e.Name()] = string(b)
	}
	return out
}

// Each container has a link by its name to its log, from its start to its
// removal.
func TestLogLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged(t, []string{"side*"}, "a", "b")
		l.sync()
		l.sync()
		want := func(when string, n int) {
			t.Helper()
			have := l.read()
			if len(have) != n {
				t.Errorf("%s: links %v, want %d", when, slices.Sorted(maps.Keys(have)), n)
			}
			for _, c := range l.look().Containers {
				name := "pod_ns_" + c.Name + "-" + c.ID + ".log"
				if !strings.Contains(have[name], "hello of "+c.Name) {
					t.Errorf("%s: %s leads to %q", when, name, have[name])
				}
			}
		}
		want("after the start", 3)
		for range 3 { // the remains of the second but last go, and their links
			l.rt.Kill(l.look().Newest("a").ID)
			time.Sleep(10 * time.Minute)
			l.sync()
			want("after a restart", 4)
		}
		if err := l.m.Kill(t.Context(), l.w.pod, l.look(), nil); err != nil {
			t.Fatal(err)
		}
		want("after the kill", 4)
		if err := l.m.Remove(t.Context(), l.look()); err != nil {
			t.Fatal(err)
		}
		if have := l.read(); len(have) > 0 {
			t.Errorf("links of a pod that is gone: %v", have)
		}
	})
}

func TestNoLogLinks(t *testing.T) {
	l := newLogged(t, nil, "a")
	l.m.cfg.ContainerLogsDir = "" // none is asked for
	l.sync()
	if err := l.m.Remove(t.Context(), l.look()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(l.links); !os.IsNotExist(err) {
		t.Errorf("a directory was made: %v", err)
	}

	l = newLogged(t, nil, "a") // the directory cannot be made
	put(t, l.links, "a file")
	l.sync()
	if n := len(l.look().Containers); n != 1 {
		t.Errorf("%d containers run without a link, want 1", n)
	}

	s := &syncing{m: l.m, pod: l.w.pod} // there is no log
	l.m.cfg.ContainerLogsDir = t.TempDir()
	s.linkLog(t.Context(), "id", "a", "a/7.log")
	s.linkLog(t.Context(), "id", "a", "")
	if e, err := os.ReadDir(l.m.cfg.ContainerLogsDir); err != nil || len(e) > 0 {
		t.Errorf("links to nothing: %v, %v", e, err)
	}

	if _, err := New(Config{Runtime: l.rt, Images: present{}, PodLogsDir: "/logs", ContainerLogsDir: "links"}); err == nil ||
		!strings.Contains(err.Error(), `ContainerLogsDir is "links"`) {
		t.Errorf("a relative path: %v", err)
	}
}

func TestLogLinkNames(t *testing.T) {
	m := &Manager{cfg: Config{ContainerLogsDir: "/c"}}
	id := strings.Repeat("0123456789abcdef", 4)
	for _, tc := range []struct {
		pod, ns, name string
		want          string
		whole         bool
	}{
		{"web", "default", "app", "/c/web_default_app-" + id + ".log", true},
		{"web-0", "my-ns", "my-app", "/c/web-0_my-ns_my-app-" + id + ".log", true},
		{strings.Repeat("p", 250-2-2-1-64-1), "ns", "c", "/c/" + strings.Repeat("p", 180) + "_ns_c-" + id + ".log", true},
		{strings.Repeat("p", 253), "ns", "c", "/c/" + strings.Repeat("p", 251) + ".log", false},
		{strings.Repeat("p", 200), "ns", "c", "/c/" + strings.Repeat("p", 200) + "_ns_c-" + id[:45] + ".log", false},
		{"../../etc/x", "ns", "c", "", false},
		{"p", "ns/../..", "c", "", false},
	} {
		got := m.logLink(tc.pod, tc.ns, tc.name, id)
		if got != tc.want {
			t.Errorf("%.20s: %s, want %s", tc.pod, got, tc.want)
		}
		if got == "" {
			continue
		}
		if len(filepath.Base(got)) > 255 {
			t.Errorf("%.20s: %d bytes", tc.pod, len(filepath.Base(got)))
		}
		if whole := strings.HasSuffix(got, "-"+id+".log"); whole != tc.whole {
			t.Errorf("%.20s: the name has all of the ID: %v; want %v", tc.pod, whole, tc.whole)
		}
	}
}

// Instances of a container with a very long name share one link: it leads to
// the newest, and goes with that one.
func TestLogLinkOfALongName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged(t, nil, "a")
		l.w.pod.Name = strings.Repeat("p", 180)
		l.w.pod.Namespace = strings.Repeat("n", 63)
		l.sync()
		first := l.look().Newest("a")
		l.rt.Kill(first.ID)
		time.Sleep(10 * time.Minute)
		l.sync()
		link := filepath.Join(l.links, slices.Collect(maps.Keys(l.read()))[0])
		leads := func() string { target, _ := os.Readlink(link); return filepath.Base(target) }
		if got := leads(); len(l.read()) != 1 || got != "1.log" {
			t.Errorf("%d links, to %s; want one to 1.log", len(l.read()), got)
		}
		if err := l.m.removeContainer(t.Context(), l.w.pod.UID, first); err != nil {
			t.Error(err)
		}
		if got := leads(); got != "1.log" {
			t.Errorf("after the first is gone it leads to %q", got)
		}
	})
}

// A file where a link should be is somebody's, and so is a link to another agent's logs.
func TestLogLinkReplacesNothingElse(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file.log"), filepath.Join(dir, "link.log")
	put(t, file, "mine")
	if err := os.Symlink("/logs-of-another/x", link); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{file, link} {
		if err := symlink("/logs/target", at, "/logs"); err == nil {
			t.Errorf("%s was replaced", at)
		}
	}
	if b, err := os.ReadFile(file); string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
	if to, err := os.Readlink(link); to != "/logs-of-another/x" {
		t.Errorf("%q, %v", to, err)
	}
}
