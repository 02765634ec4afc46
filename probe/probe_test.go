package probe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/probe"
)

const sec = time.Second

// exitError is what a command that ran ends with.
type exitError int

func (e exitError) Error() string   { return fmt.Sprint("exit code ", int(e)) }
func (e exitError) ExitStatus() int { return int(e) }

// runtime answers exec probes by the first word of their command, unless
// answers say otherwise of that word.
type runtime struct {
	mu      sync.Mutex
	calls   []string // container ID, word
	times   []time.Time
	answers map[string]error
	takes   time.Duration // each command
}

func (r *runtime) ExecSync(ctx context.Context, id string, cmd []string, _ time.Duration) (stdout, stderr []byte, err error) {
	r.mu.Lock()
	r.calls, r.times = append(r.calls, id+" "+cmd[0]), append(r.times, time.Now())
	err, ok := r.answers[cmd[0]]
	takes := r.takes
	r.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	switch {
	case ok:
		return []byte("out"), nil, err
	case cmd[0] == "fail":
		return []byte("out"), []byte("err"), exitError(1)
	case cmd[0] == "error":
		return nil, nil, errors.New("connection refused")
	case cmd[0] == "panic":
		panic("oops")
	case cmd[0] == "hang":
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	return []byte("fine"), nil, nil
}

func (r *runtime) say(word string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answers == nil {
		r.answers = map[string]error{}
	}
	r.answers[word] = err
}

// slow has each command take that long from now on.
func (r *runtime) slow(takes time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takes = takes
}

func (r *runtime) count(call string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if c == call {
			n++
		}
	}
	return n
}

// rig is a Manager with everything around it.
type rig struct {
	*probe.Manager
	t       *testing.T
	runtime *runtime
	journal *checkpointtest.Disk
	stop    func()

	mu      sync.Mutex
	changes []string
	streaks []probe.Streak
	events  []string
}

// Observe, EndLivenessAndStartup and Remove are for a pod's first life.
func (r *rig) Observe(pod *v1.Pod, obs *observed.Pod) {
	r.Manager.Observe(podlife.Life{UID: pod.UID}, pod, obs)
}

func (r *rig) EndLivenessAndStartup(uid types.UID) {
	r.Manager.EndLivenessAndStartup(podlife.Life{UID: uid})
}

func (r *rig) Remove(uid types.UID) { r.Manager.Remove(podlife.Life{UID: uid}) }

func (r *rig) Event(_ *v1.Pod, eventType, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, eventType+" "+reason+" "+message)
}

// newRig returns a running Manager.
func newRig(t *testing.T, cfg probe.Config) *rig {
	t.Helper()
	r := &rig{t: t, runtime: &runtime{}}
	if have, ok := cfg.Exec.(*runtime); ok {
		r.runtime = have
	}
	cfg.Exec = r.runtime
	r.journal, _ = cfg.Journal.(*checkpointtest.Disk)
	cfg.Events = r
	cfg.OnChange = func(c probe.Change) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changes = append(r.changes, fmt.Sprintf("%s %s %s", c.ContainerID, c.Type, c.Result))
		r.streaks = append(r.streaks, c.Streak)
	}
	m, err := probe.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Manager = m
	r.stop = testrun.Start(t, m.Run)
	return r
}

// wait lets time pass, and everything settle.
func (r *rig) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) want(typ probe.Type, id string, want probe.Result) {
	r.t.Helper()
	synctest.Wait()
	got, known := r.Result(typ, id)
	if !known || got != want {
		r.t.Errorf("%v: %s of %s = %s (known: %v), want %s", time.Now().Format("05.000"), typ, id, got, known, want)
	}
}

func (r *rig) wantUnknown(typ probe.Type, id string) {
	r.t.Helper()
	synctest.Wait()
	if got, known := r.Result(typ, id); known {
		r.t.Errorf("%s of %s = %s, want none", typ, id, got)
	}
}

func (r *rig) wantChanges(want ...string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.changes, want) {
		r.t.Errorf("changes:\n%s\nwant:\n%s", strings.Join(r.changes, "\n"), strings.Join(want, "\n"))
	}
}

// execProbe checks by a word that runtime knows, each second.
func execProbe(word string) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{word}}},
		PeriodSeconds: 1, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1,
	}
}

func with(c v1.Container, t probe.Type, p *v1.Probe) v1.Container {
	switch t {
	case probe.Startup:
		c.StartupProbe = p
	case probe.Readiness:
		c.ReadinessProbe = p
	case probe.Liveness:
		c.LivenessProbe = p
	}
	return c
}

