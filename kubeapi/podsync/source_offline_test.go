package podsync_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodewright/nodewright/checkpoint"
	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/podsync"
	"github.com/nodewright/nodewright/kubeapi/seal"
)

// partial reports whether what was told last may lack pods.
func (r *running) partial() bool {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.snaps[len(r.snaps)-1].Partial
}

// What is remembered may not be all there is: it is told as partial, and again when the
// server has confirmed it.
func TestWhatIsRememberedIsPartial(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		m := &checkpointtest.Disk{}
		srv.Create(pod("a"))
		r := start(t, srv, podsync.SourceConfig{Memory: m})
		r.want(t, "a")
		if r.partial() {
			t.Error("the server's own answer is partial")
		}
		r.stop()
		srv.Fail(kubeapitest.Slow(8*time.Second, kubeapitest.Any))
		r = start(t, srv, podsync.SourceConfig{Memory: m})
		time.Sleep(2 * time.Second)
		if r.want(t, "a"); !r.partial() {
			t.Error("what is remembered alone is complete")
		}
		if _, told := r.Pod("ns", "a"); told {
			t.Error("the server is said to have told of what is remembered")
		}
		time.Sleep(time.Minute)
		if r.want(t, "a"); r.partial() {
			t.Error("still partial after the server's answer")
		}
		if _, told := r.Pod("ns", "a"); !told {
			t.Error("the server has told of no pod after its answer")
		}
		r.stop()
	})
}

// A status is no patch of what is remembered: the server may have more of the pod than that, and
// would keep it beside the new status.
func TestWhatIsRememberedIsNotPatched(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		m := &checkpointtest.Disk{}
		srv.Create(pod("a"))
		r := start(t, srv, podsync.SourceConfig{Memory: m})
		r.want(t, "a")
		r.stop()
		srv.Edit(&v1.Pod{}, "ns", "a", func(o runtime.Object) {
			o.(*v1.Pod).Status = status(t, `{"phase":"Running","containerStatuses":[{"name":"c","state":{"running":{}}}]}`)
		})
		srv.Fail(kubeapitest.Slow(8*time.Second, func(q kubeapitest.Request) bool { return q.Verb == "list" || q.Verb == "watch" }))
		r = start(t, srv, podsync.SourceConfig{Memory: m})
		time.Sleep(2 * time.Second)
		r.want(t, "a")
		c, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
		if err != nil {
			t.Fatal(err)
		}
		sink, err := podsync.NewSink(podsync.SinkConfig{Client: c.Once(), Pods: r.Source})
		if err != nil {
			t.Fatal(err)
		}
		if err := sink.Update(t.Context(), srv.Get(&v1.Pod{}, "ns", "a").(*v1.Pod), v1.PodStatus{Phase: v1.PodFailed}); err != nil {
			t.Fatal(err)
		}
		if st := srv.Get(&v1.Pod{}, "ns", "a").(*v1.Pod).Status; st.Phase != v1.PodFailed || len(st.ContainerStatuses) > 0 {
			t.Errorf("status %+v", st)
		}
		r.stop()
	})
}

// What has the server take the end of a pod has it remembered, whatever the watch says: at a start
// without the server it is over.
func TestEndIsRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		m := &checkpointtest.Disk{}
		srv.Create(pod("a"))
		srv.Create(pod("b"))
		r := start(t, srv, podsync.SourceConfig{Memory: m})
		r.want(t, "a b")
		srv.Silence()
		c, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
		if err != nil {
			t.Fatal(err)
		}
		sink, err := podsync.NewSink(podsync.SinkConfig{Client: c.Once(), Pods: r.Source, Ended: r.Ended})
		if err != nil {
			t.Fatal(err)
		}
		update := func(name string, phase v1.PodPhase) (took time.Duration) {
			began := time.Now()
			if err := sink.Update(t.Context(), srv.Get(&v1.Pod{}, "ns", name).(*v1.Pod), v1.PodStatus{Phase: phase}); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		update("a", v1.PodRunning)
		if took := update("a", v1.PodSucceeded); took > 0 {
			t.Errorf("a status waits %v for a disk that is well", took)
		}
		kept, err := m.Read("pod-" + string(srv.Get(&v1.Pod{}, "ns", "a").(*v1.Pod).UID))
		if err != nil || !strings.Contains(string(kept), `"Succeeded"`) {
			t.Errorf("%v, kept is %s", err, kept)
		}
		if p, _ := r.Pod("ns", "a"); p.Status.Phase != v1.PodPending {
			t.Errorf("the watch has told of phase %s", p.Status.Phase)
		}
		ended := make(chan struct{})
		m.Fault(checkpointtest.Hang(ended, "write"))
		if took := update("b", v1.PodFailed); took != time.Second {
			t.Errorf("a status waits %v for a disk that hangs", took)
		}
		close(ended)
		r.stop()
		srv.Fail(kubeapitest.Slow(8*time.Second, kubeapitest.Any))
		r = start(t, srv, podsync.SourceConfig{Memory: m})
		time.Sleep(2 * time.Second)
		r.want(t, "a b")
		r.mu.Lock()
		for i, want := range []v1.PodPhase{v1.PodSucceeded, v1.PodFailed} {
			if p := r.snaps[len(r.snaps)-1].Pods[i]; p.Status.Phase != want {
				t.Errorf("%s is remembered as %q, want %s", p.Name, p.Status.Phase, want)
			}
		}
		r.mu.Unlock()
		r.stop()
	})
}

