package pleg

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
)

func TestDiffTable(t *testing.T) {
	const gone = observed.State(99)
	states := []observed.State{observed.Running, observed.Exited, observed.Unknown, observed.Created, gone}
	want := map[observed.State]map[observed.State][]ChangeType{
		observed.Running: {observed.Exited: {ContainerDied}, observed.Unknown: {ContainerChanged}, observed.Created: {ContainerChanged}, gone: {ContainerDied, ContainerRemoved}},
		observed.Exited:  {observed.Running: {ContainerStarted}, observed.Unknown: {ContainerChanged}, observed.Created: {ContainerChanged}, gone: {ContainerRemoved}},
		observed.Unknown: {observed.Running: {ContainerStarted}, observed.Exited: {ContainerDied}, observed.Created: {ContainerChanged}, gone: {ContainerDied, ContainerRemoved}},
		observed.Created: {observed.Running: {ContainerStarted}, observed.Exited: {ContainerDied}, observed.Unknown: {ContainerChanged}, gone: {ContainerDied, ContainerRemoved}},
		gone:             {observed.Running: {ContainerStarted}, observed.Exited: {ContainerDied}, observed.Unknown: {ContainerChanged}, observed.Created: {ContainerChanged}},
	}
	items := func(s observed.State, sandbox bool) []item {
		if s == gone {
			return nil
		}
		return []item{{id: "x", state: s, sandbox: sandbox}}
	}
	for _, sandbox := range []bool{false, true} {
		for _, old := range states {
			for _, now := range states {
				t.Run(fmt.Sprintf("%v to %v, sandbox=%v", old, now, sandbox), func(t *testing.T) {
					var got []ChangeType
					for _, c := range diff(items(old, sandbox), items(now, sandbox)) {
						if c.ID != "x" || c.Sandbox != sandbox {
							t.Errorf("change of %q, sandbox=%v", c.ID, c.Sandbox)
						}
						got = append(got, c.Type)
					}
					if !slices.Equal(got, want[old][now]) {
						t.Errorf("got %v, want %v", got, want[old][now])
					}
				})
			}
		}
	}
}

func TestMatches(t *testing.T) {
	r := &record{items: []item{{id: "a", state: observed.Running}, {id: "b", state: observed.Exited}, {id: "s", state: observed.Running, sandbox: true}}}
	it := func(id string, s observed.State) observed.Item { return observed.Item{ID: id, State: s} }
	s := []observed.Item{it("s", observed.Running)}
	for name, tc := range map[string]struct {
		list observed.Listed
		want bool
	}{
		"same":        {observed.Listed{Containers: []observed.Item{it("a", observed.Running), it("b", observed.Exited)}, Sandboxes: s}, true},
		"other order": {observed.Listed{Containers: []observed.Item{it("b", observed.Exited), it("a", observed.Running)}, Sandboxes: s}, true},
		"state":       {observed.Listed{Containers: []observed.Item{it("a", observed.Exited), it("b", observed.Exited)}, Sandboxes: s}, false},
		"state moved": {observed.Listed{Containers: []observed.Item{it("b", observed.Running), it("a", observed.Running)}, Sandboxes: s}, false},
		"replaced":    {observed.Listed{Containers: []observed.Item{it("a", observed.Running), it("c", observed.Exited)}, Sandboxes: s}, false},
		"fewer":       {observed.Listed{Containers: []observed.Item{it("a", observed.Running)}, Sandboxes: s}, false},
		"no sandbox":  {observed.Listed{Containers: []observed.Item{it("a", observed.Running), it("b", observed.Exited)}}, false},
	} {
		if got := same(r.items, &tc.list); got != tc.want {
			t.Errorf("%s: same = %v, want %v", name, got, tc.want)
		}
	}
}

func TestKeepIPs(t *testing.T) {
	pod := func(s observed.State, ips ...string) *observed.Pod {
		return &observed.Pod{Sandboxes: []observed.Sandbox{{ID: "s", State: s, IPs: ips}}}
	}
	for name, tc := range map[string]struct {
		old, now *observed.Pod
		want     []string
	}{
		"new ones win":            {pod(observed.Running, "1"), pod(observed.Running, "2"), []string{"2"}},
		"ready without any":       {pod(observed.Running, "1"), pod(observed.Running), nil},
		"not ready keeps":         {pod(observed.Running, "1"), pod(observed.Exited), []string{"1"}},
		"never had":               {pod(observed.Running), pod(observed.Exited), nil},
		"nothing known before":    {nil, pod(observed.Exited), nil},
		"not ready with new ones": {pod(observed.Running, "1"), pod(observed.Exited, "2"), []string{"2"}},
	} {
		before := slices.Clone(tc.now.Sandboxes[0].IPs)
		if got := keepIPs(tc.old, tc.now).Sandboxes[0].IPs; !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if !slices.Equal(before, tc.now.Sandboxes[0].IPs) {
			t.Errorf("%s: the runtime's answer was changed", name)
		}
	}
}

