package explain_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/agent/internal/explain"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/record"
)

// night is the day on which all incidents happen, at times like "03:12:07".
func night(clock string) time.Time {
	t, err := time.ParseInLocation(time.DateTime, "2030-01-02 "+clock, time.Local)
	if err != nil {
		panic(err)
	}
	return t
}

// tape builds the entries of an incident.
type tape struct {
	pod     record.Pod
	boot    string
	entries []record.Entry
}

func newTape() *tape {
	return &tape{pod: record.Pod{Namespace: "shop", Name: "web", UID: "1"}, boot: "a"}
}

// on adds a fact about the container app, of about the pod or node if it is none of a container.
func (t *tape) on(clock string, fact record.Fact) *tape {
	e := record.Entry{At: night(clock), Boot: t.boot, Pod: t.pod, Fact: fact}
	switch fact.(type) {
	case *record.Instance, *record.Probe, *record.Image, *record.Devices:
		e.Container = "app"
	case *record.Begin, *record.Stop, *record.Clock, *record.Condition, *record.Plugin, *record.Happened:
		e.Pod = record.Pod{}
	}
	t.entries = append(t.entries, e)
	return t
}

// runs adds an instance that was started, and with an end "" goes on.
func (t *tape) runs(id string, restarts int32, start, end string, code int32, reason string) *tape {
	f := record.Instance{ID: id, State: "running", Restarts: restarts, Started: night(start), Limit: 64 << 20}
	at := start
	if end != "" {
		f.State, f.Finished, f.ExitCode, f.Reason = "exited", night(end), &code, reason
		at = end
	}
	return t.on(at, &f)
}

// ends adds the decision to end an instance.
func (t *tape) ends(clock, id string, why podlife.Kind) *tape {
	return t.on(clock, &record.Decision{Result: record.Result{Regular: []record.Act{{Name: "app", ID: id, Do: "end", Why: why, Again: true}}}})
}

func (t *tape) begins() *tape {
	return t.on("01:00:00", &record.Begin{Node: "edge-7"}).
		on("01:00:01", &record.Wanted{Op: "ADD", Source: "file", Containers: []record.Image{{Container: "app", Image: "web:1"}}}).
		on("01:00:01", &record.Verdict{Admitted: true}).runs("a", 0, "01:00:02", "", 0, "").on("01:00:03", &record.Status{Phase: "Running", Ready: true})
}

