//go:build linux

package localcri

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestPlanOfContainers(t *testing.T) {
	const now = 1000
	ran := &start{Process: processID{7, 70}, At: 300}
	done := &ending{Finished: 500, Code: 3, Reason: reasonError}
	for _, tc := range []struct {
		name     string
		state    containerState
		reboot   bool
		monitor  bool
		f        foundContainer
		want     containerStep
		wantCode int32
		reason   string
		finished int64
	}{
		{name: "created", state: containerCreated, want: stay},
		{name: "created, and its monitor lives", state: containerCreated, monitor: true, want: stay},
		{name: "the agent died before it could note a start", state: containerCreated, monitor: true, f: foundContainer{kept: &kept{started: ran}}, want: follow},
		{name: "both died before a start was on record", state: containerCreated, f: foundContainer{state: executedRunning, alive: ran}, want: adopt},
		{name: "both died before a start was on record, and it ended", state: containerCreated, f: foundContainer{state: executedStopped}, want: end, wantCode: 255, reason: reasonMonitorLost, finished: now},
		{name: "both died before a start was on record, and its end is", state: containerCreated, f: foundContainer{exit: done, made: 400}, want: end, wantCode: 3, reason: reasonError, finished: 500},
		{name: "exited", state: containerExited, want: stay},
		{name: "exited, and the machine restarted", state: containerExited, reboot: true, want: stay},
		{name: "removal under way", state: containerRemoving, want: finishRemove},
		{name: "removal under way over a restart", state: containerRemoving, reboot: true, want: finishRemove},
		{name: "runs", state: containerRunning, monitor: true, f: foundContainer{kept: &kept{started: ran}}, want: follow},
		{name: "ended while the agent was away", state: containerRunning, monitor: true, f: foundContainer{kept: &kept{started: ran, ended: done}}, want: end, wantCode: 3, reason: reasonError, finished: 500},
		{name: "runs without a monitor", state: containerRunning, f: foundContainer{alive: ran}, want: adopt},
		{name: "runs, and a new monitor knows nothing", state: containerRunning, monitor: true, f: foundContainer{alive: ran}, want: adopt},
		{name: "ended and its monitor too", state: containerRunning, f: foundContainer{exit: done}, want: end, wantCode: 3, reason: reasonError, finished: 500},
		{name: "ended and nobody saw it", state: containerRunning, want: end, wantCode: 255, reason: reasonMonitorLost, finished: now},
		{name: "the machine restarted", state: containerRunning, reboot: true, f: foundContainer{logged: 450}, want: end, wantCode: 255, reason: reasonUnknown, finished: 450},
		{name: "the machine restarted with its clock set back", state: containerRunning, reboot: true, f: foundContainer{logged: 12}, want: end, wantCode: 255, reason: reasonUnknown, finished: 300},
		{name: "a process of before the restart is another one", state: containerRunning, reboot: true, f: foundContainer{alive: ran}, want: end, wantCode: 255, reason: reasonUnknown, finished: 300},
		{name: "created before the restart", state: containerCreated, reboot: true, want: end, wantCode: 255, reason: reasonUnknown, finished: 300},
		{name: "the agent died while it started", state: containerStarting, monitor: true, f: foundContainer{kept: &kept{started: ran}}, want: follow},
		{name: "the monitor is at it", state: containerStarting, monitor: true, f: foundContainer{kept: &kept{}}, want: rejoin},
		{name: "the monitor is at it, which is not on record", state: containerCreated, monitor: true, f: foundContainer{kept: &kept{}}, want: rejoin},
		{name: "the start failed meanwhile", state: containerStarting, monitor: true, f: foundContainer{kept: &kept{failed: "no such file"}}, want: end, wantCode: 128, reason: reasonStartError, finished: now},
		{name: "the monitor was not told", state: containerStarting, monitor: true, want: reset},
		{name: "nobody was told", state: containerStarting, want: reset},
		{name: "nobody knows what became of a damaged record", state: containerStarting, f: foundContainer{rebuilt: true}, want: end, wantCode: 255, reason: reasonUnknown, finished: now},
		{name: "a damaged record of one that runs", state: containerStarting, f: foundContainer{rebuilt: true, state: executedRunning, alive: ran}, want: adopt},
		{name: "both died before start", state: containerStarting, f: foundContainer{state: executedCreated}, want: abort, wantCode: 128, reason: reasonStartError, finished: now},
		{name: "both died after start", state: containerStarting, f: foundContainer{state: executedRunning, alive: ran}, want: adopt},
		{name: "both died, and it ended", state: containerStarting, f: foundContainer{state: executedStopped}, want: end, wantCode: 255, reason: reasonMonitorLost, finished: now},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := tc.f
			f.record = containerRecord{ID: "c", State: tc.state, Boot: "b", Created: 300}
			if tc.state == containerRunning || tc.state == containerExited {
				f.record.Started = 300
			}
			boot := "b"
			if tc.reboot {
				boot = "other"
			}
			pod := plan(foundPod{record: sandboxRecord{State: sandboxMade, Boot: "b"}, monitor: tc.monitor, containers: []foundContainer{f}}, boot, now)
			a := pod.containers[0]
			if a.step != tc.want || a.end.Code != tc.wantCode || a.end.Reason != tc.reason {
				t.Errorf("%+v, want step %d, code %d, %q", a, tc.want, tc.wantCode, tc.reason)
			}
			if a.step == end && tc.f.made != 0 && a.end.Started != tc.f.made {
				t.Errorf("started at %d, want %d", a.end.Started, tc.f.made)
			}
			if tc.finished != 0 && a.end.Finished != tc.finished {
				t.Errorf("finished at %d, want %d", a.end.Finished, tc.finished)
			}
			if pod.successor != (tc.want == adopt && !tc.monitor) {
				t.Errorf("successor %v", pod.successor)
			}
		})
	}
}

