package resources_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podspec"
)

func own(uid string) *v1.Pod {
	no := false
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: uid, UID: types.UID(uid)}, Spec: v1.PodSpec{HostUsers: &no}}
}

// life is one run of an agent with the part.
type life struct {
	*resources.UserNamespaces
	host *agenttest.Host
	stop func()
}

func usernsStart(t *testing.T, store part.Store) life {
	t.Helper()
	p, err := resources.NewUserNamespaces(resources.UserNamespacesConfig{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	l := life{UserNamespaces: p, host: agenttest.NewHost(t)}
	if err := p.Join(l.host); err != nil {
		t.Fatal(err)
	}
	l.stop = testrun.Start(t, p.Run)
	return l
}

// first is the first ID that the runtime is told of, 0 if none.
func (l life) first(pod *v1.Pod) uint32 {
	var in podspec.Input
	if err := l.Compile(pod, &in); err != nil || in.UserNamespace == nil {
		return 0
	}
	return in.UserNamespace.First
}

func (l life) prepare(t *testing.T, uid string) uint32 {
	t.Helper()
	if err := l.Prepare(t.Context(), own(uid), nil); err != nil {
		t.Fatalf("%s: %v", uid, err)
	}
	return l.first(own(uid))
}

func usernsKnows(uids ...types.UID) func(types.UID) bool {
	return func(uid types.UID) bool { return slices.Contains(uids, uid) }
}

func TestRangesOverRestarts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "userns")
	l := usernsStart(t, part.OpenStore(dir, nil))
	if err := l.Prepare(t.Context(), &v1.Pod{}, nil); err != nil || l.first(&v1.Pod{}) != 0 {
		t.Errorf("a pod that shares the node's IDs got some: %v", err)
	}
	if err := l.Sweep(t.Context(), usernsKnows()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a directory was made for nothing: %v", err)
	}
	if got := l.first(own("a")); got != 0 {
		t.Errorf("told of %d before it was set aside", got)
	}
	for i, uid := range []string{"a", "b", "c", "a"} {
		if got, want := l.prepare(t, uid), uint32(i%3+1)*65536; got != want {
			t.Errorf("%s: %d, want %d", uid, got, want)
		}
	}
	if err := l.Sweep(t.Context(), usernsKnows("a", "c")); err != nil {
		t.Error(err)
	}
	l.stop()

	l = usernsStart(t, part.OpenStore(dir, nil))
	for _, p := range []struct {
		uid  string
		want uint32
	}{{"c", 3 * 65536}, {"a", 65536}, {"d", 2 * 65536}} {
		if got := l.prepare(t, p.uid); got != p.want {
			t.Errorf("%s: %d, want %d", p.uid, got, p.want)
		}
	}
}

// A damaged value is made up for by its key: its pod, which may run, keeps the range,
// and no other gets it, however often the agent is started again.
func TestDamagedValues(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, dir string){
		"garbage": func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "a.ids-1"), []byte("garbage"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"empty": func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "a.ids-1"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"odd": func(t *testing.T, dir string) {
			if err := part.OpenStore(dir, nil).Write("a.ids-1", []byte(`{"first":7,"length":65536}`)); err != nil {
				t.Fatal(err)
			}
		},
		"of another": func(t *testing.T, dir string) {
			if err := part.OpenStore(dir, nil).Write("a.ids-1", []byte(`{"first":131072,"length":65536}`)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := usernsStart(t, part.OpenStore(dir, nil))
			l.prepare(t, "a")
			l.prepare(t, "b")
			l.stop()
			damage(t, dir)
			for i := range 3 {
				l = usernsStart(t, part.OpenStore(dir, nil))
				for _, p := range []struct {
					uid  string
					want uint32
				}{{"new", 3 * 65536}, {"b", 2 * 65536}, {"a", 65536}} {
					if got := l.prepare(t, p.uid); got != p.want {
						t.Errorf("life %d: %s: %d, want %d", i, p.uid, got, p.want)
					}
				}
				l.stop()
			}
		})
	}
}

