package probe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/probe/check"
)

// What the state of pod and container makes of a probe, for each type.
func TestRounds(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	never := v1.ContainerRestartPolicyNever
	rule := func(a v1.ContainerRestartRuleAction, codes ...int32) []v1.ContainerRestartRule {
		return []v1.ContainerRestartRule{{Action: a, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: codes}}}
	}
	const none = probe.Result(-1)
	for _, c := range []struct {
		name string
		edit func(*v1.Pod, *v1.Container)
		obs  func() *observed.Pod // last; nil means nothing but the pod
		want probe.Result
		goes bool // the probe is checked
		over bool // its metrics are gone
	}{
		{name: "nothing known of the pod", obs: func() *observed.Pod { return nil }, want: none},
		{name: "phase Failed", edit: func(p *v1.Pod, _ *v1.Container) { p.Status.Phase = v1.PodFailed },
			obs: func() *observed.Pod { return running() }, want: none, over: true},
		{name: "another container only", obs: func() *observed.Pod { return running("b", "c1") }, want: none},
		{name: "waiting", obs: func() *observed.Pod { return shows(observed.Created, "a", "c1") }, want: probe.Failure},
		{name: "terminated, Never", edit: func(p *v1.Pod, _ *v1.Container) { p.Spec.RestartPolicy = v1.RestartPolicyNever },
			obs: func() *observed.Pod { return shows(observed.Exited, "a", "c1") }, want: probe.Failure, over: true},
		{name: "terminated, Always", obs: func() *observed.Pod { return shows(observed.Exited, "a", "c1") }, want: probe.Failure},
		{name: "running", obs: func() *observed.Pod { return running("a", "c1") }, want: probe.Success, goes: true},
		{name: "negative initial delay", edit: func(_ *v1.Pod, c *v1.Container) {
			for _, p := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
				if p != nil {
					p.InitialDelaySeconds = -100
				}
			}
		}, obs: func() *observed.Pod { return running("a", "c1") }, want: probe.Success, goes: true},
		{name: "terminated, a rule restarts it", edit: func(p *v1.Pod, c *v1.Container) {
			p.Spec.RestartPolicy, c.RestartPolicy, c.RestartPolicyRules = v1.RestartPolicyNever, &never, rule(v1.ContainerRestartRuleActionRestart, 0)
		}, obs: func() *observed.Pod { return shows(observed.Exited, "a", "c1") }, want: probe.Failure},
		{name: "terminated, no rule for its exit code", edit: func(p *v1.Pod, c *v1.Container) {
			p.Spec.RestartPolicy, c.RestartPolicy, c.RestartPolicyRules = v1.RestartPolicyAlways, &never, rule(v1.ContainerRestartRuleActionRestart, 42)
		}, obs: func() *observed.Pod { return shows(observed.Exited, "a", "c1") }, want: probe.Failure, over: true},
		{name: "terminated, a rule restarts all", edit: func(p *v1.Pod, c *v1.Container) {
			p.Spec.RestartPolicy, c.RestartPolicy, c.RestartPolicyRules = v1.RestartPolicyNever, &never, rule(v1.ContainerRestartRuleActionRestartAllContainers, 0)
		}, obs: func() *observed.Pod { return shows(observed.Exited, "a", "c1") }, want: probe.Failure},
		{name: "terminated sidecar, Never", edit: func(p *v1.Pod, c *v1.Container) {
			p.Spec.RestartPolicy, c.RestartPolicy = v1.RestartPolicyNever, &always
			p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil
		}, obs: func() *observed.Pod { return shows(observed.Exited, "a", "c1") }, want: probe.Failure},
		{name: "plain init container", edit: func(p *v1.Pod, _ *v1.Container) {
			p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil
		}, obs: func() *observed.Pod { return running("a", "c1") }, want: none, over: true},
	} {
		for _, typ := range allTypes {
			t.Run(fmt.Sprint(c.name, "/", typ), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					reg := prometheus.NewRegistry()
					r := newRig(t, probe.Config{Metrics: reg})
					pod := podOf(with(v1.Container{Name: "a"}, typ, execProbe("ok")))
					first := pod.DeepCopy() // as it was, so that there are metrics to lose
					r.fresh(first, "a", "c0")
					r.wait(2 * sec)
					if c.edit != nil {
						c.edit(pod, &pod.Spec.Containers[0])
					}
					obs := c.obs()
					if obs == nil {
						r.Remove("1")
					}
					r.Observe(pod, obs)
					r.wait(2 * sec)
					got, known := r.Result(typ, "c1")
					if !known {
						got = none
					}
					if got != c.want {
						t.Errorf("result = %v, want %v", got, c.want)
					}
					if goes := r.runtime.count("c1 ok") > 0; goes != c.goes {
						t.Errorf("checked: %v, want %v", goes, c.goes)
					}
					if over := len(seriesOf(t, reg)) == 0; over != (c.over || obs == nil) {
						t.Errorf("metrics gone: %v, want %v: %v", over, c.over, seriesOf(t, reg))
					}
				})
			})
		}
	}
}

