package life

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the tables in testdata")

var (
	process = Process{PID: 7, StartTime: 70}
	later   = time.Unix(100, 0)
	soon    = time.Unix(50, 0)
)

// containerEvents are all events, in the order of the table.
var containerEvents = []Event{
	Made{}, Discarded{}, StartAsked{}, Told{}, NotTold{}, Reset{}, Rejoined{}, Began{process, 10}, Ended{Ending{Started: 10, Finished: 20, Code: 3}},
	StopAsked{later}, RemoveAsked{}, Cleaned{}, Resumed{}, Erased{}, TornDown{},
}

var sandboxEvents = []Event{
	Made{}, Discarded{}, StopAsked{}, RemoveAsked{}, TornDown{}, NotTornDown{}, InfraEnded{}, Resumed{}, Erased{}, StartAsked{},
}

// machine is a container or a sandbox, as a value.
type machine[M any] interface {
	*M
	Phase() Phase
	Want() Want
	Going() bool
	Step(Event) ([]Effect, error)
}

// kindOf names what the table distinguishes of a container: whatever else differs changes no step.
func kindOf(c Container) string {
	out := fmt.Sprintf("%s, wanted: %s", c.Phase(), c.want)
	switch {
	case c.Phase() == Starting:
		out += fmt.Sprintf(", told: %t", c.told)
	case c.Phase() == Removing && !c.going:
		out += ", nobody is at it"
	}
	return out
}

func kindOfSandbox(s Sandbox) string {
	out := fmt.Sprintf("%s, wanted: %s", s.phase, s.want)
	if (s.phase == Stopping || s.phase == Removing) && !s.busy {
		out += ", nobody is at it"
	}
	if s.infraDead && (s.phase == Intent || s.phase == Ready) {
		out += ", PID namespace ended"
	}
	return out
}

// reach returns one machine of each kind that events lead to.
func reach[M any, P machine[M]](kind func(M) string, events []Event, first ...M) map[string]M {
	found := map[string]M{}
	for len(first) > 0 {
		m := first[0]
		first = first[1:]
		if _, old := found[kind(m)]; old {
			continue
		}
		found[kind(m)] = m
		for _, e := range events {
			next := m
			if _, err := P(&next).Step(e); err == nil {
				first = append(first, next)
			}
		}
	}
	return found
}

// table shows every step of every machine.
func table[M any, P machine[M]](kind func(M) string, order []Phase, events []Event, all map[string]M) string {
	var out strings.Builder
	kinds := make([]string, 0, len(all))
	for k := range all {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b string) int {
		ma, mb := all[a], all[b]
		if d := slices.Index(order, P(&ma).Phase()) - slices.Index(order, P(&mb).Phase()); d != 0 {
			return d
		}
		if d := int(P(&ma).Want()) - int(P(&mb).Want()); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for _, k := range kinds {
		fmt.Fprintf(&out, "%s\n", k)
		var refused []string
		for _, e := range events {
			m := all[k]
			effects, err := P(&m).Step(e)
			if err != nil {
				refused = append(refused, nameOf(e))
				continue
			}
			to := "-"
			if kind(m) != k {
				to = kind(m)
			}
			var names []string
			for _, f := range effects {
				name := nameOf(f)
				if a, is := f.(Announce); is {
					name = fmt.Sprintf("Announce(%s)", a.What)
				}
				names = append(names, name)
			}
			fmt.Fprintln(&out, strings.TrimRight(fmt.Sprintf("    %-12s %-40s %s", nameOf(e), to, strings.Join(names, " ")), " "))
		}
		fmt.Fprintf(&out, "    refused      %s\n\n", strings.Join(refused, " "))
	}
	return out.String()
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; -update writes it:\n%s", path, got)
	}
}

func containers() map[string]Container {
	first := []Container{NewContainer()}
	for _, state := range []Phase{Starting, Running, Exited, Removing} {
		first = append(first, LoadContainer(Record{State: state, Started: 10, Process: &process}, false))
	}
	return reach(kindOf, containerEvents, first...)
}

func sandboxes() map[string]Sandbox {
	first := []Sandbox{NewSandbox()}
	for _, state := range []Phase{Ready, Stopping, Stopped, Removing} {
		first = append(first, LoadSandbox(SandboxRecord{state}))
	}
	return reach(kindOfSandbox, sandboxEvents, first...)
}

// testdata/container.txt has all that containers can be, by phase, what was asked for and whether
// a monitor was told; and for each event what they become (- is the same) and what is to be begun.
func TestContainerTable(t *testing.T) {
	order := []Phase{Making, Created, Starting, Running, Exited, Removing, Gone}
	compare(t, "container.txt", table(kindOf, order, containerEvents, containers()))
}

func TestSandboxTable(t *testing.T) {
	order := []Phase{Intent, Ready, Stopping, Stopped, Removing, Gone}
	compare(t, "sandbox.txt", table(kindOfSandbox, order, sandboxEvents, sandboxes()))
}

