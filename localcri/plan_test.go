//go:build linux

package localcri

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/localcri/internal/life"
)

func TestPlanOfContainers(t *testing.T) {
	const now = 1000
	ran := &life.Began{Process: life.Process{PID: 7, StartTime: 70}, At: 300}
	done := &life.Ending{Finished: 500, Code: 3, Reason: reasonError}
	for _, tc := range []struct {
		name     string
		state    life.Phase
		reboot   bool
		monitor  bool
		f        foundContainer
		want     string // the repair, and the event
		wantCode int32
		reason   string
		finished int64
	}{
		{name: "created", state: life.Created, want: "-"},
		{name: "created, and its monitor lives", state: life.Created, monitor: true, want: "-"},
		{name: "the agent died before it could note a start", state: life.Created, monitor: true, f: foundContainer{kept: &kept{started: ran}}, want: "Began"},
		{name: "both died before a start was on record", state: life.Created, f: foundContainer{state: executedRunning, alive: ran}, want: "adopt Began"},
		{name: "both died before a start was on record, and it ended", state: life.Created, f: foundContainer{state: executedStopped}, want: "Ended", wantCode: 255, reason: reasonMonitorLost, finished: now},
		{name: "both died before a start was on record, and its end is", state: life.Created, f: foundContainer{exit: done, made: 400}, want: "Ended", wantCode: 3, reason: reasonError, finished: 500},
		{name: "exited", state: life.Exited, want: "-"},
		{name: "exited, and the machine restarted", state: life.Exited, reboot: true, want: "-"},
		{name: "removal under way", state: life.Removing, want: "Resumed"},
		{name: "removal under way over a restart", state: life.Removing, reboot: true, want: "Resumed"},
		{name: "runs", state: life.Running, monitor: true, f: foundContainer{kept: &kept{started: ran}}, want: "Began"},
		{name: "ended while the agent was away", state: life.Running, monitor: true, f: foundContainer{kept: &kept{started: ran, ended: done}}, want: "Ended", wantCode: 3, reason: reasonError, finished: 500},
		{name: "runs without a monitor", state: life.Running, f: foundContainer{alive: ran}, want: "adopt Began"},
		{name: "runs, and a new monitor knows nothing", state: life.Running, monitor: true, f: foundContainer{alive: ran}, want: "adopt Began"},
		{name: "ended and its monitor too", state: life.Running, f: foundContainer{exit: done}, want: "Ended", wantCode: 3, reason: reasonError, finished: 500},
		{name: "ended and nobody saw it", state: life.Running, want: "Ended", wantCode: 255, reason: reasonMonitorLost, finished: now},
		{name: "the machine restarted", state: life.Running, reboot: true, f: foundContainer{logged: 450}, want: "Ended", wantCode: 255, reason: reasonUnknown, finished: 450},
		{name: "the machine restarted with its clock set back", state: life.Running, reboot: true, f: foundContainer{logged: 12}, want: "Ended", wantCode: 255, reason: reasonUnknown, finished: 300},
		{name: "a process of before the restart is another one", state: life.Running, reboot: true, f: foundContainer{alive: ran}, want: "Ended", wantCode: 255, reason: reasonUnknown, finished: 300},
		{name: "created before the restart", state: life.Created, reboot: true, want: "Ended", wantCode: 255, reason: reasonUnknown, finished: 300},
		{name: "the agent died while it started", state: life.Starting, monitor: true, f: foundContainer{kept: &kept{started: ran}}, want: "Began"},
		{name: "the monitor is at it", state: life.Starting, monitor: true, f: foundContainer{kept: &kept{}}, want: "Rejoined"},
		{name: "the monitor is at it, which is not on record", state: life.Created, monitor: true, f: foundContainer{kept: &kept{}}, want: "Rejoined"},
		{name: "the start failed meanwhile", state: life.Starting, monitor: true, f: foundContainer{kept: &kept{failed: "no such file"}}, want: "Ended", wantCode: 128, reason: life.ReasonStartError, finished: now},
		{name: "the monitor was not told", state: life.Starting, monitor: true, want: "undo Reset"},
		{name: "nobody was told", state: life.Starting, want: "undo Reset"},
		{name: "nobody knows what became of a damaged record", state: life.Starting, f: foundContainer{rebuilt: true}, want: "Ended", wantCode: 255, reason: reasonUnknown, finished: now},
		{name: "a damaged record of one that runs", state: life.Starting, f: foundContainer{rebuilt: true, state: executedRunning, alive: ran}, want: "adopt Began"},
		{name: "both died before start", state: life.Starting, f: foundContainer{state: executedCreated}, want: "Ended", wantCode: 128, reason: life.ReasonStartError, finished: now},
		{name: "both died after start", state: life.Starting, f: foundContainer{state: executedRunning, alive: ran}, want: "adopt Began"},
		{name: "both died, and it ended", state: life.Starting, f: foundContainer{state: executedStopped}, want: "Ended", wantCode: 255, reason: reasonMonitorLost, finished: now},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := tc.f
			f.record = containerRecord{containerFacts{ID: "c", Boot: "b", Created: 300}, life.Record{State: tc.state}}
			if tc.state == life.Running || tc.state == life.Exited {
				f.record.Started = 300
			}
			boot := "b"
			if tc.reboot {
				boot = "other"
			}
			pod := plan(foundPod{record: readyRecord(), monitor: tc.monitor, containers: []foundContainer{f}}, boot, now)
			a := pod.containers[0]
			end := endOf(a)
			if got := describeAction(a); got != tc.want || end.Code != tc.wantCode || end.Reason != tc.reason {
				t.Errorf("%s of %+v, want %s, code %d, %q", got, end, tc.want, tc.wantCode, tc.reason)
			}
			if tc.want == "Ended" && tc.f.made != 0 && end.Started != tc.f.made {
				t.Errorf("started at %d, want %d", end.Started, tc.f.made)
			}
			if tc.finished != 0 && end.Finished != tc.finished {
				t.Errorf("finished at %d, want %d", end.Finished, tc.finished)
			}
			if pod.successor != (a.repair == adopt && !tc.monitor) {
				t.Errorf("successor %v", pod.successor)
			}
		})
	}
}

