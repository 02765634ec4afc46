package podmgr

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

// with returns a pod named and numbered alike, changed by edits.
func with(name string, edits ...func(*v1.Pod)) *v1.Pod {
	p := madePod(name, "uid-"+name)
	for _, e := range edits {
		e(p)
	}
	return p
}

func image(s string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers = []v1.Container{{Name: "c", Image: s}} }
}

func label(s string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Labels = map[string]string{"l": s} }
}

func annotation(s string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations = map[string]string{"a": s} }
}

func phase(s v1.PodPhase) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = s } }

func deleted(p *v1.Pod) {
	t := metav1.NewTime(time.Unix(100, 0))
	p.DeletionTimestamp = &t
}

func namespace(s string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Namespace, p.UID = s, p.UID+types.UID(s) }
}

func uid(s types.UID) func(*v1.Pod) { return func(p *v1.Pod) { p.UID = s } }

func TestMerge(t *testing.T) {
	type set []*v1.Pod
	for _, tc := range []struct {
		name      string
		was, then set
		want      []string
	}{
		{"added", set{}, set{with("a")}, []string{"ADD file a"}},
		{"one name in two namespaces", set{}, set{with("a"), with("a", namespace("other"))}, []string{"ADD file a a"}},
		{"a second pod of the name is left out", set{}, set{with("a"), with("a", uid("2"))}, []string{"ADD file a"}},
		{"a second pod of the UID is left out", set{}, set{with("a"), with("b", uid("uid-a"))}, []string{"ADD file a"}},
		{"nothing", set{with("a", image("1"))}, set{with("a", image("1"))}, nil},
		{"container", set{with("a", image("1"))}, set{with("a", image("2"))}, []string{"UPDATE file a"}},
		{"label", set{with("a", label("1"))}, set{with("a", label("2"))}, []string{"UPDATE file a"}},
		{"annotation changed", set{with("a", annotation("1"))}, set{with("a", annotation("2"))}, []string{"UPDATE file a"}},
		{"annotation added", set{with("a")}, set{with("a", annotation("1"))}, []string{"UPDATE file a"}},
		{"annotation removed", set{with("a", annotation("1"))}, set{with("a")}, []string{"UPDATE file a"}},
		{"gone", set{with("a"), with("b")}, set{}, []string{"REMOVE file a b"}},
		{"to be deleted", set{with("a")}, set{with("a", deleted)}, []string{"DELETE file a"}},
		{"new and to be deleted", set{}, set{with("a", deleted)}, []string{"ADD file a"}},
		{"status", set{with("a")}, set{with("a", phase(v1.PodRunning))}, []string{"RECONCILE file a"}},
		{"status and spec", set{with("a")}, set{with("a", phase(v1.PodRunning), image("1"))}, []string{"UPDATE file a"}},
		{"another UID of the name", set{with("a")}, set{with("a", uid("2"))}, []string{"REMOVE file a", "ADD file a"}},
		{
			"everything at once",
			set{with("gone"), with("changed"), with("dying"), with("status"), with("same")},
			set{with("changed", image("2")), with("dying", deleted), with("status", phase(v1.PodRunning)), with("same"), with("new")},
			[]string{"REMOVE file gone", "ADD file new", "UPDATE file changed", "DELETE file dying", "RECONCILE file status"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newSilent(t, "file")
			m.merge("file", Snapshot{Pods: tc.was})
			drain(m)
			m.merge("file", Snapshot{Pods: tc.then})
			if got := drain(m); !slices.Equal(got, tc.want) {
				t.Errorf("changes = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestMergeTellsThatASourceSpoke(t *testing.T) {
	m := newSilent(t, "file", "http")
	m.merge("file", Snapshot{})
	if got, want := drain(m), []string{"ADD file"}; !slices.Equal(got, want) {
		t.Errorf("first, empty state = %q, want %q", got, want)
	}
	if m.AllReady() {
		t.Error("ready while http has not spoken")
	}
	m.merge("file", Snapshot{})
	if got := drain(m); got != nil {
		t.Errorf("second, empty state = %q, want nothing", got)
	}
	m.merge("http", Snapshot{})
	if !m.AllReady() {
		t.Error("not ready though all have spoken")
	}
}

// A source that only remembers has spoken, and its word is not the last one.
func TestComplete(t *testing.T) {
	m := newSilent(t, "file", "api")
	m.merge("file", Snapshot{})
	if m.Want("none").Wanted() != observed.Maybe {
		t.Error("complete while api has not spoken")
	}
	m.merge("api", Snapshot{Partial: true})
	if w := m.Want("none"); !m.AllReady() || w.By != podlife.Remembered || w.Wanted() != observed.Maybe {
		t.Errorf("api only remembers: ready %t, wanted %v (%v)", m.AllReady(), w.Wanted(), w.By)
	}
	m.merge("api", Snapshot{})
	if m.Want("none").Wanted() != observed.No {
		t.Error("not complete though all have spoken for themselves")
	}
}

// What the API has of statuses is known once its source does more than remember, whatever
// other sources do, and for good.
func TestConfirmed(t *testing.T) {
	closed := func(m *Manager) bool {
		select {
		case <-m.Confirmed():
			return true
		default:
			return false
		}
	}
	m := newSilent(t, "file", "api")
	for _, step := range []struct {
		source string
		snap   Snapshot
		want   bool
	}{{"file", Snapshot{}, false}, {"api", Snapshot{Partial: true}, false}, {"api", Snapshot{}, true}, {"api", Snapshot{Partial: true}, true}} {
		if m.merge(step.source, step.snap); closed(m) != step.want {
			t.Errorf("after %s, partial %t: confirmed %t, want %t", step.source, step.snap.Partial, closed(m), step.want)
		}
	}
	if !closed(newSilent(t, "file")) {
		t.Error("not confirmed without an API")
	}
}

func TestMergeTellsOfConfiguration(t *testing.T) {
	cm := func(v string) []*v1.ConfigMap {
		return []*v1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default"}, Data: map[string]string{"k": v}}}
	}
	m := newSilent(t, "file")
	m.merge("file", Snapshot{ConfigMaps: cm("1")})
	drain(m)
	m.merge("file", Snapshot{ConfigMaps: cm("2"), Pods: []*v1.Pod{with("a")}})
	if got, want := drain(m), []string{"ADD file a (ConfigMap default/c)"}; !slices.Equal(got, want) {
		t.Errorf("with a pod = %q, want %q", got, want)
	}
	m.merge("file", Snapshot{ConfigMaps: cm("3"), Pods: []*v1.Pod{with("a")}})
	if got, want := drain(m), []string{"UPDATE file (ConfigMap default/c)"}; !slices.Equal(got, want) {
		t.Errorf("alone = %q, want %q", got, want)
	}
	if got := m.ConfigMaps("default")["c"].Data["k"]; got != "3" {
		t.Errorf("ConfigMap has %q, want 3", got)
	}
	// Changes that nobody took are one, of all that changed.
	secret := []*v1.Secret{{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "other"}}}
	m.merge("file", Snapshot{ConfigMaps: cm("3"), Secrets: secret, Pods: []*v1.Pod{with("a")}})
	m.merge("file", Snapshot{ConfigMaps: cm("3"), Secrets: secret, Pods: []*v1.Pod{with("a")}})
	m.merge("file", Snapshot{Secrets: secret, Pods: []*v1.Pod{with("a")}})
	if got, want := drain(m), []string{"UPDATE file (ConfigMap default/c) (Secret other/s)"}; !slices.Equal(got, want) {
		t.Errorf("one gone and one come = %q, want %q", got, want)
	}
}

func TestMergeMarksPods(t *testing.T) {
	m := newSilent(t, "file")
	m.merge("file", Snapshot{Pods: []*v1.Pod{with("a")}})
	first, _ := m.Pod("uid-a")
	seen := first.Annotations[podmeta.AnnotationSeen]
	if _, err := time.Parse(time.RFC3339Nano, seen); err != nil {
		t.Errorf("seen annotation: %v", err)
	}
	m.merge("file", Snapshot{Pods: []*v1.Pod{with("a", label("1"))}})
	second, _ := m.PodByName("default", "a")
	if got := second.Annotations; got[podmeta.AnnotationSource] != "file" || got[podmeta.AnnotationSeen] != seen {
		t.Errorf("annotations after an update = %v, want source file, seen %s", got, seen)
	}
	if first.Labels != nil {
		t.Error("the pod that was handed out changed")
	}
}

// Two sources that name one pod: the first has it until it lets go.
func TestMergeClashOfSources(t *testing.T) {
	m := newSilent(t, "file", "http")
	m.merge("file", Snapshot{Pods: []*v1.Pod{with("x")}})
	m.merge("http", Snapshot{Pods: []*v1.Pod{with("x", uid("2")), with("y", uid("uid-x"))}})
	if got := len(m.Problems()); got != 2 {
		t.Fatalf("problems = %v, want one for the name and one for the UID", m.Problems())
	}
	drain(m)
	m.merge("file", Snapshot{})
	if got, want := drain(m), []string{"REMOVE file x", "ADD http x y"}; !slices.Equal(got, want) {
		t.Errorf("changes = %q, want %q", got, want)
	}
	if got := m.Problems(); len(got) != 0 {
		t.Errorf("problems stay: %v", got)
	}
	m.merge("file", Snapshot{Pods: []*v1.Pod{with("x")}}) // now file has to wait
	m.merge("file", Snapshot{})
	if got := len(m.Pods()); got != 2 {
		t.Errorf("pods = %d, want the two of http", got)
	}
}

func TestMirrorPodsStandAside(t *testing.T) {
	m := newSilent(t, "api")
	mirror := with("a", annotation("x"))
	mirror.Annotations[podmeta.AnnotationMirror] = "hash"
	m.merge("api", Snapshot{Pods: []*v1.Pod{mirror, with("b")}})
	if got := m.Pods(); len(got) != 1 || got[0].Name != "b" {
		t.Errorf("pods = %v, want b alone", got)
	}
	if _, ok := m.Mirror("default", "a"); !ok {
		t.Error("the mirror pod is not found")
	}
	if _, ok := m.PodByName("default", "a"); ok {
		t.Error("the mirror pod is found as a pod")
	}
}

// Whatever the sources say and whenever the receiver takes what, replaying the
// changes gives the pods that are wanted.
func TestReplayGivesPods(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		m := newSilent(t, "file", "http")
		have := map[types.UID]*v1.Pod{}
		for range 40 {
			m.merge([]string{"file", "http"}[rnd.IntN(2)], randomSnapshot(rnd))
			for range rnd.IntN(4) {
				next, ok := m.queue.take()
				if rnd.IntN(3) == 0 { // the receiver was busy, and something came
					m.merge("file", randomSnapshot(rnd))
					m.queue.putBack(next)
					continue
				}
				if ok {
					replay(t, have, next.Change)
				}
			}
			if got, limit := len(m.queue.entries), len(have)+len(m.Pods())+4; got > limit {
				t.Fatalf("seed %d: %d changes wait, want at most %d", seed, got, limit)
			}
		}
		for next, ok := m.queue.take(); ok; next, ok = m.queue.take() {
			replay(t, have, next.Change)
		}
		want := m.Pods()
		if len(have) != len(want) {
			t.Fatalf("seed %d: %d pods after the replay, want %d", seed, len(have), len(want))
		}
		for _, p := range want {
			if !equality.Semantic.DeepEqual(have[p.UID], p) {
				t.Fatalf("seed %d: pod %s differs:\n%v\nwant\n%v", seed, p.Name, have[p.UID], p)
			}
		}
	}
}

func randomSnapshot(rnd *rand.Rand) Snapshot {
	var s Snapshot
	for _, name := range []string{"a", "b", "c", "d"} {
		if rnd.IntN(2) == 0 {
			continue
		}
		p := with(name, uid(types.UID("uid-"+name+string('0'+rune(rnd.IntN(2))))), label(string('0'+rune(rnd.IntN(3)))))
		if rnd.IntN(4) == 0 {
			phase(v1.PodRunning)(p)
		}
		if rnd.IntN(6) == 0 {
			deleted(p)
		}
		s.Pods = append(s.Pods, p)
	}
	return s
}

// replay does what a receiver would, and fails where it could not.
func replay(t *testing.T, have map[types.UID]*v1.Pod, c Change) {
	t.Helper()
	for _, p := range c.Pods {
		known := have[p.UID] != nil
		if known == (c.Op == Add) {
			t.Fatalf("%v of pod %s, which is known: %v", c.Op, p.UID, known)
		}
		if c.Op == Remove {
			delete(have, p.UID)
			continue
		}
		for _, other := range have {
			if other.Name == p.Name && other.UID != p.UID {
				t.Fatalf("%v of pod %s while %s has its name", c.Op, p.UID, other.UID)
			}
		}
		have[p.UID] = p
	}
}

// What a source gives again as it was is no change, and is not written to: it is
// everybody's by then. What was handed out stays as it is.
func TestGivenAgain(t *testing.T) {
	m := newSilent(t, "file")
	a, b := with("a", phase(v1.PodPending)), with("b")
	give := func(want string, pods ...*v1.Pod) {
		t.Helper()
		m.merge("file", Snapshot{Pods: pods})
		if got := strings.Join(drain(m), "; "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	give("ADD file a b", a, b)
	first, _ := m.Pod("uid-a")
	written := a.DeepCopy()
	running := with("a", phase(v1.PodRunning))
	give("RECONCILE file a", running, b)
	give("", running, b)
	if !equality.Semantic.DeepEqual(first, written) {
		t.Errorf("what was handed out became %+v", first)
	}
	give("REMOVE file b", running)
	give("ADD file b", running, b)
}

// Of two objects of one name, that of the first source counts.
func TestObjectsOfTheFirstSource(t *testing.T) {
	m := newSilent(t, "file", "http", "api")
	for _, source := range []string{"api", "file", "http"} {
		meta := metav1.ObjectMeta{Name: "x", Namespace: "default", Labels: map[string]string{"from": source}}
		m.merge(source, Snapshot{
			ConfigMaps: []*v1.ConfigMap{{ObjectMeta: meta}}, Secrets: []*v1.Secret{{ObjectMeta: meta}},
			ResourceClaims: []*resourceapi.ResourceClaim{{ObjectMeta: meta}},
		})
	}
	for range 20 { // no map decides
		c, s, r := m.ConfigMaps("default")["x"], m.Secrets("default")["x"], m.ResourceClaims("default")["x"]
		if c.Labels["from"] != "file" || s.Labels["from"] != "file" || r.Labels["from"] != "file" {
			t.Fatalf("from %v, %v and %v; want file", c.Labels, s.Labels, r.Labels)
		}
	}
}