// Incidents, and what the answer to "agent why --at" has to say.
func TestPastOfIncidents(t *testing.T) {
	for _, tc := range []struct {
		name string
		tape *tape
		at   string // with seconds, or without
		node bool
		want []string
	}{
		{"probe, after an OOM kill", newTape().begins().runs("a", 0, "01:00:02", "02:57:58", 137, "OOMKilled").runs("b", 1, "02:58:00", "", 0, "").
			on("03:12:07", &record.Probe{ID: "b", Type: "liveness", How: "http", Target: "10.1.2.3:8080/healthz", Times: 3, Since: night("03:11:37"), Code: 503}).
			ends("03:12:07", "b", podlife.LivenessFailed).runs("b", 1, "02:58:00", "03:12:07", 143, "Error").runs("c", 2, "03:12:07", "", 0, ""), "03:12", false,
			[]string{"shop/web restarted at 03:12:07: the liveness probe failed three times, HTTP 503 from 10.1.2.3:8080/healthz, since 03:11:37; the container had been started at 02:58:00 after an OOM kill (limit 64 MiB)"}},
		{"OOM", newTape().begins().runs("a", 0, "01:00:02", "02:57:58", 137, "OOMKilled").runs("b", 1, "02:57:59", "", 0, ""), "02:57:59", false,
			[]string{"restarted at 02:57:59: it was killed for using more than its memory limit of 64 MiB; the container had been started at 01:00:02"}},
		{"crash", newTape().begins().runs("a", 0, "01:00:02", "02:00:00", 3, "Error").
			on("02:00:00", &record.Decision{Result: record.Result{Regular: []record.Act{{Name: "app", ID: "a", Do: "wait", Why: podlife.CrashLoop, Until: night("02:00:10")}}}}), "02:00", false,
			[]string{"lost container app at 02:00:00: it ended with exit code 3", "had to wait until 02:00:10 for its next start (CrashLoopBackOff)"}},
		{"startup probe by a command", newTape().begins().on("01:05:00", &record.Probe{ID: "a", Type: "startup", How: "exec", Times: 30, Since: night("01:00:10")}).
			ends("01:05:00", "a", podlife.StartupFailed).runs("a", 0, "01:00:02", "01:05:01", 143, "Error"), "01:05", false,
			[]string{"the startup probe failed 30 times, its command exited with an error, since 01:00:10"}},
		{"eviction", newTape().begins().on("02:10:00", &record.Condition{Type: "MemoryPressure", On: true, Reason: "KubeletHasInsufficientMemory"}).
			on("02:10:05", &record.Verdict{Kind: podlife.Evicted, Message: "The node was low on resource: memory. Container app was using 80Mi, request is 0."}).
			runs("a", 0, "01:00:02", "02:10:06", 137, "Error").on("02:10:06", &record.Status{Phase: "Failed", Reason: "Evicted"}), "02:10", false,
			[]string{"ended at 02:10:05: it was evicted, as the node ran short (MemoryPressure since 02:10:00): The node was low on resource: memory. Container app was using 80Mi, request is 0", "02:10:00 the node had MemoryPressure"}},
		{"eviction for its own limit", newTape().begins().on("02:10:05", &record.Verdict{Kind: podlife.OverLimit, Message: `Usage of EmptyDir volume "tmp" exceeds the limit "1Mi".`}), "02:10", false,
			[]string{"it used more local storage than its own limit", `volume "tmp"`}},
		{"preemption", newTape().begins().on("02:10:05", &record.Verdict{Kind: podlife.Preempted}).runs("a", 0, "01:00:02", "02:10:06", 137, ""), "02:10", false,
			[]string{"ended at 02:10:05: it was preempted: it made room for a critical pod"}},
		{"shutdown of the machine", func() *tape {
			t := newTape().begins().on("02:10:05", &record.Verdict{Kind: podlife.Shutdown}).runs("a", 0, "01:00:02", "02:10:06", 143, "").on("02:10:09", &record.Stop{})
			t.boot = "b"
			return t.on("02:15:00", &record.Begin{Node: "edge-7"}).runs("b", 1, "02:15:03", "", 0, "")
		}(), "02:10", false, []string{"ended at 02:10:05: it was ended, as the machine goes down", "02:10:09 the agent was stopped"}},
		{"power cut", func() *tape {
			t := newTape().begins()
			t.boot = "b"
			return t.on("02:15:00", &record.Begin{Node: "edge-7"}).runs("a", 0, "01:00:02", "02:14:50", 255, "Unknown").runs("b", 1, "02:15:03", "", 0, "")
		}(), "02:15:03", false, []string{"restarted at 02:15:03: the machine went down; the container had been started at 01:00:02", "02:15:00 the machine was started again after it had gone down without notice"}},
		{"kill of the agent", newTape().begins().on("02:15:00", &record.Begin{Node: "edge-7"}), "02:15", false,
			[]string{"at 02:15:00: the agent was started again", "after it had been killed or had crashed"}},
		{"the node of the same", newTape().begins().on("02:15:00", &record.Begin{Node: "edge-7"}), "02:15", true,
			[]string{"edge-7 at 02:15:00: the agent was started again"}},
		{"upgrade of the agent", newTape().begins().on("02:14:00", &record.Stop{}).on("02:15:00", &record.Begin{Node: "edge-7", Version: "v2"}), "02:15", false,
			[]string{"the agent was started again v2"}},
		{"clock jump", newTape().begins().on("02:20:00", &record.Clock{By: -2 * time.Hour}), "02:20", true,
			[]string{"the clock of the machine was set back by 120m"}},
		{"image gone", newTape().begins().on("02:20:00", &record.Image{Image: "web:2", Reason: "ErrImagePull", Error: "not found"}), "02:20", false,
			[]string{"image web:2 of container app could not be pulled: ErrImagePull (not found)"}},
		{"volume hung", newTape().begins().on("02:20:00", &record.Sync{Reason: "FailedMount", Error: "timed out", Volumes: []string{"data"}, Hung: true}).
			on("02:30:00", &record.Sync{}), "02:20", false,
			[]string{"it could not be synced: FailedMount (timed out); volume data is not mounted, and the disk or the driver does not answer"}},
		{"volume works again", newTape().begins().on("02:20:00", &record.Sync{Reason: "FailedMount", Volumes: []string{"data"}}).on("02:30:00", &record.Sync{}), "02:31", false,
			[]string{"its sync succeeded again, after 10m"}},
		{"device lost", newTape().begins().on("02:20:00", &record.Plugin{Name: "nvidia.com/gpu", Gone: true}).on("02:20:01", &record.Devices{Resource: "nvidia.com/gpu", Unknown: 1}), "02:20", false,
			[]string{"the health of 1 of the devices nvidia.com/gpu of container app is unknown", "the plugin of nvidia.com/gpu went away"}},
		{"rejection", newTape().on("01:00:01", &record.Wanted{Op: "ADD"}).on("01:00:01", &record.Verdict{Kind: podlife.Rejected, Reason: "OutOfcpu", Message: "requested 4, 2 are free"}), "01:00", false,
			[]string{"did not start at 01:00:01: the node rejected it: OutOfcpu: requested 4, 2 are free"}},
		{"wait for room", newTape().on("01:00:01", &record.Wanted{Op: "ADD"}).on("01:00:01", &record.Verdict{Kind: podlife.Waits, Reason: "OutOfmemory"}).on("01:03:00", &record.Verdict{Admitted: true}), "01:03", false,
			[]string{"at 01:03:00: it was admitted after its wait", "it waits to be admitted: OutOfmemory"}},
		{"manifest edited", func() *tape {
			t := newTape().begins().on("02:20:00", &record.Wanted{Op: "REMOVE", Source: "file"})
			t.runs("a", 0, "01:00:02", "02:20:03", 143, "")
			t.pod.UID = "2"
			return t.on("02:20:01", &record.Wanted{Op: "ADD", Source: "file", Containers: []record.Image{{Container: "app", Image: "web:2"}}}).runs("b", 0, "02:20:04", "", 0, "")
		}(), "02:20:03", false, []string{"lost container app at 02:20:03: its definition was changed: image of container app from web:1 to web:2"}},
		{"manifest edited back", func() *tape {
			t := newTape().begins().on("02:20:00", &record.Wanted{Op: "REMOVE", Source: "file"})
			t.pod.UID = "2"
			t.on("02:20:01", &record.Wanted{Op: "ADD", Source: "file", Containers: []record.Image{{Container: "app", Image: "web:2"}}})
			t.on("02:25:00", &record.Wanted{Op: "REMOVE", Source: "file"})
			t.pod.UID = "1"
			return t.on("02:25:01", &record.Wanted{Op: "ADD", Source: "file", Containers: []record.Image{{Container: "app", Image: "web:1"}}})
		}(), "02:25", false, []string{"its definition was changed back to an earlier one: image of container app from web:2 to web:1"}},
		{"definition changed", newTape().begins().on("02:20:00", &record.Wanted{Op: "UPDATE", Generation: 2, Containers: []record.Image{{Container: "app", Image: "web:2"}}}).
			ends("02:20:00", "a", podlife.Changed).runs("a", 0, "01:00:02", "02:20:01", 143, "").runs("b", 1, "02:20:02", "", 0, ""), "02:20", false,
			[]string{"restarted at 02:20:02: its definition was changed, and it starts anew with the new one"}},
		{"resize", newTape().begins().ends("02:20:00", "a", podlife.Resized).runs("a", 0, "01:00:02", "02:20:01", 143, "").runs("b", 1, "02:20:02", "", 0, ""), "02:20", false,
			[]string{"its resources were changed, and its resizePolicy wants a restart"}},
		{"removal", newTape().begins().on("02:20:00", &record.Wanted{Op: "REMOVE", Source: "file"}).runs("a", 0, "01:00:02", "02:20:03", 143, ""), "02:20", false,
			[]string{"at 02:20:00: it was removed from its source (file)", "container app ended after 80m: it was removed from its source (file)"}},
		{"deletion", newTape().begins().on("02:20:00", &record.Wanted{Op: "DELETE", Source: "api"}).runs("a", 0, "01:00:02", "02:20:03", 143, "").on("02:20:04", &record.Wanted{Op: "REMOVE", Source: "api"}), "02:20", false,
			[]string{"at 02:20:00: its deletion was asked for", "container app ended after 80m: its deletion was asked for", "02:20:04 it was removed from its source (api)"}},
		{"gone after its deletion", newTape().begins().on("02:20:00", &record.Wanted{Op: "DELETE", Source: "api"}).on("02:20:04", &record.Wanted{Op: "REMOVE", Source: "api"}), "04:00", false,
			[]string{"was gone at 04:00:00"}},
		{"put back", newTape().begins().on("02:20:00", &record.Wanted{Op: "REMOVE", Source: "file"}).runs("a", 0, "01:00:02", "02:20:03", 143, "").
			on("02:25:00", &record.Wanted{Op: "ADD", Source: "file"}).runs("b", 0, "02:25:01", "02:30:00", 3, "Error"), "02:30", false,
			[]string{"lost container app at 02:30:00: it ended with exit code 3", "02:25:00 it was added to its source (file) again", "app ended after 80m: it was removed from its source (file)"}},
		{"a wait that is over", newTape().on("02:20:00", &record.Wanted{Op: "ADD"}).on("02:20:00", &record.Verdict{Kind: podlife.Waits, Reason: "StartOrder"}).
			on("02:20:07", &record.Verdict{Admitted: true}).runs("a", 0, "02:20:09", "", 0, ""), "02:20", false,
			[]string{"started container app at 02:20:09 for the first time", "02:20:00 it waits to be admitted: StartOrder"}},
		{"power cut within a second after a start", func() *tape {
			t := newTape().begins()
			t.boot = "b"
			return t.on("02:15:00", &record.Begin{Node: "edge-7"}).runs("a", 0, "01:00:02", "02:14:50", 255, "Unknown").runs("lost", 1, "02:14:10", "02:15:01", 255, "Unknown").runs("c", 2, "02:15:03", "", 0, "")
		}(), "02:15:03", false, []string{"restarted at 02:15:03: the machine went down; the container had been started at 02:14:10"}},
		{"sandbox killed", newTape().begins().on("02:20:00", &record.Decision{Input: record.Input{Runs: []record.Observed{{ID: "a", State: "running"}}}, Result: record.Result{Make: true, Attempt: 1, Lack: "pod sandbox is not ready"}}).
			runs("a", 0, "01:00:02", "02:20:01", 0, "").runs("b", 1, "02:20:05", "", 0, ""), "02:20", false,
			[]string{"restarted at 02:20:05: its sandbox was made again: pod sandbox is not ready"}},
		{"postStart hook", newTape().begins().runs("a", 0, "01:00:02", "01:00:03", 0, "").on("01:00:04", &record.Sync{Reason: "PostStartHookError"}).runs("b", 1, "01:00:05", "01:00:06", 0, "").
			on("01:00:07", &record.Sync{Reason: "CrashLoopBackOff"}).runs("c", 2, "01:00:14", "01:00:20", 3, "Error").runs("d", 3, "01:00:21", "", 0, ""), "01:00:14", false,
			[]string{"restarted at 01:00:14: its postStart hook failed; the container had been started at 01:00:05 after a failed postStart hook", "container app ended after 1s: its postStart hook failed",
				"container app ended after 6s: it ended with exit code 3"}},
		{"image gone before", newTape().on("01:00:01", &record.Wanted{Op: "ADD", Source: "file"}).on("01:00:02", &record.Image{Image: "web:2", Reason: "ErrImagePull", Error: "not found"}).
			on("01:00:09", &record.SandboxRun{Took: 7 * time.Second}), "02:00", false,
			[]string{"nothing happened then; before, at 01:00:02: image web:2 of container app could not be pulled: ErrImagePull (not found)"}},
		{"runtime away", newTape().begins().on("02:20:00", &record.Condition{Type: record.RuntimeUnavailable, On: true, Reason: "connection refused"}).
			on("02:21:00", &record.Condition{Type: record.RuntimeUnavailable}), "02:20", true,
			[]string{"at 02:20:00: the container runtime did not answer: connection refused", "02:21:00 the container runtime answered again"}},
		{"gone long ago", newTape().begins().on("02:20:00", &record.Wanted{Op: "REMOVE", Source: "file"}).runs("a", 0, "01:00:02", "02:20:03", 143, ""), "04:00", false,
			[]string{"was gone at 04:00:00, and nothing happened then; before, it lost container app at 02:20:03"}},
		{"at rest", newTape().begins(), "02:20", false, []string{"ran and was ready at 02:20:00, and nothing happened then; before, it started container app at 01:00:02 for the first time"}},
		{"sandbox gone", newTape().begins().on("02:20:00", &record.Decision{Result: record.Result{Make: true, Attempt: 1, Lack: "pod sandbox is not ready"}}), "02:20", false,
			[]string{"its sandbox was made again: pod sandbox is not ready"}},
		{"readiness", newTape().begins().on("02:20:00", &record.Probe{ID: "a", Type: "readiness", How: "tcp", Target: "10.1.2.3:80", Error: "connection refused", Times: 1}).on("02:20:00", &record.Status{Phase: "Running"}), "02:20", false,
			[]string{"the readiness probe of container app failed once, 10.1.2.3:80: connection refused", "it was not ready any more"}},
		{"not ready since", newTape().begins().on("02:20:00", &record.Probe{ID: "a", Type: "readiness", How: "tcp", Target: "10.1.2.3:80", Error: "connection refused", Times: 1}).on("02:20:00", &record.Status{Phase: "Running"}), "04:00", false,
			[]string{"ran, and was not ready at 04:00:00, and nothing happened then; before, at 02:20:00: the readiness probe of container app failed once, 10.1.2.3:80: connection refused"}},
		{"deadline", newTape().begins().on("02:20:00", &record.Verdict{Kind: podlife.DeadlineExceeded}), "02:20", false, []string{"ended at 02:20:00: it ran for longer than its spec.activeDeadlineSeconds"}},
		{"before the record", newTape().begins(), "00:30", false, []string{"is not in the record at 00:30:00"}},
	} {
		q := local.PastQuery{Namespace: "shop", Name: "web", Within: time.Second}
		if strings.Count(tc.at, ":") == 1 {
			tc.at, q.Within = tc.at+":00", time.Minute
		}
		q.At = night(tc.at)
		entries := tc.tape.entries
		if tc.node {
			q.Namespace, q.Name = "", ""
			entries = nil
			for _, e := range tc.tape.entries {
				if e.Pod == (record.Pod{}) {
					entries = append(entries, e)
				}
			}
		}
		past := explain.Past(entries, q, night("09:00:00"))
		text := strings.Join(past.Lines(night("09:00:00")), "\n")
		for _, want := range tc.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in:\n%s", tc.name, want, text)
			}
		}
		if _, err := json.Marshal(past); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// All that is recorded is in the answer about a duration.
