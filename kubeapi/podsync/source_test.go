package podsync_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/podsync"
	"github.com/nodewright/nodewright/kubeapi/seal"
	"github.com/nodewright/nodewright/podmgr"
)

// pod makes one that is bound to the node. needs are "configmap/x" and
// "secret/x".
func pod(name string, needs ...string) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}},
		Spec:       v1.PodSpec{NodeName: "edge-1", Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}
	for _, n := range needs {
		kind, name, _ := strings.Cut(n, "/")
		v := v1.Volume{Name: name}
		if kind == "configmap" {
			v.ConfigMap = &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}
		} else {
			v.Secret = &v1.SecretVolumeSource{SecretName: name}
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
	return p
}

func configMap(name, value string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"k": value}}
}

func secret(name, value string) *v1.Secret {
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string][]byte{"k": []byte(value)}}
}

// stored is all that a disk has.
func stored(d *checkpointtest.Disk) string { return fmt.Sprint(d.Values()) }

// running is a source with what it delivered.
type running struct {
	*podsync.Source
	stop func()

	mu    sync.Mutex
	snaps []podmgr.Snapshot
}

// start runs a source in the test's bubble.
func start(t *testing.T, srv *kubeapitest.Server, cfg podsync.SourceConfig) *running {
	t.Helper()
	c, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Client, cfg.NodeName = c, "edge-1"
	r := &running{}
	if r.Source, err = podsync.NewSource(cfg); err != nil {
		t.Fatal(err)
	}
	stop := testrun.Start(t, func(ctx context.Context) error {
		return r.Run(ctx, func(s podmgr.Snapshot) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.snaps = append(r.snaps, s)
		})
	})
	r.stop = func() { stop(); synctest.Wait() }
	return r
}

// says is the last state in words: pods, ConfigMaps and Secrets by name, a pod
// that is to be deleted with a minus.
func (r *running) says() string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.snaps) == 0 {
		return "nothing"
	}
	var out []string
	s := r.snaps[len(r.snaps)-1]
	for _, p := range s.Pods {
		name := p.Name
		if p.DeletionTimestamp != nil {
			name += "-"
		}
		out = append(out, name)
	}
	for _, c := range s.ConfigMaps {
		out = append(out, c.Name+"="+c.Data["k"])
	}
	for _, c := range s.Secrets {
		out = append(out, c.Name+"="+string(c.Data["k"]))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (r *running) want(t *testing.T, want string) {
	t.Helper()
	if got := r.says(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func (r *running) count() int {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.snaps)
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, fn func(t *testing.T, srv *kubeapitest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { fn(t, kubeapitest.New()) })
}

func TestPods(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		r := start(t, srv, podsync.SourceConfig{})
		defer r.stop()
		r.want(t, "") // an empty list is a state
		srv.Create(pod("a"))
		r.want(t, "a")
		elsewhere := pod("x")
		elsewhere.Spec.NodeName = "edge-2"
		srv.Create(elsewhere)
		srv.Create(pod("b"))
		other := pod("a")
		other.Namespace = "other"
		srv.Create(other)
		r.want(t, "a a b")
		srv.Delete(kubeapi.Pods, "ns", "a")
		r.want(t, "a a- b")
		srv.Remove(kubeapi.Pods, "ns", "a")
		r.want(t, "a b")
		if p, ok := r.Pod("ns", "b"); !ok || p.ManagedFields != nil {
			t.Errorf("got %v", p)
		}
		srv.Remove(kubeapi.Pods, "ns", "b")
		srv.Create(pod("b")) // another UID
		srv.Remove(kubeapi.Pods, "other", "a")
		r.want(t, "b")
		n := r.count()
		time.Sleep(time.Hour)
		if r.count() != n {
			t.Error("nothing changed, and it is told")
		}
	})
}

func TestWhatPodsReferTo(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		srv.Create(configMap("c", "1"))
		srv.Create(secret("s", "1"))
		srv.Create(configMap("nobodys", "1"))
		r := start(t, srv, podsync.SourceConfig{})
		defer r.stop()
		r.want(t, "")
		srv.Create(pod("a", "configmap/c", "secret/s", "secret/absent"))
		r.want(t, "a c=1 s=1")
		if n := r.count(); n != 2 {
			t.Errorf("%d states: the pod was told of before what it refers to", n)
		}
		srv.Put(configMap("c", "2"))
		srv.Create(secret("absent", "3"))
		r.want(t, "a absent=3 c=2 s=1")
		srv.Create(pod("b", "configmap/c"))
		r.want(t, "a absent=3 b c=2 s=1")
		if n := srv.Count("watch", kubeapi.ConfigMaps); n != 1 {
			t.Errorf("%d watches for two pods", n)
		}
		srv.Remove(kubeapi.Pods, "ns", "a")
		r.want(t, "b c=2")
		if n := srv.Watches(kubeapi.Secrets); n != 0 {
			t.Errorf("%d watches of nobody's", n)
		}
		srv.Remove(kubeapi.ConfigMaps, "ns", "c")
		r.want(t, "b")
		srv.Remove(kubeapi.Pods, "ns", "b")
		r.want(t, "")
		if n := srv.Watches(kubeapi.ConfigMaps); n != 0 {
			t.Errorf("%d watches of nobody's", n)
		}
	})
}

