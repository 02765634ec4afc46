package podmgr

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// What becomes of a pod between two looks of the receiver is one change.
func TestQueueCoalesces(t *testing.T) {
	type set []*v1.Pod
	for _, tc := range []struct {
		name  string
		known set // what the receiver has seen
		then  []set
		want  []string
	}{
		{"add, update", set{}, []set{{with("a")}, {with("a", label("1"))}}, []string{"ADD file a"}},
		{"add, status", set{}, []set{{with("a")}, {with("a", phase(v1.PodRunning))}}, []string{"ADD file a"}},
		{"add, delete", set{}, []set{{with("a")}, {with("a", deleted)}}, []string{"ADD file a"}},
		{"add, remove", set{}, []set{{with("a")}, {}}, nil},
		{"update, update", set{with("a")}, []set{{with("a", label("1"))}, {with("a", label("2"))}}, []string{"UPDATE file a"}},
		{"update, status", set{with("a")}, []set{{with("a", label("1"))}, {with("a", label("1"), phase(v1.PodRunning))}}, []string{"UPDATE file a"}},
		{"update, delete", set{with("a")}, []set{{with("a", label("1"))}, {with("a", label("1"), deleted)}}, []string{"DELETE file a"}},
		{"update, remove", set{with("a")}, []set{{with("a", label("1"))}, {}}, []string{"REMOVE file a"}},
		{"delete, remove", set{with("a")}, []set{{with("a", deleted)}, {}}, []string{"REMOVE file a"}},
		{"status, remove", set{with("a")}, []set{{with("a", phase(v1.PodRunning))}, {}}, []string{"REMOVE file a"}},
		{"remove, add", set{with("a")}, []set{{}, {with("a", label("1"))}}, []string{"REMOVE file a", "ADD file a"}},
		{"remove, add, update", set{with("a")}, []set{{}, {with("a")}, {with("a", label("1"))}}, []string{"REMOVE file a", "ADD file a"}},
		{"remove, add, remove, add", set{with("a")}, []set{{}, {with("a")}, {}, {with("a")}}, []string{"REMOVE file a", "ADD file a"}},
		{"remove, add, remove", set{with("a")}, []set{{}, {with("a")}, {}}, []string{"REMOVE file a"}},
		{"remove, add under another name", set{with("a")}, []set{{}, {with("b", uid("uid-a"))}}, []string{"REMOVE file a", "ADD file b"}},
		{"what came first goes first", set{with("a")}, []set{{with("a", label("1"))}, {with("a", label("1")), with("b")}, {with("a", label("2")), with("b")}}, []string{"UPDATE file a", "ADD file b"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newSilent(t, "file")
			m.merge("file", Snapshot{Pods: tc.known})
			drain(m)
			for _, pods := range tc.then {
				m.merge("file", Snapshot{Pods: pods})
			}
			if got := drain(m); !slices.Equal(got, tc.want) {
				t.Errorf("changes = %q, want %q", got, tc.want)
			}
			if want := m.Pods(); len(want) > 0 && len(m.queue.entries) > 0 {
				t.Errorf("%d changes are left", len(m.queue.entries))
			}
		})
	}
}

// The last version is the one that is told.
// A pod of the API server that is gone and back between two looks is the same.
func TestQueueKeepsPodsOfTheAPI(t *testing.T) {
	for want, back := range map[string]*v1.Pod{"UPDATE api a": with("a", label("1")), "DELETE api a": with("a", deleted)} {
		m := newSilent(t, "api")
		m.merge("api", Snapshot{Pods: []*v1.Pod{with("a")}})
		drain(m)
		m.merge("api", Snapshot{})
		m.merge("api", Snapshot{Pods: []*v1.Pod{back}})
		if got := drain(m); !slices.Equal(got, []string{want}) {
			t.Errorf("changes = %q, want %s", got, want)
		}
	}
}

func TestQueueTellsTheLastVersion(t *testing.T) {
	m := newSilent(t, "file")
	for i := range 1000 {
		m.merge("file", Snapshot{Pods: []*v1.Pod{with("a", label(fmt.Sprint(i)))}})
		if got := len(m.queue.entries); got != 1 {
			t.Fatalf("%d changes wait after %d versions of one pod, want 1", got, i+1)
		}
	}
	c, _ := m.queue.take()
	if got := c.Pods[0].Labels["l"]; got != "999" {
		t.Errorf("version %s is told, want 999", got)
	}
}

// A source whose first pods come and go before anybody looks has spoken all
// the same.
func TestQueueTellsOfASourceThatChangedItsMind(t *testing.T) {
	m := newSilent(t, "file")
	m.merge("file", Snapshot{Pods: []*v1.Pod{with("a")}})
	m.merge("file", Snapshot{})
	if got, want := drain(m), []string{"ADD file"}; !slices.Equal(got, want) {
		t.Errorf("changes = %q, want %q", got, want)
	}
}
