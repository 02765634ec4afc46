package podlife

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
)

// ended is the status of a pod that ran and ended by itself.
func ended() v1.PodStatus {
	return v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{{Name: "c"}}}
}

func TestOutlived(t *testing.T) {
	down := ended()
	Cause{Kind: Shutdown}.Apply(&down)
	rejected := ended()
	Cause{Kind: Rejected}.Apply(&rejected)
	is := func(p v1.PodPhase) *v1.PodStatus { return &v1.PodStatus{Phase: p} }
	for _, tc := range []struct {
		name   string
		n      uint32 // of the life
		status *v1.PodStatus
		runs   observed.Answer
		of     uint32 // of the mirror
		mirror v1.PodStatus
		want   bool
	}{
		{"the end of the life before", 2, nil, observed.No, 1, ended(), true},
		{"the life before, of which the server does not show the end yet", 2, is(v1.PodPending), observed.No, 1, *is(v1.PodRunning), true},
		{"of an earlier build, and a life has begun since", 1, is(v1.PodPending), observed.No, 0, ended(), true},
		{"the end of this life", 2, is(v1.PodFailed), observed.No, 2, ended(), false},
		{"the end of this life, and the agent has no status", 2, nil, observed.No, 2, ended(), false},
		{"this life runs", 2, is(v1.PodRunning), observed.Yes, 2, *is(v1.PodRunning), false},
		{"a number that this agent does not know", 0, is(v1.PodRunning), observed.Yes, 3, *is(v1.PodRunning), false},
		{"no numbers: it goes on", 0, is(v1.PodRunning), observed.Yes, 0, ended(), true},
		{"no numbers: over", 0, is(v1.PodFailed), observed.No, 0, ended(), false},
		{"no numbers: ended before a restart", 0, nil, observed.No, 0, ended(), false},
		{"no numbers: ended before a restart, and nobody knows whether it runs", 0, nil, observed.Maybe, 0, ended(), false},
		{"no numbers: it runs, begun by an agent between", 0, nil, observed.Yes, 0, ended(), true},
		{"no numbers: rejected before a restart", 0, nil, observed.No, 0, rejected, true},
		{"no numbers: ended by the node before a restart", 0, nil, observed.No, 0, down, true},
		{"no numbers: ended by the node now", 0, is(v1.PodFailed), observed.No, 0, down, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mirror := &v1.Pod{Status: tc.mirror}
			mirror.Annotations = podmeta.WithLife(nil, podmeta.AnnotationLife, tc.of)
			if got := Outlived(Life{N: tc.n}, tc.status, tc.runs, mirror); got != tc.want {
				t.Errorf("outlived: %t, want %t", got, tc.want)
			}
		})
	}
}

// Over all values: what a later life finds is outlived, and what is of the same number, or a later one, is
// only if it is over.
func TestNumbersDecide(t *testing.T) {
	over := ended()
	for n := range uint32(3) {
		for of := range uint32(3) {
			for _, runs := range []observed.Answer{observed.Maybe, observed.No, observed.Yes} {
				for _, mirror := range []v1.PodStatus{{Phase: v1.PodPending}, {Phase: v1.PodRunning}, over} {
					for _, st := range []*v1.PodStatus{nil, {Phase: v1.PodRunning}, &over} {
						m := &v1.Pod{Status: mirror}
						m.Annotations = podmeta.WithLife(nil, podmeta.AnnotationLife, of)
						got := Outlived(Life{N: n}, st, runs, m)
						if of < n && !got || of >= n && got && !podmeta.IsTerminal(mirror.Phase) {
							t.Errorf("life %d, mirror of %d, %s, runs %v, status %v: outlived %t", n, of, mirror.Phase, runs, st, got)
						}
					}
				}
			}
		}
	}
}

func TestNextLife(t *testing.T) {
	if got := (Life{UID: "u", N: 1}).Next(); got != (Life{UID: "u", N: 2}) {
		t.Errorf("next is %v", got)
	}
}