// podOf is a pod of these containers, UID 1.
func podOf(containers ...v1.Container) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "1", Name: "web", Namespace: "default"},
		Spec:       v1.PodSpec{Containers: containers, RestartPolicy: v1.RestartPolicyAlways},
		Status:     v1.PodStatus{Phase: v1.PodRunning},
	}
}

// shows is what the runtime shows: pairs of a name and an ID, each of a
// container in that state.
func shows(state observed.State, pairs ...string) *observed.Pod {
	p := &observed.Pod{UID: "1", ObservedAt: time.Now(), Sandboxes: []observed.Sandbox{{ID: "s", State: observed.Running, IPs: []string{"127.0.0.1"}}}}
	for i := 0; i < len(pairs); i += 2 {
		p.Containers = append(p.Containers, observed.Container{ID: pairs[i+1], Name: pairs[i], State: state, ExitCode: new(int32), StartedAt: time.Now()})
	}
	return p
}

func running(pairs ...string) *observed.Pod { return shows(observed.Running, pairs...) }

// fresh makes the rig see how a pod's containers come into being.
func (r *rig) fresh(p *v1.Pod, pairs ...string) {
	empty := running()
	empty.UID = p.UID
	r.Observe(p, empty)
	r.Observe(p, running(pairs...))
}

var allTypes = []probe.Type{probe.Startup, probe.Readiness, probe.Liveness}

// initial are the values of a container that was just made.
var initial = map[probe.Type]probe.Result{probe.Startup: probe.Unknown, probe.Readiness: probe.Failure, probe.Liveness: probe.Success}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func keepAll(types.UID) bool { return true }

func TestLife(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, probe.Config{Journal: &checkpointtest.Disk{}})
		c := v1.Container{Name: "a", StartupProbe: execProbe("start"), ReadinessProbe: execProbe("ready"), LivenessProbe: execProbe("live")}
		c.StartupProbe.FailureThreshold = 30
		r.runtime.say("start", exitError(1))
		pod := podOf(c)
		r.fresh(pod, "a", "c1")
		for _, typ := range allTypes {
			r.want(typ, "c1", initial[typ])
		}
		r.wait(5500 * time.Millisecond)
		if r.runtime.count("c1 ready")+r.runtime.count("c1 live") != 0 || r.runtime.count("c1 start") != 6 {
			t.Errorf("calls before the startup probe succeeded: %v", r.runtime.calls)
		}
		r.runtime.say("start", nil)
		r.wait(sec)
		r.wantChanges("c1 Startup Success", "c1 Readiness Success")
		r.wait(5 * sec)
		if n := r.runtime.count("c1 start"); n != 7 {
			t.Errorf("the startup probe ran %d times, want 7: it rests", n)
		}
		r.runtime.say("live", exitError(1))
		r.wait(5 * sec)
		n := r.runtime.count("c1 live")
		r.wait(5 * sec)
		r.want(probe.Liveness, "c1", probe.Failure)
		if again := r.runtime.count("c1 live"); again != n {
			t.Error("a failed liveness probe goes on")
		}
		r.runtime.say("live", nil)
		r.Observe(pod, running("a", "c2"))
		r.wantUnknown(probe.Liveness, "c1")
		for _, typ := range allTypes[:1] {
			r.want(typ, "c2", probe.Success)
		}
		r.wait(3 * sec)
		r.wantChanges("c1 Startup Success", "c1 Readiness Success", "c1 Liveness Failure", "c2 Startup Success", "c2 Readiness Success")
		r.Remove("1")
		r.wantUnknown(probe.Readiness, "c2")
		r.stop()
	})
}

// A change says how many checks made the result, since when, and what the last one returned. A check
// with an error counts for neither result.
func TestStreak(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, probe.Config{})
		defer r.stop()
		p := execProbe("w")
		p.FailureThreshold, p.PeriodSeconds = 3, 10
		begin := time.Now()
		r.fresh(podOf(with(v1.Container{Name: "c"}, probe.Readiness, p)), "c", "1")
		r.wait(time.Minute)
		r.runtime.say("w", errors.New("the runtime does not answer"))
		r.wait(20 * time.Second)
		r.runtime.say("w", exitError(7))
		failing := time.Now()
		r.wait(time.Minute)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.streaks) != 2 {
			t.Fatalf("changes %q", r.changes)
		}
		if got := r.streaks[0]; got.Times != 1 || got.Since.Before(begin) || got.Output != "" {
			t.Errorf("the first success: %+v", got)
		}
		if got := r.streaks[1]; got.Times != 3 || got.Since.Before(failing) || got.Since.After(failing.Add(10*time.Second)) || got.Output != "out" {
			t.Errorf("the failure: %+v, failing since %v", got, failing)
		}
	})
}