// The memory did not have a pod that runs, as a disk had failed, and the server has what the pod
// refers to later than the pod: until that is told as well, what is told is partial. The same
// holds if the pod is deleted meanwhile.
func TestWhatWaitsInTheFirstAnswer(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
			m := &checkpointtest.Disk{}
			srv.Create(pod("a"))
			r := start(t, srv, podsync.SourceConfig{Memory: m})
			r.want(t, "a")
			r.stop()
			srv.Create(configMap("c", "1"))
			srv.Create(pod("b", "configmap/c"))
			srv.Fail(kubeapitest.Slow(8*time.Second, kubeapitest.Any))
			r = start(t, srv, podsync.SourceConfig{Memory: m})
			time.Sleep(8*time.Second + time.Millisecond)
			if r.want(t, "a"); !r.partial() {
				t.Error("complete without a pod of the server")
			}
			want := "a b"
			if deleted {
				srv.Remove(kubeapi.Pods, "ns", "b")
				want = "a"
			}
			time.Sleep(3 * time.Second) // gatherTime is over, and the ConfigMap not there
			if r.want(t, want); r.partial() {
				t.Error("still partial with all pods of the server")
			}
			srv.Create(pod("new", "configmap/c2"))
			time.Sleep(time.Second)
			if r.partial() {
				t.Error("partial for the sake of a pod that is new")
			}
			r.stop()
		})
	}
}

// uids are those of the pods that were told of last, by name.
func (r *running) uids() map[string]string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]string{}
	for _, p := range r.snaps[len(r.snaps)-1].Pods {
		out[p.Name] = string(p.UID)
	}
	return out
}

// A reboot with no network starts the same pods; on return everything is
// merged.
func TestARestartOffline(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		m := &checkpointtest.Disk{}
		srv.Create(configMap("c", "1"))
		srv.Create(secret("s", "1"))
		srv.Create(pod("a", "configmap/c", "secret/s"))
		srv.Create(pod("b"))
		srv.Create(pod("gone"))
		r := start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
		r.want(t, "a b c=1 gone s=1")
		before := r.uids()
		r.stop()
		srv.Stop()
		r = start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
		r.want(t, "a b c=1 gone s=1") // at once: the server is known not to be there
		if after := r.uids(); after["a"] != before["a"] || r.Synced() {
			t.Errorf("UIDs were %v, are %v", before, after)
		}
		time.Sleep(time.Hour)
		srv.Remove(kubeapi.Pods, "ns", "gone")
		srv.Delete(kubeapi.Pods, "ns", "b")
		srv.Put(configMap("c", "2"))
		srv.Start()
		time.Sleep(16 * time.Second)
		r.want(t, "a b- c=2 s=1")
		if after := r.uids(); after["a"] != before["a"] {
			t.Errorf("UIDs were %v, are %v", before, after)
		}
		r.stop()
		// What is gone is not remembered.
		srv.Stop()
		r = start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
		r.want(t, "a b- c=2 s=1")
		r.stop()
	})
}

func TestAServerThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		m := &checkpointtest.Disk{}
		srv.Create(pod("a"))
		r := start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
		r.want(t, "a")
		r.stop()
		srv.Hang()
		r = start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
		time.Sleep(time.Second - time.Millisecond)
		r.want(t, "nothing")
		time.Sleep(time.Millisecond)
		r.want(t, "a")
		r.stop()
		// Without a memory nothing is said: nothing is known.
		r = start(t, srv, podsync.SourceConfig{})
		time.Sleep(time.Hour)
		r.want(t, "nothing")
		r.stop()
	})
}

func TestAFastServerIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		m := &checkpointtest.Disk{}
		srv.Create(configMap("c", "1"))
		srv.Create(pod("a", "configmap/c"))
		r := start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
		r.want(t, "a c=1")
		r.stop()
		srv.Remove(kubeapi.Pods, "ns", "a")
		srv.Create(pod("b"))
		r = start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
		r.want(t, "b")
		if r.count() != 1 {
			t.Error("what was remembered was told although the server answered")
		}
		r.stop()
	})
}

// A wiped store is no order to end everything at once.
func TestAWipedStore(t *testing.T) {
	for _, restart := range []bool{false, true} {
		bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
			m := &checkpointtest.Disk{}
			srv.Create(pod("a"))
			srv.Create(pod("b"))
			srv.Create(pod("c"))
			r := start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
			r.want(t, "a b c")
			before := r.uids()
			backup := srv.Get(&v1.Pod{}, "ns", "a").(*v1.Pod)
			if restart {
				r.stop()
			}
			srv.Stop()
			srv.Wipe()
			srv.Start()
			if restart {
				r = start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
			}
			time.Sleep(time.Minute)
			r.want(t, "a b c")
			srv.Create(backup)   // somebody repairs it
			srv.Create(pod("b")) // and somebody makes it anew
			time.Sleep(time.Second)
			r.want(t, "a b c")
			after := r.uids()
			if after["a"] != before["a"] || after["b"] == before["b"] || after["c"] != before["c"] {
				t.Errorf("UIDs were %v, are %v", before, after)
			}
			time.Sleep(5 * time.Minute)
			r.want(t, "a b")
			r.stop()
		})
	}
}

// An empty answer of a server that has seen all that the node has is the truth.
func TestAnEmptyAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		m := &checkpointtest.Disk{}
		srv.Create(pod("a"))
		r := start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
		r.want(t, "a")
		r.stop()
		srv.Remove(kubeapi.Pods, "ns", "a")
		r = start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
		r.want(t, "")
		r.stop()
	})
}

func TestADeletionIsNotTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		srv.Create(pod("a"))
		r := start(t, srv, podsync.SourceConfig{})
		defer r.stop()
		r.want(t, "a")
		backup := srv.Get(&v1.Pod{}, "ns", "a").(*v1.Pod)
		srv.Delete(kubeapi.Pods, "ns", "a")
		r.want(t, "a-")
		srv.Put(backup)
		r.want(t, "a-")
	})
}

// The server's echo of the node's own statuses is not worth a write each.
func TestStatusesAreWrittenNowAndThen(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		m := &checkpointtest.Disk{}
		srv.Create(pod("a"))
		r := start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
		r.want(t, "a")
		for i := range 60 {
			p := srv.Get(&v1.Pod{}, "ns", "a").(*v1.Pod)
			p.Status.Message = strings.Repeat("x", i+1)
			srv.Put(p)
			time.Sleep(2 * time.Second)
		}
		if n := m.Count("write"); n > 4 {
			t.Errorf("%d writes in two minutes", n)
		}
		r.stop()
		if !strings.Contains(stored(m), strings.Repeat("x", 60)) {
			t.Error("the last status was not kept")
		}
	})
}

// That a pod has come to run is written at once only where the record has to say so: it
// may not run again, or has a time to end. Else it is written within a minute.
func TestABeginIsWrittenNowAndThen(t *testing.T) {
	deadline := int64(60)
	for name, tc := range map[string]struct {
		spec func(*v1.PodSpec)
		now  bool
	}{
		"always":          {func(s *v1.PodSpec) { s.RestartPolicy = v1.RestartPolicyAlways }, false},
		"on failure":      {func(s *v1.PodSpec) { s.RestartPolicy = v1.RestartPolicyOnFailure }, true},
		"never":           {func(s *v1.PodSpec) { s.RestartPolicy = v1.RestartPolicyNever }, true},
		"a deadline":      {func(s *v1.PodSpec) { s.RestartPolicy, s.ActiveDeadlineSeconds = v1.RestartPolicyAlways, &deadline }, true},
		"init containers": {func(s *v1.PodSpec) { s.RestartPolicy, s.InitContainers = v1.RestartPolicyAlways, s.Containers }, true},
	} {
		bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
			m := &checkpointtest.Disk{}
			p := pod("a")
			tc.spec(&p.Spec)
			p.Status.Phase = v1.PodPending
			srv.Create(p)
			r := start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
			defer r.stop()
			r.want(t, "a")
			before := m.Count("write")
			p = srv.Get(&v1.Pod{}, "ns", "a").(*v1.Pod)
			p.Status.Phase = v1.PodRunning
			srv.Put(p)
			time.Sleep(time.Second)
			if now := m.Count("write") > before; now != tc.now {
				t.Errorf("%s: written at once: %v, want %v", name, now, tc.now)
			}
			time.Sleep(time.Minute)
			if n := m.Count("write") - before; n != 1 || !strings.Contains(stored(m), "Running") {
				t.Errorf("%s: %d writes after a minute, and there is %v", name, n, m)
			}
			p.Status.Phase = v1.PodFailed
			srv.Put(p)
			time.Sleep(time.Second)
			if n := m.Count("write") - before; n != 2 {
				t.Errorf("%s: %d writes when it has ended, want 2", name, n)
			}
		})
	}
}

