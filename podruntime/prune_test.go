package podruntime

import (
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

// Of each container the newest dead instance is kept, for its log and its last
// state, and so is its sandbox.
func TestPrune(t *testing.T) {
	states := map[byte]observed.State{'e': observed.Exited, 'u': observed.Unknown, 'c': observed.Created, 'r': observed.Running}
	for _, tc := range []struct {
		name       string
		containers string // newest first: name, state, sandbox
		sandboxes  string // newest first: name, state
		want       string // what is left
	}{
		{"nothing dead", "ar2 br2", "2r", "ar2 br2 2r"},
		{"one dead beside one that runs", "ar2 ae2", "2r", "ar2 ae2 2r"},
		{"older ones", "ar2 ae2 ae2 ae2", "2r", "ar2 ae2 2r"},
		{"older ones and none that runs", "ae2 ae2 be2", "2r", "ae2 be2 2r"},
		{"the newest is unknown", "au2 ae2", "2r", "au2 2r"},
		{"an older one is unknown", "ae2 au2", "2r", "ae2 2r"},
		{"each name for itself", "ie2 ae2 ie2 ae2 be2", "2r", "ie2 ae2 be2 2r"},
		{"created and not started yet", "ac2 ae2", "2r", "ac2 ae2 2r"},
		{"created and never started", "ar2 ac2 ae2", "2r", "ar2 ae2 2r"},
		{"two that were never started", "ac2 ac2", "2r", "ac2 2r"},
		{"never started, between the dead", "ae2 ac2 ae2", "2r", "ae2 2r"},
		{"old sandbox, empty", "ar2", "2r 1e", "ar2 2r"},
		{"old sandbox with the newest dead one", "ar2 ae1", "2r 1e", "ar2 ae1 2r 1e"},
		{"old sandbox with older dead ones", "ar2 ae2 ae1", "2r 1e", "ar2 ae2 2r"},
		{"old sandbox that is up", "ar2", "2r 1r", "ar2 2r 1r"},
		{"only a dead sandbox", "", "1e", "1e"},
		{"three sandboxes", "ar3 be2 ae1 be1", "3r 2e 1e", "ar3 be2 ae1 3r 2e 1e"},
		{"two are to stay/2", "ar2 ae2 au2 ae2 be2 ac2", "2r", "ar2 ae2 au2 be2 2r"},
		{"all are to stay/-1", "ar2 ae2 ae2 ae1 ac2", "2r 1e", "ar2 ae2 ae2 ae1 2r 1e"},
	} {
		_, keep, _ := strings.Cut(tc.name, "/")
		r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "a")
		ids := map[string]string{}
		for i, f := range strings.Fields(tc.containers) {
			id := string(rune('A' + i))
			ids[id] = f
			r.pod.Containers = append(r.pod.Containers, observed.Container{ID: id, Name: f[:1], State: states[f[1]], SandboxID: f[2:]})
		}
		for _, f := range strings.Fields(tc.sandboxes) {
			r.pod.Sandboxes = append(r.pod.Sandboxes, observed.Sandbox{ID: f[:1], State: states[f[1]], Attempt: uint32(f[0])})
		}
		s := &syncing{m: manager(t, r), pod: w.pod, obs: r.look()}
		if keep != "" {
			s.m.cfg.KeepDead, _ = strconv.Atoi(keep)
		}
		s.prune(t.Context())
		var left []string
		for _, c := range r.look().Containers {
			left = append(left, ids[c.ID])
		}
		for _, sb := range r.look().Sandboxes {
			for _, f := range strings.Fields(tc.sandboxes) {
				if f[:1] == sb.ID {
					left = append(left, f)
				}
			}
		}
		if got := strings.Join(left, " "); got != tc.want {
			t.Errorf("%s: left %q, want %q", tc.name, got, tc.want)
		}
	}
}