func TestPastSince(t *testing.T) {
	tape := newTape().begins().runs("a", 0, "01:00:02", "02:00:00", 1, "Error").runs("b", 1, "02:00:10", "", 0, "")
	past := explain.Past(tape.entries, local.PastQuery{Namespace: "shop", Name: "web", Since: night("01:30:00")}, night("09:00:00"))
	if text, want := strings.Join(past.Lines(night("09:00:00")), "\n"), strings.Join([]string{
		"shop/web:", "  02:00:00 container app ended after 59m: it ended with exit code 1", "  02:00:10 container app was started (restart 1)",
	}, "\n"); text != want {
		t.Errorf("got:\n%s\nwant:\n%s", text, want)
	}
	for name, want := range map[string]string{"web": "web: nothing is recorded", "": "the node: nothing is recorded"} {
		if past := explain.Past(nil, local.PastQuery{Name: name}, night("09:00:00")); len(past.Moments) > 0 || past.Lines(night("09:00:00"))[0] != want {
			t.Errorf("of nothing: %+v", past)
		}
	}
}

// FuzzPast explains whatever a file can have.
func FuzzPast(f *testing.F) {
	var b strings.Builder
	if err := record.Write(&b, newTape().begins().runs("a", 0, "01:00:02", "02:00:00", 1, "Error").entries); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(b.String()), int64(0))
	f.Fuzz(func(_ *testing.T, data []byte, at int64) {
		entries, _ := record.ReadFile(strings.NewReader(string(data)))
		now := time.Unix(2e9, 0)
		for _, q := range []local.PastQuery{{Name: "web", At: time.Unix(at, 0), Within: time.Minute}, {Name: "web"}, {At: time.Unix(at, 0)}} {
			past := explain.Past(entries, q, now)
			past.Lines(now)
		}
	})
}