func TestAMemoryThatFails(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		m := &checkpointtest.Disk{}
		m.Fault(checkpointtest.Fail(errors.New("no space left")))
		srv.Create(pod("a"))
		r := start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
		r.want(t, "a")
		m.Fault(nil)
		time.Sleep(31 * time.Second)
		if m.Count("write") == 0 {
			t.Error("it was not tried again")
		}
		r.stop()
		for key := range m.Values() {
			m.Put(key, "{}") // another object, or none
		}
		m.Put("configmap-x", "{")
		m.Put("pod-y", "")
		m.Put("somebody-elses", "")
		r = start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
		r.want(t, "a")
		r.stop()
		if _, ok := m.Values()["pod-y"]; ok || len(m.Values()) != 2 {
			t.Errorf("there is %s", stored(m))
		}
	})
}

// changes returns how many writes and deletions were tried since the last call.
func changes(d *checkpointtest.Disk) (n int) {
	for _, call := range d.Calls() {
		if strings.HasPrefix(call, "write ") || strings.HasPrefix(call, "delete ") {
			n++
		}
	}
	return n
}

// A memory that fails is tried again for what has changed, and for all of it now and then: not
// for all with each change of one.
func TestAMemoryThatFailsIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		m := &checkpointtest.Disk{}
		srv.Create(pod("gone"))
		r := start(t, srv, podsync.SourceConfig{Memory: m})
		defer r.stop()
		r.want(t, "gone")
		m.Fault(checkpointtest.Fail(errors.New("no space left")))
		srv.Remove(kubeapi.Pods, "ns", "gone")
		for i := range 10 {
			srv.Create(pod(fmt.Sprint("p", i)))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		m.Calls()
		for i := range 20 {
			p := srv.Get(&v1.Pod{}, "ns", "p0").(*v1.Pod)
			p.Labels = map[string]string{"n": fmt.Sprint(i)}
			srv.Put(p)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		n := changes(m)
		if n != 20 {
			t.Errorf("%d tries for 20 changes of a pod", n)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if n += changes(m); n < 31 || n > 45 {
			t.Errorf("%d tries after half a minute more", n)
		}
		m.Fault(nil)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if len(m.Values()) != 10 {
			t.Errorf("there are %d values, want 10", len(m.Values()))
		}
	})
}

func TestSecretsAreEncrypted(t *testing.T) {
	dir := t.TempDir()
	key, other := filepath.Join(dir, "key"), filepath.Join(dir, "other")
	write := func(file, text string, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
	}
	write(key, strings.Repeat("0f", 32)+"\n", 0o600)
	write(other, strings.Repeat("k", 32), 0o400)
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		m := &checkpointtest.Disk{}
		srv.Create(secret("s", "hidden"))
		srv.Create(configMap("c", "1"))
		srv.Create(pod("a", "secret/s", "configmap/c"))
		remember := func(file string) {
			r := start(t, srv, podsync.SourceConfig{Memory: m, Seal: sealer(file)})
			time.Sleep(time.Minute)
			r.want(t, "a c=1 s=hidden")
			r.stop()
		}
		offline := func(file, want string) {
			t.Helper()
			srv.Stop()
			defer srv.Start()
			r := start(t, srv, podsync.SourceConfig{Memory: m, Seal: sealer(file)})
			time.Sleep(time.Second)
			r.want(t, want)
			r.stop()
		}
		plain := "aGlkZGVu" // hidden, in base64
		remember("clear")
		if !strings.Contains(stored(m), plain) {
			t.Error("without a key it is not kept as it is")
		}
		remember(key)
		if strings.Contains(stored(m), plain) || strings.Contains(stored(m), "hidden") {
			t.Error("it is not encrypted")
		}
		offline(key, "a c=1 s=hidden")
		offline("", "a c=1")
		offline("clear", "a c=1")
		offline(other, "a c=1")
		offline(filepath.Join(dir, "missing"), "a c=1")
		offline(key, "a c=1 s=hidden") // nothing was lost meanwhile
		// A value is good under its own name alone.
		for k, v := range m.Values() {
			if strings.HasPrefix(k, "secret-") {
				m.Put("secret-0", v)
				m.Put(k, v[:len(v)-1]+string(v[len(v)-1]^1))
			}
		}
		offline(key, "a c=1")
		remember(other)
		offline(other, "a c=1 s=hidden")
		// A key that others may read is none.
		if err := os.Chmod(other, 0o640); err != nil {
			t.Fatal(err)
		}
		offline(other, "a c=1")
		remember(other)
	})
}