// seriesOf lists the metric series that have a container's name.
func seriesOf(t *testing.T, reg *prometheus.Registry) (out []string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			if s := strings.Join(labels, ","); strings.Contains(s, "container=") {
				out = append(out, fmt.Sprintf("%s{%s} %v", f.GetName(), s, m.GetCounter().GetValue()+float64(m.GetHistogram().GetSampleCount())))
			}
		}
	}
	return out
}

func TestDeletionEndsLivenessAndStartup(t *testing.T) {
	for _, how := range []string{"called", "deletion time", "sidecar"} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, probe.Config{})
			c := v1.Container{Name: "a", StartupProbe: execProbe("fail"), ReadinessProbe: execProbe("ok"), LivenessProbe: execProbe("fail")}
			c.StartupProbe.FailureThreshold = 100
			pod := podOf(c)
			if how == "sidecar" {
				always := v1.ContainerRestartPolicyAlways
				pod.Spec.Containers[0].RestartPolicy = &always
				pod.Spec.InitContainers, pod.Spec.Containers = pod.Spec.Containers, nil
			}
			r.fresh(pod, "a", "c1")
			r.wait(3 * sec)
			if how == "deletion time" {
				pod = pod.DeepCopy()
				pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
				r.Observe(pod, running("a", "c1"))
			} else {
				r.EndLivenessAndStartup("1")
				r.EndLivenessAndStartup("no such pod")
			}
			before := r.runtime.count("c1 fail")
			r.wait(5 * sec)
			for _, typ := range allTypes {
				r.want(typ, "c1", probe.Success)
			}
			if n := r.runtime.count("c1 fail"); n != before || r.runtime.count("c1 ok") < 4 {
				t.Errorf("%s: liveness and startup ran %d times more, readiness %d times", how, n-before, r.runtime.count("c1 ok"))
			}
			r.wantChanges("c1 Readiness Success")
			r.Observe(pod, shows(observed.Exited, "a", "c1"))
			r.want(probe.Readiness, "c1", probe.Failure)
		})
	}
}

// The end of one life ends no probe of the next, and what comes late of it changes nothing.
func TestNextLifeIsProbedAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, probe.Config{})
		pod := podOf(v1.Container{Name: "a", ReadinessProbe: execProbe("ok"), LivenessProbe: execProbe("fail")})
		r.fresh(pod, "a", "c1")
		r.EndLivenessAndStartup("1")
		r.wait(5 * sec)
		r.want(probe.Liveness, "c1", probe.Success)
		next := podlife.Life{UID: "1", N: 1}
		r.Manager.Observe(next, pod, running("a", "c2"))
		r.wait(5 * sec)
		r.EndLivenessAndStartup("1")
		r.Observe(pod, shows(observed.Exited, "a", "c2"))
		r.Remove("1")
		r.want(probe.Liveness, "c2", probe.Failure)
		r.want(probe.Readiness, "c2", probe.Success)
		r.Manager.Remove(next)
		if _, known := r.Result(probe.Readiness, "c2"); known {
			t.Error("results of a life that is over are kept")
		}
	})
}