func TestImmutableObjectsAreNotWatched(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		yes := true
		c, s := configMap("c", "1"), secret("s", "1")
		c.Immutable, s.Immutable = &yes, &yes
		srv.Create(c)
		srv.Create(s)
		srv.Create(pod("a", "configmap/c", "secret/s"))
		r := start(t, srv, podsync.SourceConfig{})
		defer r.stop()
		r.want(t, "a c=1 s=1")
		if n := srv.Watches(kubeapi.ConfigMaps) + srv.Watches(kubeapi.Secrets); n != 0 {
			t.Errorf("%d watches", n)
		}
		srv.Create(pod("b", "configmap/c"))
		r.want(t, "a b c=1 s=1")
		srv.EndWatches()
		r.want(t, "a b c=1 s=1")
	})
}

func TestPodsThatAreOverNeedNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		srv.Create(configMap("c", "1"))
		p := pod("a", "configmap/c")
		srv.Create(p)
		mirror := pod("m", "configmap/c2")
		mirror.Annotations = map[string]string{"kubernetes.io/config.mirror": "h"}
		srv.Create(mirror)
		r := start(t, srv, podsync.SourceConfig{})
		defer r.stop()
		r.want(t, "a c=1 m")
		if n := srv.Watches(kubeapi.ConfigMaps); n != 1 {
			t.Errorf("%d watches", n)
		}
		p = srv.Get(&v1.Pod{}, "ns", "a").(*v1.Pod)
		p.Status.Phase = v1.PodSucceeded
		srv.Put(p)
		r.want(t, "a m")
		if n := srv.Watches(kubeapi.ConfigMaps); n != 0 {
			t.Errorf("%d watches", n)
		}
	})
}

// A node may not read what a new pod refers to before its authorizer has heard
// of the pod.
func TestAPodWaitsForWhatItRefersTo(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		srv.Create(configMap("c", "1"))
		srv.Fail(kubeapitest.Refuse(2, kubeapitest.Status(http.StatusForbidden), kubeapitest.Of("watch", kubeapi.ConfigMaps)))
		r := start(t, srv, podsync.SourceConfig{})
		defer r.stop()
		r.want(t, "")
		srv.Create(pod("a", "configmap/c"))
		srv.Create(pod("b"))
		r.want(t, "b")
		time.Sleep(1500 * time.Millisecond)
		r.want(t, "a b c=1")
	})
}

func TestAPodDoesNotWaitLong(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		srv.Fail(kubeapitest.Slow(time.Minute, kubeapitest.Of("", kubeapi.ConfigMaps)))
		srv.Create(pod("a", "configmap/c"))
		srv.Create(pod("b"))
		r := start(t, srv, podsync.SourceConfig{})
		defer r.stop()
		time.Sleep(2*time.Second - time.Millisecond)
		r.want(t, "nothing") // what is told first is complete: the rest would be ended
		time.Sleep(time.Millisecond)
		r.want(t, "a b")
	})
}

func TestAServerThatIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		srv.Create(configMap("c", "1"))
		srv.Create(pod("a", "configmap/c"))
		r := start(t, srv, podsync.SourceConfig{})
		defer r.stop()
		r.want(t, "a c=1")
		n := r.count()
		srv.Stop()
		srv.ForgetRequests()
		time.Sleep(time.Hour)
		if r.count() != n {
			t.Error("something was told while the server was away")
		}
		if pods, objects := srv.Count("watch", kubeapi.Pods), srv.Count("watch", kubeapi.ConfigMaps); pods < 240 || pods > 800 || objects > 3 {
			t.Errorf("asked %d times for pods and %d times for ConfigMaps in an hour", pods, objects)
		}
		srv.Put(configMap("c", "2"))
		srv.Create(pod("b", "configmap/c"))
		srv.Start()
		time.Sleep(16 * time.Second)
		r.want(t, "a b c=2")
	})
}