// In every phase and for every event: what is refused changes nothing, what was asked for only
// grows, nobody starts what is to stop, and what is gone stays so.
func TestEveryStep(t *testing.T) {
	for kind, c := range containers() {
		for _, e := range containerEvents {
			checkStep(t, kind, c, e)
		}
	}
	for kind, s := range sandboxes() {
		for _, e := range sandboxEvents {
			checkStep(t, kind, s, e)
		}
	}
}

func checkStep[M any, P machine[M]](t *testing.T, kind string, m M, e Event) {
	before, after := m, m
	effects, err := P(&after).Step(e)
	starts := slices.ContainsFunc(effects, func(f Effect) bool { _, is := f.(Start); return is })
	goes := 0
	for _, f := range effects {
		switch f.(type) {
		case Withdraw, Undo:
			goes++
		}
	}
	var refused *Refused
	switch {
	case err != nil && (!errors.As(err, &refused) || fmt.Sprint(after) != fmt.Sprint(before) || len(effects) > 0):
		t.Errorf("%s, %s: %v changed it to %v", kind, nameOf(e), err, after)
	case err == nil && P(&after).Want() < P(&before).Want():
		t.Errorf("%s, %s: %s is wanted", kind, nameOf(e), P(&after).Want())
	case starts && P(&before).Want() != Run:
		t.Errorf("%s, %s: it starts", kind, nameOf(e))
	case P(&before).Going() && !P(&after).Going():
		t.Errorf("%s, %s: it is back, %s", kind, nameOf(e), P(&after).Phase())
	case !P(&before).Going() && P(&after).Going() && goes != 1, goes > 1:
		t.Errorf("%s, %s: it goes, and is erased %d times", kind, nameOf(e), goes)
	}
}

// The earliest deadline of several stops counts, and a removal does not wait.
func TestEarliestDeadlineCounts(t *testing.T) {
	c := LoadContainer(Record{State: Running, Process: &process}, false)
	for _, s := range []struct {
		event Event
		want  time.Time
	}{{StopAsked{later}, later}, {StopAsked{soon}, soon}, {StopAsked{later}, soon}, {RemoveAsked{}, time.Time{}}, {StopAsked{later}, time.Time{}}} {
		effects, err := c.Step(s.event)
		if err != nil || len(effects) != 1 || effects[0] != (End{s.want}) {
			t.Errorf("%+v: %+v, %v; want the end at %v", s.event, effects, err, s.want)
		}
	}
}

// What is told of a start and an end does not depend on which is heard of first.
func TestEndBeforeItsStart(t *testing.T) {
	for name, s := range map[string]struct {
		events  []Event
		started int64
		news    []News
	}{
		"in order":                   {[]Event{Began{process, 10}, Ended{Ending{Started: 10, Finished: 20}}}, 10, []News{NewsStarted, NewsStopped}},
		"the end first":              {[]Event{Ended{Ending{Started: 10, Finished: 20}}, Began{process, 10}}, 10, []News{NewsStarted, NewsStopped}},
		"the end without its start":  {[]Event{Ended{Ending{Finished: 20}}, Began{process, 10}}, 10, []News{NewsStopped, NewsStarted}},
		"the start is not repeated":  {[]Event{Began{process, 10}, Began{process, 11}, Ended{Ending{Finished: 20}}}, 10, []News{NewsStarted, NewsStopped}},
		"the end is not repeated":    {[]Event{Began{process, 10}, Ended{Ending{Finished: 20}}, Ended{Ending{Finished: 30}}}, 10, []News{NewsStarted, NewsStopped}},
		"it could not be started":    {[]Event{Ended{Ending{Finished: 20, Reason: ReasonStartError}}, Began{process, 10}}, 0, []News{NewsStopped}},
		"an end that precedes it":    {[]Event{Began{process, 30}, Ended{Ending{Finished: 20}}}, 30, []News{NewsStarted, NewsStopped}},
		"an end before a late start": {[]Event{Ended{Ending{Finished: 20}}, Began{process, 30}}, 30, []News{NewsStopped, NewsStarted}},
	} {
		c := LoadContainer(Record{State: Created}, false)
		var news []News
		for _, e := range append([]Event{StartAsked{}, Told{}}, s.events...) {
			effects, err := c.Step(e)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, f := range effects {
				if a, is := f.(Announce); is {
					news = append(news, a.What)
				}
			}
		}
		if r := c.Record(); r.State != Exited || r.Started != s.started || r.Finished < r.Started || r.Finished == 0 || !slices.Equal(news, s.news) {
			t.Errorf("%s: %+v, told %v", name, r, news)
		}
	}
}

func TestRecordsOfNobody(t *testing.T) {
	for _, r := range []Record{{}, {State: Making}, {State: Gone}, {State: Running}, {State: Running, Process: &Process{}}, {State: Ready}} {
		if r.Check() == nil {
			t.Errorf("container %+v is accepted", r)
		}
	}
	for _, r := range []SandboxRecord{{}, {Gone}, {Running}} {
		if r.Check() == nil {
			t.Errorf("sandbox %+v is accepted", r)
		}
	}
}
