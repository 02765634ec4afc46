package life

import "fmt"

// SandboxRecord is the part of a sandbox's record that a [Sandbox] determines.
type SandboxRecord struct {
	State Phase `json:"state"`
}

// Check returns an error if r is not possible.
func (r SandboxRecord) Check() error {
	switch r.State {
	case Intent, Ready, Stopping, Stopped, Removing:
		return nil
	}
	return fmt.Errorf("state %.40q: want intent, made, stopping, stopped or removing", r.State)
}

// Sandbox is the state machine of a sandbox. It is not safe for concurrent use.
type Sandbox struct {
	phase     Phase
	want      Want
	busy      bool // a teardown or removal is under way
	infraDead bool
}

// NewSandbox returns a sandbox that is being created.
func NewSandbox() Sandbox { return LoadSandbox(SandboxRecord{Intent}) }

// LoadSandbox returns a sandbox whose record an earlier process left.
func LoadSandbox(r SandboxRecord) Sandbox {
	s := Sandbox{phase: r.State}
	if r.State == Removing {
		s.want = Remove
	}
	return s
}

// Phase returns the sandbox's phase.
func (s *Sandbox) Phase() Phase { return s.phase }

// Want returns the strongest request so far.
func (s *Sandbox) Want() Want { return s.want }

// Shown reports whether callers may see the sandbox.
func (s *Sandbox) Shown() bool { return s.phase != Intent && !s.Going() }

// Going reports whether callers consider the sandbox removed.
func (s *Sandbox) Going() bool { return s.phase == Removing || s.phase == Gone }

// InfraDead reports whether the process of its shared PID namespace has ended: no container can
// start then.
func (s *Sandbox) InfraDead() bool { return s.infraDead }

// Record returns the record to write.
func (s *Sandbox) Record() SandboxRecord { return SandboxRecord{s.phase} }

// Step handles an event. If the event is not possible now, the error is a [*Refused].
func (s *Sandbox) Step(e Event) ([]Effect, error) {
	next := *s
	effects, ok := next.step(e)
	if !ok {
		return nil, &Refused{From: s.phase, Want: s.want, Event: nameOf(e)}
	}
	*s = next
	return effects, nil
}

func (s *Sandbox) step(e Event) ([]Effect, bool) {
	switch e.(type) {
	case Made:
		return s.made()
	case Discarded:
		return s.discarded()
	case StopAsked:
		return s.asked(Stop)
	case RemoveAsked:
		return s.asked(Remove)
	case TornDown:
		return s.tornDown()
	case NotTornDown:
		if s.phase != Stopping || !s.busy {
			return nil, false
		}
		s.busy = false
		return nil, true
	case InfraEnded:
		fresh := s.phase == Ready && !s.infraDead
		s.infraDead = true
		if fresh {
			return []Effect{Announce{What: NewsStopped}}, true
		}
		return nil, true
	case Resumed:
		return s.resumed()
	case Erased:
		if s.phase != Removing {
			return nil, false
		}
		s.phase = Gone
		return nil, true
	}
	return nil, false
}

// made completes the creation of a sandbox. It refuses this if the sandbox's shared PID
// namespace has ended already.
func (s *Sandbox) made() ([]Effect, bool) {
	if s.phase != Intent || s.infraDead {
		return nil, false
	}
	s.phase = Ready
	return nil, true
}

func (s *Sandbox) discarded() ([]Effect, bool) {
	switch s.phase {
	case Intent, Ready:
		return s.undo(), true
	}
	return nil, false
}

// undo removes a sandbox whose ID no caller has received.
func (s *Sandbox) undo() []Effect {
	s.phase, s.want, s.busy = Removing, Remove, true
	return []Effect{Undo{}}
}

func (s *Sandbox) asked(w Want) ([]Effect, bool) {
	if s.phase == Intent {
		return nil, false // callers have not seen it
	}
	s.want = max(s.want, w)
	switch {
	case s.phase == Ready, s.phase == Stopping && !s.busy:
		s.phase, s.busy = Stopping, true
		return []Effect{TearDown{}}, true
	case s.phase == Stopped && s.want == Remove:
		s.phase, s.busy = Removing, true
		return []Effect{Withdraw{}}, true
	}
	return nil, true
}

func (s *Sandbox) tornDown() ([]Effect, bool) {
	if s.phase != Stopping || !s.busy {
		return nil, false
	}
	s.phase, s.busy = Stopped, false
	effects := []Effect{Announce{What: NewsStopped}}
	if s.want == Remove {
		s.phase, s.busy = Removing, true
		effects = append(effects, Withdraw{})
	}
	return effects, true
}

func (s *Sandbox) resumed() ([]Effect, bool) {
	switch s.phase {
	case Intent:
		return s.undo(), true
	case Removing:
		if s.busy {
			return nil, true
		}
		return s.undo(), true
	case Stopping:
		return s.asked(Stop)
	}
	return nil, true
}