func TestInitialDelay(t *testing.T) {
	for _, typ := range allTypes {
		bubble(t, func(t *testing.T) {
			r := newRig(t, probe.Config{})
			p := execProbe("ok")
			p.InitialDelaySeconds = 10
			r.fresh(podOf(with(v1.Container{Name: "a"}, typ, p)), "a", "c1")
			r.wait(9900 * time.Millisecond)
			r.want(typ, "c1", initial[typ])
			if n := r.runtime.count("c1 ok"); n != 0 {
				t.Errorf("%s was checked %d times before its delay was over", typ, n)
			}
			r.wait(1100 * time.Millisecond)
			r.want(typ, "c1", probe.Success)
		})
	}
}

func TestThresholds(t *testing.T) {
	for _, c := range []struct {
		name             string
		typ              probe.Type
		success, failure int32
		rounds           string // s or f, one each second
		want             string // the result after each: s, f, u
	}{
		{"three successes, one failure", probe.Readiness, 3, 1, "sssfssfsss", "ffsffffffs"},
		{"three failures", probe.Liveness, 1, 3, "ffsfff", "sssssf"},
		{"on hold after a failure", probe.Liveness, 1, 2, "ffssss", "sfffff"},
		{"startup fails", probe.Startup, 1, 3, "fffsss", "uuffff"},
		{"startup succeeds", probe.Startup, 1, 3, "ffsfff", "uussss"},
		{"startup needs two", probe.Startup, 2, 3, "fsss", "uuss"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, probe.Config{Adjust: func(_ *v1.Pod, _ *v1.Container, _ probe.Type, timing *check.Timing) { timing.Spread = 0 }})
				p := execProbe("x")
				p.SuccessThreshold, p.FailureThreshold = c.success, c.failure
				pod := podOf(with(v1.Container{Name: "a"}, c.typ, p))
				empty := running()
				r.Observe(pod, empty)
				for i, round := range c.rounds {
					r.runtime.say("x", map[rune]error{'s': nil, 'f': exitError(1)}[round])
					if i == 0 {
						r.Observe(pod, running("a", "c1"))
						r.wait(0)
					} else {
						r.wait(sec / 2)
					}
					want := map[byte]probe.Result{'s': probe.Success, 'f': probe.Failure, 'u': probe.Unknown}[c.want[i]]
					if got, _ := r.Result(c.typ, "c1"); got != want {
						t.Errorf("after round %d of %s: %v, want %v", i+1, c.rounds, got, want)
					}
					r.wait(sec / 2)
				}
				// A new container counts afresh. Its first check begins at once, and has no
				// answer while the runtime's lock is held.
				r.runtime.say("x", nil)
				r.runtime.mu.Lock()
				r.Observe(pod, running("a", "c2"))
				got, _ := r.Result(c.typ, "c2")
				r.runtime.mu.Unlock()
				if got != initial[c.typ] {
					t.Errorf("a new container begins with %v, want %v", got, initial[c.typ])
				}
				r.wait(time.Duration(c.success)*sec - sec/2)
				r.want(c.typ, "c2", probe.Success)
			})
		})
	}
}

// An error leaves what was found out, and what was counted.
func TestErrorsFlipNothing(t *testing.T) {
	for _, word := range []string{"error", "panic"} {
		for _, typ := range allTypes {
			bubble(t, func(t *testing.T) {
				r := newRig(t, probe.Config{})
				r.fresh(podOf(with(v1.Container{Name: "a"}, typ, execProbe(word))), "a", "c1")
				r.wait(time.Minute)
				r.want(typ, "c1", initial[typ])
				r.wantChanges()
				if len(r.events) < 50 || !strings.HasPrefix(r.events[0], fmt.Sprintf("Warning Unhealthy %s probe errored and resulted in unknown state: ", typ)) {
					t.Errorf("%d events, the first: %q", len(r.events), r.events[0])
				}
			})
		}
	}
}