// describeAction returns the repair and the name of an event.
func describeAction(a containerAction) string {
	out := []string{"", "undo ", "adopt "}[a.repair]
	if a.event == nil {
		return out + "-"
	}
	return out + strings.TrimPrefix(fmt.Sprintf("%T", a.event), "life.")
}

func endOf(a containerAction) life.Ending {
	e, _ := a.event.(life.Ended)
	return e.Ending
}

func TestPlanOfSandboxes(t *testing.T) {
	resumed, stop := life.Event(life.Resumed{}), life.Event(life.StopAsked{})
	for _, tc := range []struct {
		state  life.Phase
		reboot bool
		want   life.Event
	}{
		{life.Intent, false, resumed}, {life.Intent, true, resumed},
		{life.Ready, false, nil}, {life.Ready, true, stop},
		{life.Stopping, false, resumed}, {life.Stopping, true, resumed},
		{life.Stopped, false, nil}, {life.Stopped, true, nil},
		{life.Removing, false, resumed}, {life.Removing, true, resumed},
	} {
		t.Run(fmt.Sprint(tc.state, " ", tc.reboot), func(t *testing.T) {
			boot := "b"
			if tc.reboot {
				boot = "other"
			}
			f := foundPod{record: sandboxRecord{sandboxFacts{Boot: "b"}, life.SandboxRecord{State: tc.state}}}
			if a := plan(f, boot, 1); a.event != tc.want {
				t.Errorf("%T, want %T", a.event, tc.want)
			}
		})
	}
}

func readyRecord() sandboxRecord {
	return sandboxRecord{sandboxFacts{Boot: "b"}, life.SandboxRecord{State: life.Ready}}
}

// Whatever is found: the step is one that there is, an end has times in order,
// nothing runs of another boot, and a second recovery right after the first
// one changes nothing more.
func TestPlanProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	states := []life.Phase{life.Created, life.Starting, life.Running, life.Exited, life.Removing}
	moment := func() int64 { return r.Int64N(1000) + 1 }
	for range 20_000 {
		ran := &life.Began{Process: life.Process{PID: r.IntN(100) + 1, StartTime: r.Uint64N(100)}, At: moment()}
		f := foundContainer{record: containerRecord{
			containerFacts{ID: strings.Repeat("a", idLength), Boot: "b", Created: moment()}, life.Record{State: states[r.IntN(len(states))]},
		}}
		if f.record.State == life.Running || f.record.State == life.Exited {
			f.record.Started = moment()
		}
		if f.record.State == life.Running {
			f.record.Process = &ran.Process
		}
		if r.IntN(2) == 0 {
			f.kept = &kept{}
			switch r.IntN(4) {
			case 0:
				f.kept.started = ran
			case 1:
				f.kept.started, f.kept.ended = ran, &life.Ending{Finished: moment(), Code: 3, Reason: reasonError}
			case 2:
				f.kept.failed = "no"
			}
		}
		if r.IntN(3) == 0 {
			f.exit = &life.Ending{Finished: moment(), Code: 4, Reason: reasonError}
		}
		if r.IntN(2) == 0 {
			f.alive = ran
		}
		f.state, f.logged = executed(r.IntN(4)), moment()
		monitor := f.kept != nil || r.IntN(2) == 0
		boot := []string{"b", "other"}[r.IntN(2)]
		recovered := func(f foundContainer, monitor bool, now int64) (containerAction, life.Record) {
			a := plan(foundPod{record: readyRecord(), monitor: monitor, containers: []foundContainer{f}}, boot, now).containers[0]
			c := life.LoadContainer(f.record.Record, f.rebuilt)
			if a.event != nil {
				if _, err := c.Step(a.event); err != nil {
					t.Fatalf("%+v: %v", f, err)
				}
			}
			return a, c.Record()
		}
		before := f.record
		a, after := recovered(f, monitor, 1000)
		switch {
		case after.State == life.Exited && before.State != life.Exited && (after.Finished == 0 || after.Finished < after.Started):
			t.Fatalf("%+v: ended %+v", f, after)
		case boot != "b" && (after.State == life.Running || after.State == life.Starting || after.State == life.Created):
			t.Fatalf("%+v: it is %s after a restart of the machine", f, after.State)
		case after.State == life.Starting && a.event != life.Event(life.Rejoined{}):
			t.Fatalf("%+v: it starts for ever", f)
		case after.State == life.Running && after.Process == nil:
			t.Fatalf("%+v: runs without a process", f)
		case before.State == life.Exited && a.event != nil:
			t.Fatalf("%+v: an end is not the end", f)
		}
		if after.State == life.Starting {
			continue // it goes on
		}
		f.record.Record = after
		if began, runs := a.event.(life.Began); runs { // and it still does
			f.kept, f.exit = &kept{started: &began}, nil
		} else {
			f.kept, f.exit, f.alive, f.state = nil, nil, nil, executedNone
		}
		if _, twice := recovered(f, true, 2000); twice.State != after.State || twice.ExitCode != after.ExitCode || twice.Finished != after.Finished {
			t.Fatalf("%+v: first %+v, then %+v", f, after, twice)
		}
	}
}
