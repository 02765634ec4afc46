package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// waiter is an open trigger.
type waiter interface {
	// fd returns the descriptor to poll. It is called before each poll.
	fd() int
	// mask returns the poll(2) event.
	mask() int16
	// read consumes the event, so that the next poll blocks again, and returns its cause. The
	// cause is "" if nothing happened.
	read() (string, error)
	close()
}

// Source waits for triggers. Its methods may be called from any goroutine.
type Source struct {
	triggers []Trigger
	err      error // names the invalid triggers

	mu       sync.Mutex
	levels   []int64
	levelled []*levelWaiter // set while Run runs
	control  *counter       // wakes the poll; set while Run runs
	problems []error
}

// New returns a Source of triggers. Run returns an error for invalid triggers.
func New(triggers ...Trigger) *Source {
	s := &Source{triggers: triggers}
	if len(triggers) == 0 {
		s.err = errors.New("notify: no trigger is configured")
	}
	for _, t := range triggers {
		s.err = errors.Join(s.err, t.check())
	}
	return s
}

// Problems returns an error for each trigger that could not be opened when Run began.
func (s *Source) Problems() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.problems)
}

// Run calls wake whenever a trigger fires; cause names the trigger. It returns nil when ctx ends.
// It returns an error if no trigger can be opened, or an open one breaks.
func (s *Source) Run(ctx context.Context, wake func(cause string)) error {
	if s.err != nil {
		return s.err
	}
	control, err := newCounter()
	if err != nil {
		return err
	}
	defer control.close()
	waiters, err := s.open(control)
	defer s.close(waiters)
	if len(waiters) == 0 {
		return err
	}
	defer context.AfterFunc(ctx, control.add)()
	return s.poll(ctx, control, waiters, wake)
}

func (s *Source) open(control *counter) (map[Trigger]waiter, error) {
	out := map[Trigger]waiter{}
	var problems []error
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.triggers {
		w, err := t.open()
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", t, err))
			continue
		}
		out[t] = w
		if l, ok := w.(*levelWaiter); ok {
			s.levelled = append(s.levelled, l)
			if err := l.aim(s.levels); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", t, err))
			}
		}
	}
	s.problems, s.control = problems, control
	return out, errors.Join(problems...)
}

func (s *Source) close(waiters map[Trigger]waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.levelled, s.control = nil, nil
	for _, w := range waiters {
		w.close()
	}
}

// Aim replaces the levels of usage, in bytes, at which Usage triggers fire.
// It may be called before Run.
func (s *Source) Aim(levels []int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(levels, s.levels) {
		return nil
	}
	var errs []error
	for _, l := range s.levelled {
		errs = append(errs, l.aim(levels))
	}
	if s.control != nil {
		s.control.add()
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.levels = slices.Clone(levels)
	return nil
}

func (s *Source) poll(ctx context.Context, control *counter, waiters map[Trigger]waiter, wake func(string)) error {
	var order []Trigger
	for _, t := range s.triggers {
		if _, ok := waiters[t]; ok {
			order = append(order, t)
		}
	}
	for {
		fds := []unix.PollFd{{Fd: int32(control.fd()), Events: unix.POLLIN}}
		for _, t := range order {
			fds = append(fds, unix.PollFd{Fd: int32(waiters[t].fd()), Events: waiters[t].mask()})
		}
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("notify: poll: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		default:
		}
		if fds[0].Revents != 0 {
			if _, err := control.take(); err != nil {
				return fmt.Errorf("notify: %w", err)
			}
		}
		for i, t := range order {
			got := fds[i+1].Revents
			if got == 0 {
				continue
			}
			// The kernel sets POLLERR beside POLLPRI for files of cgroups
			// that change; alone it means that the file is gone.
			if got&fds[i+1].Events == 0 {
				return fmt.Errorf("notify: the file of %s was removed", t)
			}
			what, err := waiters[t].read()
			if err != nil {
				return fmt.Errorf("notify: %s: %w", t, err)
			}
			if what != "" {
				wake(what)
			}
		}
	}
}