// A runtime that hangs is no failure of containers; a command that hangs while
// the runtime answers others is.
func TestHungExec(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, probe.Config{})
		hang := with(v1.Container{Name: "a"}, probe.Liveness, execProbe("hang"))
		r.fresh(podOf(hang), "a", "c1")
		r.wait(time.Minute)
		r.want(probe.Liveness, "c1", probe.Success)
		r.fresh(podOf(hang, with(v1.Container{Name: "b"}, probe.Liveness, execProbe("ok"))), "a", "c1", "b", "b1")
		r.wait(10 * sec)
		r.want(probe.Liveness, "c1", probe.Failure)
	})
}

// The only command of a node may hang, or leave something behind that holds its
// output: a runtime that answers otherwise does not hang.
func TestHungExecAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		answers func(context.Context) error
		want    probe.Result
	}{
		"it answers":       {func(context.Context) error { return nil }, probe.Failure},
		"it does not":      {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, probe.Success},
		"it cannot be had": {func(context.Context) error { return errors.New("connection refused") }, probe.Success},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, probe.Config{Answers: tc.answers})
				r.fresh(podOf(with(v1.Container{Name: "a"}, probe.Liveness, execProbe("hang"))), "a", "c1")
				r.wait(time.Minute)
				r.want(probe.Liveness, "c1", tc.want)
			})
		})
	}
}

func TestSpecEdits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, probe.Config{})
		pod := podOf(with(v1.Container{Name: "a"}, probe.Readiness, execProbe("ok")))
		r.fresh(pod, "a", "c1")
		r.wait(2 * sec)
		pod = pod.DeepCopy()
		pod.Spec.Containers[0].ReadinessProbe.Exec.Command[0] = "fail"
		r.Observe(pod, running("a", "c1"))
		r.want(probe.Readiness, "c1", probe.Success) // until more is known
		r.wait(2 * sec)
		r.want(probe.Readiness, "c1", probe.Failure)
		pod = pod.DeepCopy()
		pod.Spec.Containers[0].ReadinessProbe, pod.Spec.Containers[0].LivenessProbe = nil, execProbe("live")
		r.Observe(pod, running("a", "c1"))
		r.wantUnknown(probe.Readiness, "c1")
		r.wait(2 * sec)
		if !r.Ready("c1") || r.runtime.count("c1 live") == 0 {
			t.Error("without a readiness probe the container is ready, and its new liveness probe runs")
		}
		pod = pod.DeepCopy()
		pod.Spec.Containers[0].Name = "other"
		r.Observe(pod, running("a", "c1"))
		r.wantUnknown(probe.Liveness, "c1")
	})
}

func TestReadyAndStarted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, probe.Config{})
		pod := podOf(
			v1.Container{Name: "plain"},
			v1.Container{Name: "good", ReadinessProbe: execProbe("ok")},
			v1.Container{Name: "bad", ReadinessProbe: execProbe("fail")},
			v1.Container{Name: "pending", StartupProbe: execProbe("error"), ReadinessProbe: execProbe("ok")},
			v1.Container{Name: "done", StartupProbe: execProbe("ok")},
		)
		r.runtime.slow(time.Millisecond)
		r.fresh(pod, "plain", "1", "good", "2", "bad", "3", "pending", "4", "done", "5")
		if r.Ready("2") {
			t.Error("ready before it was asked")
		}
		r.wait(3 * sec)
		for id, want := range map[string][2]bool{
			"1": {true, true}, "2": {true, true}, "3": {true, false}, "4": {false, false}, "5": {true, true}, "6": {false, false},
		} {
			if got := [2]bool{r.Started(id), r.Ready(id)}; got != want {
				t.Errorf("container %s: started and ready are %v, want %v", id, got, want)
			}
		}
		r.Observe(pod, shows(observed.Exited, "good", "2"))
		if r.Ready("2") {
			t.Error("ready after its end")
		}
	})
}