// A damaged value could not be written anew: it is at the next sweep.
func TestDamagedValueOnADiskThatIsFull(t *testing.T) {
	d := &checkpointtest.Disk{}
	d.Put("a.ids-1", "garbage")
	full := true
	d.Fault(func(call, _ string) error {
		if call != "write" || !full {
			return nil
		}
		full = false
		return errors.New("no space left on device")
	})
	l := usernsStart(t, d)
	if got := l.prepare(t, "b"); got != 2*65536 {
		t.Errorf("b: %d", got)
	}
	if err := l.Sweep(t.Context(), usernsKnows("a", "b")); err != nil {
		t.Error(err)
	}
	if got := d.Value("a.ids-1"); got != `{"first":65536,"length":65536}` {
		t.Errorf("kept %s", got)
	}
}

// Of a damaged value that was kept under the UID alone nothing is known but that its
// pod has a range: nobody else gets it until that pod is gone.
func TestLostRanges(t *testing.T) {
	const top = 1<<32 - 65536
	dir := t.TempDir()
	store := part.OpenStore(dir, nil)
	for key, value := range map[string]string{"a": `{"first":65536,"length":65536}`, "b": `{"first":131072,"length":65536}`, "odd": `{"first":7}`} {
		if err := store.Write(key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		l := usernsStart(t, part.OpenStore(dir, nil))
		for _, p := range []struct {
			uid  string
			want uint32
		}{{"new", top}, {"b", 2 * 65536}, {"a", top - 65536}} {
			if got := l.prepare(t, p.uid); got != p.want {
				t.Errorf("life %d: %s: %d, want %d", i, p.uid, got, p.want)
			}
		}
		if err := l.Sweep(t.Context(), usernsKnows("a", "b", "new", "odd")); err != nil {
			t.Error(err)
		}
		l.stop()
	}
	l := usernsStart(t, part.OpenStore(dir, nil))
	if err := l.Sweep(t.Context(), usernsKnows("b", "new", "odd")); err != nil {
		t.Error(err)
	}
	if got := l.prepare(t, "c"); got != top-65536 {
		t.Errorf("c: %d, while the range of a pod is lost", got)
	}
	if err := l.Sweep(t.Context(), usernsKnows("b", "new", "c")); err != nil {
		t.Error(err)
	}
	if got := l.prepare(t, "d"); got != 65536 {
		t.Errorf("d: %d, when both are gone", got)
	}
	if keys, err := part.OpenStore(dir, nil).Keys(); err != nil || !slices.Equal(keys, []string{"b", "c.ids-65534", "d.ids-1", "new.ids-65535"}) {
		t.Errorf("%q, %v", keys, err)
	}
}

// A write that hangs holds up its own pod, for as long as that wants to wait. It
// is made once.
func TestWriteHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &checkpointtest.Disk{}
		l := usernsStart(t, d)
		hang := make(chan struct{})
		d.Fault(checkpointtest.Hang(hang, "a.ids-1"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- l.Prepare(ctx, own("a"), nil) }()
		synctest.Wait()
		if got := l.prepare(t, "b"); got != 2*65536 {
			t.Errorf("the other pod got %d", got)
		}
		if got := l.first(own("a")); got != 0 {
			t.Errorf("told of %d before it was kept", got)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		go func() { done <- l.Prepare(t.Context(), own("a"), nil) }()
		synctest.Wait()
		close(hang)
		if err := <-done; err != nil || l.first(own("a")) != 65536 {
			t.Errorf("range from %d, %v", l.first(own("a")), err)
		}
		if got := strings.Join(d.Calls(), ", "); got != "keys, write a.ids-1, write b.ids-2" {
			t.Errorf("asked the disk to %s", got)
		}
		d.Fault(nil)
		if got := l.host.Calls(); len(got) != 0 {
			t.Errorf("asked the host for %q", got)
		}
	})
}

// On a disk that does not answer at all, hooks end with their contexts.
func TestUsernsDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &agenttest.HungStore{}
		l := usernsStart(t, store)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 3)
		for _, uid := range []string{"a", "b"} {
			go func() { done <- l.Prepare(ctx, own(uid), nil) }()
		}
		go func() { done <- l.Sweep(ctx, usernsKnows()) }()
		synctest.Wait()
		if got := l.first(own("a")); got != 0 {
			t.Errorf("told of %d", got)
		}
		if err := l.Prepare(t.Context(), &v1.Pod{}, nil); err != nil {
			t.Errorf("a pod that shares the node's IDs: %v", err)
		}
		cancel()
		for range 3 {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		}
		if store.Calls() != 1 {
			t.Errorf("%d calls hang, want 1", store.Calls())
		}
		store.Release()
		if got := l.prepare(t, "a"); got != 65536 {
			t.Errorf("range from %d", got)
		}
	})
}