func TestPlanOfSandboxes(t *testing.T) {
	for _, tc := range []struct {
		state  sandboxState
		reboot bool
		want   podStep
	}{
		{sandboxIntent, false, undo}, {sandboxIntent, true, undo},
		{sandboxMade, false, keepPod}, {sandboxMade, true, finishStop},
		{sandboxStopping, false, finishStop}, {sandboxStopping, true, finishStop},
		{sandboxStopped, false, leave}, {sandboxStopped, true, leave},
		{sandboxRemoving, false, finishRemoval}, {sandboxRemoving, true, finishRemoval},
	} {
		t.Run(fmt.Sprint(tc.state, " ", tc.reboot), func(t *testing.T) {
			boot := "b"
			if tc.reboot {
				boot = "other"
			}
			if a := plan(foundPod{record: sandboxRecord{State: tc.state, Boot: "b"}}, boot, 1); a.step != tc.want {
				t.Errorf("step %d, want %d", a.step, tc.want)
			}
		})
	}
}

// Whatever is found: the transition is one that there is, an end has times in
// order, nothing runs of another boot, and a second recovery right after the first
// one changes nothing more.
func TestPlanProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	states := []containerState{containerCreated, containerStarting, containerRunning, containerExited, containerRemoving}
	moment := func() int64 { return r.Int64N(1000) + 1 }
	for range 20_000 {
		ran := &start{Process: processID{r.IntN(100) + 1, r.Uint64N(100)}, At: moment()}
		f := foundContainer{record: containerRecord{ID: strings.Repeat("a", idLength), State: states[r.IntN(len(states))], Boot: "b", Created: moment()}}
		if f.record.State == containerRunning || f.record.State == containerExited {
			f.record.Started = moment()
		}
		if r.IntN(2) == 0 {
			f.kept = &kept{}
			switch r.IntN(4) {
			case 0:
				f.kept.started = ran
			case 1:
				f.kept.started, f.kept.ended = ran, &ending{Finished: moment(), Code: 3, Reason: reasonError}
			case 2:
				f.kept.failed = "no"
			}
		}
		if r.IntN(3) == 0 {
			f.exit = &ending{Finished: moment(), Code: 4, Reason: reasonError}
		}
		if r.IntN(2) == 0 {
			f.alive = ran
		}
		f.state, f.logged = executed(r.IntN(4)), moment()
		monitor := f.kept != nil || r.IntN(2) == 0
		boot := []string{"b", "other"}[r.IntN(2)]
		before := f.record
		a := plan(foundPod{record: sandboxRecord{State: sandboxMade, Boot: "b"}, monitor: monitor, containers: []foundContainer{f}}, boot, 1000).containers[0]
		after := before
		a.apply(&after)
		switch {
		case !before.State.may(after.State):
			t.Fatalf("%+v: %s became %s", f, before.State, after.State)
		case after.State == containerExited && before.State != containerExited && (after.Finished == 0 || after.Finished < after.Started):
			t.Fatalf("%+v: ended %+v", f, after)
		case boot != "b" && (after.State == containerRunning || after.State == containerStarting || after.State == containerCreated):
			t.Fatalf("%+v: it is %s after a restart of the machine", f, after.State)
		case after.State == containerStarting && a.step != rejoin:
			t.Fatalf("%+v: it starts for ever", f)
		case after.State == containerRunning && after.Process == nil:
			t.Fatalf("%+v: runs without a process", f)
		case before.State == containerExited && a.step != stay:
			t.Fatalf("%+v: an end is not the end", f)
		}
		g := f
		g.record = after
		if a.step == rejoin {
			continue // it goes on
		}
		if after.State == containerRunning { // and it still does
			g.kept, g.exit = &kept{started: &a.start}, nil
		} else {
			g.kept, g.exit, g.alive, g.state = nil, nil, nil, executedNone
		}
		again := plan(foundPod{record: sandboxRecord{State: sandboxMade, Boot: "b"}, monitor: true, containers: []foundContainer{g}}, boot, 2000).containers[0]
		twice := after
		again.apply(&twice)
		if fmt.Sprintf("%+v", twice.State) != fmt.Sprintf("%+v", after.State) || twice.ExitCode != after.ExitCode || twice.Finished != after.Finished {
			t.Fatalf("%+v: first %+v, then %+v", f, after, twice)
		}
	}
}