// What the containers did, and when no agent ran: each time once, without a gap until the pod is gone.
func TestStretches(t *testing.T) {
	for _, tc := range []struct {
		name         string
		tape         *tape
		since, until string
		want         []string
	}{
		{"restart", newTape().begins().runs("a", 0, "01:00:02", "02:57:58", 137, "OOMKilled").runs("b", 1, "02:58:00", "", 0, ""), "", "", []string{
			"app 01:00:01-01:00:02 waiting: was not started yet",
			"app 01:00:02-02:57:58 running: ran for 117m",
			"app 02:57:58-02:58:00 waiting: it was killed for using more than its memory limit of 64 MiB, exit 137",
			"app 02:58:00- running: runs",
		}},
		{"end of the pod", newTape().begins().runs("a", 0, "01:00:02", "02:00:00", 0, "").on("03:00:00", &record.Wanted{Op: "REMOVE", Source: "file"}), "01:30:00", "", []string{
			"app 01:00:02-02:00:00 running: ran for 59m",
			"app 02:00:00-03:00:00 ended: it ended with exit code 0, exit 0",
		}},
		{"agents", newTape().begins().on("02:00:00", &record.Stop{}).on("02:05:00", &record.Begin{Node: "edge-7"}).on("02:10:00", &record.Begin{Node: "edge-7"}).on("02:20:00", &record.Stop{}), "01:59:00", "", []string{
			"agent 02:00:00-02:05:00 away: no agent ran",
			"agent 02:05:00-02:10:00 lost: the agent was killed or had crashed at some time in here",
			"agent 02:20:00- away: no agent runs",
			"app 01:00:02- running: runs",
		}},
		{"outside", newTape().begins().runs("a", 0, "01:00:02", "02:00:00", 0, "").on("03:00:00", &record.Wanted{Op: "REMOVE", Source: "file"}), "03:30:00", "04:00:00", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := local.PastQuery{Namespace: "shop", Name: "web"}
			if tc.since != "" {
				q.Since = night(tc.since)
			}
			if tc.until != "" {
				q.Until = night(tc.until)
			}
			var got []string
			for _, s := range explain.Past(tc.tape.entries, q, night("12:00:00")).Stretches {
				to := ""
				if !s.To.IsZero() {
					to = s.To.Local().Format(time.TimeOnly)
				}
				line := fmt.Sprintf("%s %s-%s %s: %s", cmp.Or(s.Container, "agent"), s.From.Local().Format(time.TimeOnly), to, s.State, s.Text)
				if s.ExitCode != nil {
					line += fmt.Sprintf(", exit %d", *s.ExitCode)
				}
				got = append(got, line)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}