func TestOutboxIsBoundedByPod(t *testing.T) {
	o := newOutbox()
	for i := range 10 * maxChanges {
		o.put(&record{uid: "a"}, []Change{{ID: fmt.Sprint(i), Type: ContainerDied}})
		o.put(&record{uid: "b"}, []Change{{ID: "b"}})
	}
	ev, ok := o.take()
	if !ok || ev.UID != "a" || len(ev.Changes) != maxChanges || ev.Changes[maxChanges-1].ID != fmt.Sprint(10*maxChanges-1) {
		t.Errorf("first event: %q with %d changes", ev.UID, len(ev.Changes))
	}
	if ev, ok = o.take(); !ok || ev.UID != "b" {
		t.Errorf("second event: %v %v", ev.UID, ok)
	}
	if _, ok = o.take(); ok {
		t.Error("a third event")
	}
}

func TestKnows(t *testing.T) {
	seen := func() *record {
		return &record{pod: &observed.Pod{}, items: []item{
			{id: "created", state: observed.Created}, {id: "running", state: observed.Running},
			{id: "exited", state: observed.Exited}, {id: "unknown", state: observed.Unknown},
			{id: "ready", state: observed.Running, sandbox: true}, {id: "not-ready", state: observed.Exited, sandbox: true},
		}}
	}
	kinds := []observed.EventKind{observed.ContainerCreated, observed.ContainerStarted, observed.ContainerStopped, observed.ContainerDeleted}
	// What an event of each kind, in this order, would not be news of.
	for id, want := range map[string][4]bool{
		"created":   {true, false, false, false},
		"running":   {true, true, false, false},
		"exited":    {true, true, true, false},
		"unknown":   {true, false, false, false},
		"ready":     {true, true, false, false},
		"not-ready": {true, true, true, false},
		"never":     {false, false, false, true},
		"":          {false, false, false, true}, // of an event that names no container
	} {
		for i, kind := range kinds {
			if got := seen().knows(observed.Event{ID: id, Kind: kind}); got != want[i] {
				t.Errorf("%q %v: knows = %v, want %v", id, kind, got, want[i])
			}
		}
	}
	for name, change := range map[string]func(*record){
		"something is noted already":   func(r *record) { r.dirty = true },
		"an inspection is on its way":  func(r *record) { r.flight = &flight{} },
		"the last inspection failed":   func(r *record) { r.err = errors.New("boom") },
		"there was no inspection yet":  func(r *record) { r.pod = nil },
		"the pod was forgotten, held":  func(r *record) { *r = record{held: 1} },
		"only the list has told of it": func(r *record) { *r = record{hint: r.pod} },
	} {
		for _, id := range []string{"running", "never"} {
			for _, kind := range kinds {
				r := seen()
				if change(r); r.knows(observed.Event{ID: id, Kind: kind}) {
					t.Errorf("%s: %q %v counts as known", name, id, kind)
				}
			}
		}
	}
}

func TestViewSaysHowWellAPodIsKnown(t *testing.T) {
	at, boom := time.Unix(1, 0), errors.New("boom")
	something := func() *observed.Pod {
		return &observed.Pod{UID: "a", ObservedAt: at, Containers: []observed.Container{{ID: "c", State: observed.Exited}}}
	}
	for name, tc := range map[string]struct {
		listed time.Time
		r      *record
		depth  observed.Depth
		absent observed.Answer
	}{
		"before the first list":           {time.Time{}, nil, observed.Unseen, observed.Maybe},
		"missing in the list":             {at, nil, observed.Whole, observed.Yes},
		"asked for before the first list": {time.Time{}, &record{}, observed.Unseen, observed.Maybe},
		"held, and missing in the list":   {at, &record{matched: at}, observed.Whole, observed.Yes},
		"missing, and then no answer":     {at, &record{matched: at, err: boom}, observed.Unseen, observed.Maybe},
		"listed":                          {at, &record{hint: something()}, observed.StatesOnly, observed.No},
		"listed, and then no answer":      {at, &record{hint: something(), err: boom}, observed.StatesOnly, observed.No},
		"inspected":                       {at, &record{pod: something()}, observed.Whole, observed.No},
		"inspected, and then no answer":   {at, &record{pod: something(), err: boom}, observed.Whole, observed.No},
		"inspected and empty":             {at, &record{pod: &observed.Pod{UID: "a"}}, observed.Whole, observed.Yes},
		"inspected, empty, no answer":     {at, &record{pod: &observed.Pod{UID: "a"}, err: boom}, observed.Unseen, observed.Maybe},
	} {
		m := &Manager{listedAt: tc.listed, records: map[types.UID]*record{}}
		if tc.r != nil {
			tc.r.uid = "a"
			m.records["a"] = tc.r
		}
		v := m.View("a")
		if v.Depth != tc.depth || v.Absent() != tc.absent || v.Pod == nil || v.Pod.UID != "a" || (v.Err != nil) != (tc.r != nil && tc.r.err != nil) {
			t.Errorf("%s: %+v, absent %v; want depth %d, absent %v", name, v, v.Absent(), tc.depth, tc.absent)
		}
	}
}