// sealer has the key of a file; "clear" is none, and nil what cannot be used.
func sealer(file string) *seal.Sealer {
	if file == "clear" {
		return seal.Clear()
	}
	s, _ := seal.Open(file)
	return s
}

// Without a key nothing secret is kept, and what was kept in the clear is good for
// one start, and gone once the server has answered.
func TestNoSecretIsKeptWithoutAKey(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		m := &checkpointtest.Disk{}
		srv.Create(secret("s", "hidden"))
		srv.Create(pod("a", "secret/s"))
		plain := "aGlkZGVu" // hidden, in base64
		for _, tc := range []struct {
			seal *seal.Sealer
			kept bool
		}{{nil, false}, {seal.Clear(), true}, {nil, false}} {
			r := start(t, srv, podsync.SourceConfig{Memory: m, Seal: tc.seal})
			time.Sleep(time.Minute)
			r.want(t, "a s=hidden")
			r.stop()
			if strings.Contains(stored(m), plain) != tc.kept {
				t.Errorf("with %+v: kept %v", tc.seal, m)
			}
		}
	})
}

// A key that is lost costs one line in the log, however many Secrets there were.
func TestALostKeyIsToldOnce(t *testing.T) {
	dir := t.TempDir()
	key := func() *seal.Sealer {
		s, err := seal.Machine(filepath.Join(dir, "key"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		m := &checkpointtest.Disk{}
		srv.Create(secret("s", "1"))
		srv.Create(secret("s2", "2"))
		srv.Create(pod("a", "secret/s", "secret/s2"))
		r := start(t, srv, podsync.SourceConfig{Memory: m, Seal: key()})
		r.want(t, "a s2=2 s=1")
		r.stop()
		if err := os.Remove(filepath.Join(dir, "key")); err != nil {
			t.Fatal(err)
		}
		for _, want := range []int{1, 0} {
			core, logs := observer.New(zapcore.WarnLevel)
			r = start(t, srv, podsync.SourceConfig{Memory: m, Seal: key(), Log: zap.New(core)})
			r.want(t, "a s2=2 s=1")
			r.stop()
			if n := logs.Len(); n != want {
				t.Errorf("%d lines, want %d: %+v", n, want, logs.All())
			}
		}
	})
}

// With real files, which are for their owner alone.
func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "api")
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		store, err := checkpoint.Open(checkpoint.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		srv.Create(secret("s", "1"))
		srv.Create(pod("a", "secret/s"))
		r := start(t, srv, podsync.SourceConfig{Memory: store, Seal: seal.Clear()})
		r.want(t, "a s=1")
		r.stop()
		files, err := os.ReadDir(dir)
		if err != nil || len(files) != 2 {
			t.Fatalf("%d files (%v)", len(files), err)
		}
		for _, f := range files {
			if st, err := f.Info(); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v (%v)", f.Name(), st.Mode(), err)
			}
		}
		srv.Stop()
		r = start(t, srv, podsync.SourceConfig{Memory: store, Seal: seal.Clear()})
		time.Sleep(time.Second)
		r.want(t, "a s=1")
		r.stop()
	})
}

func TestSourceConfig(t *testing.T) {
	_, err := podsync.NewSource(podsync.SourceConfig{Seal: seal.Clear()})
	for _, want := range []string{"Client", "NodeName", "Seal"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s in it", err, want)
		}
	}
}