// A write that fails fails the sync with a reason, and is made again.
func TestUsernsWriteFails(t *testing.T) {
	d := &checkpointtest.Disk{}
	l := usernsStart(t, d)
	d.Fault(checkpointtest.Fail(errors.New("no space left on device"), "a.ids-1"))
	err := l.Prepare(t.Context(), own("a"), nil)
	var named interface{ Reason() string }
	if !errors.As(err, &named) || named.Reason() != podlife.SandboxFailed.Reason() {
		t.Errorf("error %v", err)
	}
	want := []string{"event default/a Warning FailedCreatePodSandBox: Failed to create pod sandbox: no space left on device"}
	if got := l.host.Calls(); !slices.Equal(got, want) {
		t.Errorf("asked the host for %q, want %q", got, want)
	}
	l.prepare(t, "b")
	d.Fault(nil)
	if got := l.prepare(t, "a"); got != 65536 {
		t.Errorf("range from %d", got)
	}
}

// What is kept cannot be read: nobody has a range until it can.
func TestReadFails(t *testing.T) {
	d := &checkpointtest.Disk{}
	d.Put("a.ids-1", `{"first":65536,"length":65536}`)
	d.Fault(checkpointtest.Fail(errors.New("input/output error"), "a.ids-1"))
	l := usernsStart(t, d)
	if err := l.Prepare(t.Context(), own("b"), nil); err == nil || !strings.Contains(err.Error(), "input/output error") {
		t.Errorf("error %v", err)
	}
	if err := l.Sweep(t.Context(), usernsKnows()); err == nil {
		t.Error("swept")
	}
	d.Fault(nil)
	if got := l.prepare(t, "b"); got != 2*65536 {
		t.Errorf("range from %d", got)
	}
}

// A pod that comes back while its range is given back gets another one when
// that is done.
func TestUsernsPodComesBackDuringTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &checkpointtest.Disk{}
		l := usernsStart(t, d)
		l.prepare(t, "a")
		l.prepare(t, "b")
		hang := make(chan struct{})
		d.Fault(checkpointtest.Hang(hang, "a.ids-1"))
		done := make(chan error, 2)
		go func() { done <- l.Sweep(t.Context(), usernsKnows("b")) }()
		synctest.Wait()
		go func() { done <- l.Prepare(t.Context(), own("a"), nil) }()
		synctest.Wait()
		if got := l.prepare(t, "c"); got != 3*65536 {
			t.Errorf("c: %d, while the range of a is still taken", got)
		}
		close(hang)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if got := d.Value("a.ids-1"); got != `{"first":65536,"length":65536}` || l.first(own("a")) != 65536 {
			t.Errorf("kept %s, told of %d", got, l.first(own("a")))
		}
	})
}

// A range that cannot be given back stays taken, and goes with the next sweep.
func TestUsernsDeleteFails(t *testing.T) {
	d := &checkpointtest.Disk{}
	l := usernsStart(t, d)
	l.prepare(t, "a")
	d.Fault(checkpointtest.Fail(errors.New("read-only file system"), "a.ids-1"))
	if err := l.Sweep(t.Context(), usernsKnows()); err != nil {
		t.Error(err)
	}
	if got := l.prepare(t, "b"); got != 2*65536 {
		t.Errorf("b: %d", got)
	}
	d.Fault(nil)
	if err := l.Sweep(t.Context(), usernsKnows("b")); err != nil {
		t.Error(err)
	}
	if got := l.prepare(t, "c"); got != 65536 {
		t.Errorf("c: %d", got)
	}
}

func TestConfigJoinAndEnd(t *testing.T) {
	if _, err := resources.NewUserNamespaces(resources.UserNamespacesConfig{}); err == nil {
		t.Error("no store, and no error")
	}
	l := usernsStart(t, &checkpointtest.Disk{})
	if err := l.Join(l.host); err == nil {
		t.Error("joined twice")
	}
	l.stop()
	if err := l.Prepare(t.Context(), own("a"), nil); err == nil {
		t.Error("set aside after Run has ended")
	}
}
