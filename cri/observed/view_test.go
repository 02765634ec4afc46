package observed

import (
	"errors"
	"testing"
)

// pods of one sandbox and one container, in all states, and of nothing.
func pods() map[string]*Pod {
	out := map[string]*Pod{"nil": nil, "nothing": {}}
	for s := Unknown; s <= Exited; s++ {
		for c := Unknown; c <= Exited; c++ {
			out[s.String()+"/"+c.String()] = &Pod{Sandboxes: []Sandbox{{State: s}}, Containers: []Container{{State: Exited}, {State: c}}}
		}
	}
	return out
}

func TestRuns(t *testing.T) {
	for name, want := range map[string]struct{ runs, containers Answer }{
		"nil":             {Maybe, Maybe},
		"nothing":         {No, No},
		"exited/exited":   {No, No},
		"exited/created":  {No, No},
		"running/exited":  {Yes, No},
		"exited/running":  {Yes, Yes},
		"exited/unknown":  {Maybe, Maybe},
		"running/unknown": {Yes, Maybe},
		"unknown/exited":  {Maybe, No},
		"unknown/running": {Yes, Yes},
	} {
		if p := pods()[name]; p.Runs() != want.runs || p.ContainersRun() != want.containers {
			t.Errorf("%s: runs %v, containers %v; want %v, %v", name, p.Runs(), p.ContainersRun(), want.runs, want.containers)
		}
	}
}

// What holds for every view, whatever it shows.
func TestViewIsCareful(t *testing.T) {
	failed := errors.New("the runtime does not answer")
	for name, p := range pods() {
		for depth := Unseen; depth <= Whole; depth++ {
			for _, err := range []error{nil, failed} {
				v := View{Pod: p, Depth: depth, Err: err}
				sure := depth != Unseen && err == nil
				if v.Runs() == No && (!sure || p.Runs() != No) {
					t.Errorf("%s, %d, %v: does not run", name, depth, err)
				}
				if p.Runs() == Yes && v.Runs() != Yes {
					t.Errorf("%s, %d, %v: ran when it was seen last, and now %v", name, depth, err, v.Runs())
				}
				if v.Stopped() && (v.Runs() != No || v.ContainersRun() != No || depth != Whole) {
					t.Errorf("%s, %d, %v: stopped", name, depth, err)
				}
				if v.Absent() == Yes && (!v.Stopped() || len(p.Containers) > 0) {
					t.Errorf("%s, %d, %v: absent", name, depth, err)
				}
			}
		}
	}
	if v := (View{}); v.Runs() != Maybe || v.Stopped() || v.Absent() != Maybe {
		t.Errorf("the zero view: runs %v, stopped %v, absent %v", v.Runs(), v.Stopped(), v.Absent())
	}
	if v := (View{Pod: &Pod{}, Depth: Whole}); !v.Stopped() || v.Absent() != Yes {
		t.Error("a pod that the runtime did not list may run")
	}
}