// Whatever a server answers that is no list of pods, nothing is ended.
func TestARefusalIsNoAnswer(t *testing.T) {
	for _, code := range []int{401, 403, 404, 500, 503} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
				m := &checkpointtest.Disk{}
				srv.Create(configMap("c", "1"))
				srv.Create(pod("a", "configmap/c"))
				r := start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
				r.want(t, "a c=1")
				srv.Fail(kubeapitest.Refuse(-1, kubeapitest.Status(code), kubeapitest.Any))
				srv.EndWatches()
				time.Sleep(time.Hour)
				r.want(t, "a c=1")
				r.stop()
				r = start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
				defer r.stop()
				time.Sleep(100 * time.Millisecond)
				r.want(t, "a c=1")
				if r.Synced() {
					t.Error("a refusal counts as an answer")
				}
				srv.Heal()
				srv.Create(pod("b"))
				time.Sleep(16 * time.Second)
				r.want(t, "a b c=1")
			})
		})
	}
}

func TestWatchesEndAndExpire(t *testing.T) {
	for _, old := range []bool{false, true} {
		bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
			if old {
				srv.WithoutWatchList()
			}
			srv.Create(configMap("c", "1"))
			srv.Create(pod("a", "configmap/c"))
			r := start(t, srv, podsync.SourceConfig{})
			defer r.stop()
			r.want(t, "a c=1")
			time.Sleep(2 * time.Second)
			srv.EndWatches()
			srv.Create(pod("b"))
			r.want(t, "a b c=1")
			time.Sleep(2 * time.Second)
			srv.Fail(kubeapitest.Refuse(1, kubeapitest.Status(410), kubeapitest.Of("watch", kubeapi.Pods)))
			srv.EndWatches()
			srv.Remove(kubeapi.Pods, "ns", "a") // while nobody watches
			srv.Compact()
			time.Sleep(time.Second)
			r.want(t, "b")
		})
	}
}

// A watch on which nothing comes, not even bookmarks, is given up.
func TestASilentWatch(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		r := start(t, srv, podsync.SourceConfig{})
		defer r.stop()
		time.Sleep(90 * time.Second) // a bookmark
		srv.Silence()
		r.want(t, "")
		srv.Create(pod("a"))
		r.want(t, "")
		srv.Heal() // but the watch stays silent
		time.Sleep(3*time.Minute + time.Second)
		r.want(t, "a")
	})
}

func TestClaims(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending}}
		srv.Create(claim)
		p := pod("a")
		p.Spec.Volumes = []v1.Volume{
			{Name: "x", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
			{Name: "scratch", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}},
		}
		srv.Create(p)
		m := &checkpointtest.Disk{}
		r := start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
		last := func() (s podmgr.Snapshot) {
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.snaps[len(r.snaps)-1]
		}
		r.want(t, "a")
		if s := last(); len(s.Claims) != 1 || len(s.Volumes) != 0 {
			t.Errorf("%d claims, %d volumes", len(s.Claims), len(s.Volumes))
		}
		claim.Spec.VolumeName, claim.Status.Phase = "pv", v1.ClaimBound
		srv.Create(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound}})
		srv.Put(claim)
		time.Sleep(3 * time.Second)
		if s := last(); len(s.Claims) != 1 || s.Claims[0].Spec.VolumeName != "pv" || len(s.Volumes) != 1 {
			t.Errorf("claims %v, volumes %v", s.Claims, s.Volumes)
		}
		other := claim.DeepCopy()
		other.Name = "a-scratch"
		other.Spec.VolumeName = "pv2"
		srv.Create(other)
		time.Sleep(3 * time.Second)
		if s := last(); len(s.Claims) != 2 {
			t.Errorf("claims %v", s.Claims)
		}
		r.stop()
		srv.Stop()
		r = start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
		time.Sleep(time.Second)
		if s := last(); len(s.Claims) != 2 || len(s.Volumes) != 1 {
			t.Errorf("remembered claims %v, volumes %v", s.Claims, s.Volumes)
		}
		srv.Start()
		time.Sleep(20 * time.Second)
		srv.Remove(kubeapi.Pods, "ns", "a")
		r.want(t, "")
		srv.ForgetRequests()
		time.Sleep(time.Hour)
		if n := srv.Count("get", kubeapi.PersistentVolumeClaims) + srv.Count("get", kubeapi.PersistentVolumes); n != 0 {
			t.Errorf("asked %d times for nobody", n)
		}
		r.stop()
	})
}
