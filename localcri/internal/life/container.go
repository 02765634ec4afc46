package life

import (
	"fmt"
	"time"
)

// Record is the part of a container's record that a [Container] determines. Times are ns since
// 1970.
type Record struct {
	State    Phase    `json:"state"`
	Started  int64    `json:"started,omitempty"`
	Finished int64    `json:"finished,omitempty"`
	ExitCode int32    `json:"exitCode,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Message  string   `json:"message,omitempty"`
	LostLog  uint64   `json:"lostLog,omitempty"` // bytes of output that were not logged
	Process  *Process `json:"process,omitempty"` // only while it runs
}

// Check returns an error if r is not possible.
func (r Record) Check() error {
	switch r.State {
	case Created, Starting, Exited, Removing:
		return nil
	case Running:
		if r.Process == nil || r.Process.PID <= 0 {
			return fmt.Errorf("container is running but has no process")
		}
		return nil
	}
	return fmt.Errorf("state %.40q: want created, starting, running, exited or removing", r.State)
}

// Container is the state machine of a container. It is not safe for concurrent use.
type Container struct {
	record Record
	want   Want
	until  time.Time // time when a requested stop kills the container
	told   bool      // during a start: the monitor has, or may have, the request
	dirty  bool      // processes or their remains may exist
	going  bool      // a removal is under way
	copied bool
}

// NewContainer returns a container that is being created.
func NewContainer() Container { return Container{record: Record{State: Making}} }

// LoadContainer returns a container whose record an earlier process left. It is not known yet
// how far a start got. If the record is a copy, it may be outdated: a container in phase Created
// may have been started after the copy was made.
func LoadContainer(r Record, copied bool) Container {
	if copied && r.State == Created {
		r.State = Starting
	}
	c := Container{record: r, told: true, dirty: true, copied: copied}
	if r.State == Removing {
		c.want = Remove
	}
	return c
}

// Phase returns the container's phase.
func (c *Container) Phase() Phase { return c.record.State }

// Want returns the strongest request so far.
func (c *Container) Want() Want { return c.want }

// Dirty reports whether processes of the container, or their remains, may exist.
func (c *Container) Dirty() bool { return c.dirty }

// Copied reports whether the container was loaded from a copy of its record.
func (c *Container) Copied() bool { return c.copied }

// Shown reports whether callers may see the container.
func (c *Container) Shown() bool {
	return c.record.State != Making && !c.Going()
}

// Going reports whether callers consider the container removed.
func (c *Container) Going() bool { return c.record.State == Removing || c.record.State == Gone }

// Record returns the record to write. A container that is being created is not written until it
// exists.
func (c *Container) Record() Record {
	r := c.record
	if r.State == Making {
		r.State = Created
	}
	return r
}

// Step handles an event. If the event is not possible now, the error is a [*Refused].
func (c *Container) Step(e Event) ([]Effect, error) {
	next := *c
	effects, ok := next.step(e)
	if !ok {
		return nil, &Refused{From: c.record.State, Want: c.want, Event: nameOf(e)}
	}
	*c = next
	return effects, nil
}

func (c *Container) step(e Event) (effects []Effect, ok bool) {
	switch e := e.(type) {
	case Made:
		return c.made()
	case Discarded:
		return c.discarded()
	case StartAsked:
		return c.startAsked()
	case Told:
		return c.toldNow()
	case NotTold:
		if c.record.State != Starting || c.told {
			return nil, false
		}
		return c.unstart(), true
	case Reset:
		return c.reset()
	case Rejoined:
		return c.rejoined()
	case Began:
		return c.began(e)
	case Ended:
		return c.ended(e.Ending)
	case StopAsked:
		return c.stopAsked(e), true
	case RemoveAsked:
		return c.removeAsked(), true
	case Cleaned:
		c.dirty = false
		return nil, true
	case Resumed:
		if c.record.State == Removing && !c.going {
			c.going = true
			return []Effect{Undo{}}, true
		}
		return nil, true
	case Erased:
		if c.record.State != Removing {
			return nil, false
		}
		c.record.State = Gone
		return nil, true
	}
	return nil, false
}

func (c *Container) made() ([]Effect, bool) {
	switch {
	case c.record.State != Making:
		return nil, false
	case c.want == Remove:
		return c.undo(), true
	}
	c.record.State = Created
	return nil, true
}

func (c *Container) discarded() ([]Effect, bool) {
	switch c.record.State {
	case Making:
		return c.undo(), true
	case Created:
		return c.removeAsked(), true
	case Removing, Gone:
		return nil, true
	}
	return nil, false
}

// undo removes a container whose ID no caller has received.
func (c *Container) undo() []Effect {
	c.record.State, c.want, c.going = Removing, Remove, true
	return []Effect{Release{}, Undo{}}
}

func (c *Container) startAsked() ([]Effect, bool) {
	switch {
	case c.want != Run:
		return nil, false
	case c.record.State == Starting:
		return nil, true
	case c.record.State != Created:
		return nil, false
	}
	c.record.State, c.told = Starting, false
	return []Effect{Start{}}, true
}

func (c *Container) toldNow() ([]Effect, bool) {
	switch {
	case c.record.State != Starting:
		return nil, false
	case c.want != Run && !c.told:
		return c.unstart(), true
	}
	c.told, c.dirty = true, true
	return []Effect{Save{}}, true
}

// unstart ends a start that failed.
func (c *Container) unstart() []Effect {
	c.record.State, c.record.Started = Created, 0
	return c.leave()
}

func (c *Container) reset() ([]Effect, bool) {
	switch {
	case c.record.State != Starting:
		return nil, false
	case !c.told: // the start has not reached the monitor yet
		return nil, true
	}
	return append([]Effect{Save{}}, c.unstart()...), true
}

func (c *Container) rejoined() ([]Effect, bool) {
	switch c.record.State {
	case Created, Starting, Running:
		c.record.State, c.record.Process = Starting, nil
		c.told, c.dirty = true, true
		return []Effect{Join{}}, true
	}
	return nil, false
}

func (c *Container) began(e Began) (effects []Effect, ok bool) {
	r := &c.record
	switch r.State {
	case Making:
		return nil, false
	case Removing, Gone: // no caller waits for this start
		c.dirty = true
		return []Effect{Clean{}}, true
	}
	// The end may be known already; then this event only adds the start time.
	if r.Started == 0 && r.Reason != ReasonStartError {
		r.Started = e.At
		if r.Finished != 0 {
			r.Finished = max(r.Finished, e.At)
		}
		effects = []Effect{Save{}, Announce{NewsStarted, e.At}}
	}
	if r.State == Exited || r.State == Running {
		return effects, true
	}
	r.State, r.Process, c.dirty = Running, &e.Process, true
	if c.want != Run {
		effects = append(effects, End{c.until})
	}
	return effects, true
}

func (c *Container) ended(e Ending) (effects []Effect, ok bool) {
	r := &c.record
	switch r.State {
	case Making:
		return nil, false
	case Exited:
		return nil, true
	case Removing, Gone:
		c.dirty = true
		return []Effect{Clean{}}, true
	}
	if e.Reason != ReasonStartError {
		// The monitor may report the end before it has answered the start request.
		if e.Started != 0 && r.Started == 0 {
			effects = append(effects, Announce{NewsStarted, e.Started})
		}
		if e.Started == 0 {
			e.Started = r.Started
		}
	}
	*r = Record{
		State: Exited, Started: e.Started, Finished: max(e.Finished, e.Started),
		ExitCode: e.Code, Reason: e.Reason, Message: e.Message, LostLog: e.LostLog,
	}
	c.dirty = true
	effects = append(effects, Announce{NewsStopped, r.Finished}, Release{}, Clean{})
	return append(effects, c.leave()...), true
}

func (c *Container) stopAsked(e StopAsked) []Effect {
	if c.want == Run || e.Until.Before(c.until) {
		c.until = e.Until
	}
	c.want = max(c.want, Stop)
	if c.record.State == Running {
		return []Effect{End{c.until}}
	}
	return nil
}

func (c *Container) removeAsked() []Effect {
	if c.Going() {
		return nil
	}
	c.want, c.until = Remove, time.Time{}
	if c.record.State == Running {
		return []Effect{End{}}
	}
	return c.leave()
}

// leave removes the container if that was requested and none of its processes runs or is being
// started.
func (c *Container) leave() []Effect {
	switch {
	case c.want != Remove:
	case c.record.State == Created:
		c.record.State, c.going = Removing, true
		return []Effect{Release{}, Withdraw{}}
	case c.record.State == Exited:
		c.record.State, c.going = Removing, true
		return []Effect{Withdraw{}}
	}
	return nil
}