func TestReadinessFlips(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, probe.Config{Journal: &checkpointtest.Disk{}})
		r.fresh(podOf(with(v1.Container{Name: "a"}, probe.Readiness, execProbe("x"))), "a", "c1")
		r.wait(3 * sec)
		r.runtime.say("x", exitError(1))
		r.wait(3 * sec)
		r.runtime.say("x", nil)
		r.wait(3 * sec)
		r.wantChanges("c1 Readiness Success", "c1 Readiness Failure", "c1 Readiness Success")
	})
}

func TestRemoveIsIdempotent(t *testing.T) {
	for _, typ := range allTypes {
		bubble(t, func(t *testing.T) {
			r := newRig(t, probe.Config{})
			pod := podOf(with(v1.Container{Name: "a"}, typ, execProbe("hang")), v1.Container{Name: "plain"})
			r.fresh(pod, "a", "c1", "plain", "p1")
			r.Observe(pod, running("a", "c1", "plain", "p1")) // nothing changes
			r.wait(sec / 2)
			for range 2 {
				r.Remove("1")
				r.Retain(func(types.UID) bool { return false })
				r.wantUnknown(typ, "c1")
			}
			r.wait(10 * sec)
			r.wantChanges()
			r.stop()
		})
	}
}

// The end of the agent is no failure of anybody.
func TestShutdownFlipsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &checkpointtest.Disk{}
		r := newRig(t, probe.Config{Journal: d})
		r.fresh(podOf(with(v1.Container{Name: "a"}, probe.Liveness, execProbe("hang")), with(v1.Container{Name: "b"}, probe.Readiness, execProbe("ok"))), "a", "c1", "b", "b1")
		r.wait(1500 * time.Millisecond)
		r.stop()
		r.want(probe.Liveness, "c1", probe.Success)
		r.want(probe.Readiness, "b1", probe.Success)
		r.wantChanges("b1 Readiness Success")
	})
}

func TestMetricsAndEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		r := newRig(t, probe.Config{Metrics: reg})
		pod := podOf(with(v1.Container{Name: "a"}, probe.Readiness, execProbe("x")))
		r.runtime.say("x", exitError(1))
		r.fresh(pod, "a", "c1")
		r.wait(100 * time.Millisecond)
		r.runtime.say("x", nil)
		r.wait(sec)
		labels := "container=a,namespace=default,pod=web,"
		want := []string{
			"prober_probe_duration_seconds{" + labels + "probe_type=Readiness} 2",
			"prober_probe_total{" + labels + "pod_uid=1,probe_type=Readiness,result=failed} 1",
			"prober_probe_total{" + labels + "pod_uid=1,probe_type=Readiness,result=successful} 1",
		}
		if got := seriesOf(t, reg); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("series:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if len(r.events) != 1 || r.events[0] != "Warning Unhealthy Readiness probe failed: out" {
			t.Errorf("events: %q", r.events)
		}
		// A pod of the same name, as of a static pod that was edited.
		again := pod.DeepCopy()
		again.UID = "2"
		r.fresh(again, "a", "d1")
		r.wait(100 * time.Millisecond)
		r.Remove("1")
		if got := seriesOf(t, reg); len(got) != 2 || !strings.Contains(got[0], "duration") {
			t.Errorf("series when the first pod is gone: %v, want those of the second", got)
		}
		r.Remove("2")
		if got := seriesOf(t, reg); len(got) != 0 {
			t.Errorf("series when both are gone: %v", got)
		}
	})
}

// raw outcomes of a check, and what they become, for each type.
func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		name string
		o    check.Outcome
		err  error
		want probe.Result // Unknown: what was there before
		says string       // the event; %s is the type
	}{
		{"success", check.Success, nil, probe.Success, ""},
		{"warning", check.Warning, nil, probe.Success, "Warning ProbeWarning %s probe warning: output"},
		{"failure", check.Failure, nil, probe.Failure, "Warning Unhealthy %s probe failed: output"},
		{"unknown", check.Unknown, nil, probe.Failure, ""},
		{"success, error", check.Success, exitError(1), probe.Unknown, "Warning Unhealthy %s probe errored and resulted in success state: exit code 1"},
		{"warning, error", check.Warning, exitError(1), probe.Unknown, "Warning Unhealthy %s probe errored and resulted in warning state: exit code 1"},
		{"failure, error", check.Failure, exitError(1), probe.Unknown, "Warning Unhealthy %s probe errored and resulted in failure state: exit code 1"},
		{"unknown, error", check.Unknown, exitError(1), probe.Unknown, "Warning Unhealthy %s probe errored and resulted in unknown state: exit code 1"},
	} {
		for _, typ := range allTypes {
			t.Run(fmt.Sprint(c.name, "/", typ), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					asked := 0
					r := newRig(t, probe.Config{GRPC: func(_ context.Context, addr, service string) (check.Outcome, string, error) {
						if asked++; addr != "127.0.0.1:9000" || service != "svc" {
							t.Errorf("asked %s about %q", addr, service)
						}
						return c.o, "output", c.err
					}})
					service := "svc"
					p := &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 9000, Service: &service}}, FailureThreshold: 1, PeriodSeconds: 10}
					r.fresh(podOf(with(v1.Container{Name: "a"}, typ, p)), "a", "c1")
					r.wait(10 * sec)
					want := c.want
					if want == probe.Unknown {
						want = initial[typ]
					}
					r.want(typ, "c1", want)
					says := ""
					if len(r.events) > 0 {
						says = r.events[0]
					}
					if want := strings.ReplaceAll(c.says, "%s", typ.String()); says != want {
						t.Errorf("event %q, want %q", says, want)
					}
					if c.err != nil && asked < 3 {
						t.Errorf("%d attempts, want 3", asked)
					}
				})
			})
		}
	}
}

// A probe that says nothing, or that nobody can make, errs.
func TestMissing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, probe.Config{})
		pod := podOf(
			with(v1.Container{Name: "a"}, probe.Liveness, &v1.Probe{}),
			with(v1.Container{Name: "b"}, probe.Liveness, &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 1}}}),
			with(v1.Container{Name: "c"}, probe.Liveness, &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromString("web")}}}),
		)
		r.fresh(pod, "a", "1", "b", "2", "c", "3")
		r.wait(12 * sec)
		all := strings.Join(r.events, "\n")
		for _, want := range []string{
			"state: container \"a\": the probe has none of exec, httpGet, tcpSocket and grpc",
			"state: this agent does not support grpc probes",
			"state: port \"web\": want a number from 1 to 65535 or the name of a port of container \"c\"",
		} {
			if !strings.Contains(all, want) {
				t.Errorf("no event says %q:\n%s", want, all)
			}
		}
		r.wantChanges()
	})
}

// With FastStart a container is ready soon after it is, and fails no sooner.
func TestFastStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, probe.Config{FastStart: true})
		c := v1.Container{Name: "a", StartupProbe: execProbe("start")}
		c.StartupProbe.PeriodSeconds, c.StartupProbe.FailureThreshold = 10, 3
		r.runtime.say("start", exitError(1))
		r.fresh(podOf(c), "a", "c1")
		r.wait(sec)
		r.runtime.say("start", nil)
		r.wait(sec)
		r.wantChanges("c1 Startup Success")
		if n := len(r.events); n != 1 {
			t.Errorf("%d events, want one of the regular check: %q", n, r.events)
		}
	})
}
