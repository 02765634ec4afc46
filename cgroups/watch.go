package cgroups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/internal/wake"
)

// Watch reports events of the pod's cgroup until ctx ends or the cgroup is
// destroyed; then the channel is closed. Events that are not received are added up.
// Events before the call are not reported. Triggers need cgroup v2; a kernel
// without PSI gives ErrUnsupported. Several watches of one pod are independent.
func (m *Manager) Watch(ctx context.Context, uid types.UID, triggers ...Trigger) (<-chan Event, error) {
	fail := func(err error) (<-chan Event, error) {
		return nil, fmt.Errorf("watch cgroup of pod %s: %w", uid, err)
	}
	for _, t := range triggers {
		if err := t.validate(); err != nil {
			return fail(err)
		}
	}
	d, cgroup, err := m.locate(ctx, uid)
	if err != nil {
		return nil, err
	}
	if d == nil || d.on.version == V1 && len(triggers) > 0 {
		return fail(ErrUnsupported)
	}
	w := &watch{
		m: m, d: d, uid: uid, cgroup: cgroup, triggers: triggers,
		wake: wake.New(), pulled: make([]bool, len(triggers)), out: make(chan Event),
	}
	// The counts are read before the kernel is asked to report: the first
	// comparison finds events in between.
	if w.seen, err = d.events(ctx, cgroup); err != nil {
		return fail(err)
	}
	if err := w.arm(ctx); err != nil {
		w.disarm()
		return fail(err)
	}
	// From here on Destroy ends the watch.
	m.watching(uid, w, true)
	w.wake.Set() // checks whether the cgroup was removed meanwhile
	go w.run(ctx)
	return w.out, nil
}

// watch is one call of Watch. The goroutine of run owns the fields up to seen. The kernel's
// notifications and Destroy only set the last three fields and call wake.
type watch struct {
	m        *Manager
	d        *driver
	uid      types.UID
	cgroup   string
	triggers []Trigger
	// stops ends the notifications, one for each signal.
	stops []func()
	out   chan Event
	// seen has the counts that were reported last.
	seen MemoryEvents

	wake wake.Signal // set when the counts may have changed
	// mu guards pulled and gone.
	mu     sync.Mutex
	pulled []bool // by trigger: whether it has fired since look read it last
	gone   bool
}

// arm registers all signals with the kernel. On failure some may be registered;
// disarm removes them.
func (w *watch) arm(ctx context.Context) error {
	memory := Signal{File: w.d.file("memory", w.cgroup, "memory.events")}
	// v1 reports a cgroup out of memory through an eventfd (cgroup-v1/memory, "OOM
	// Control").
	if w.d.on.version == V1 {
		memory = Signal{
			File:    w.d.file("memory", w.cgroup, "memory.oom_control"),
			Control: w.d.file("memory", w.cgroup, "cgroup.event_control"),
		}
	}
	if err := w.signal(ctx, memory, w.wake.Set); err != nil {
		return err
	}
	for i, t := range w.triggers {
		s := Signal{File: w.d.file(t.Resource, w.cgroup, t.Resource+".pressure"), Arg: t.String()}
		// The notifier calls this with a lock held: it only sets flags.
		err := w.signal(ctx, s, func() {
			w.mu.Lock()
			w.pulled[i] = true
			w.mu.Unlock()
			w.wake.Set()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// signal registers one signal, and gives up after ten seconds. It returns ErrUnsupported if the
// kernel lacks the signal's file in the cgroup.
func (w *watch) signal(ctx context.Context, s Signal, wake func()) error {
	// The answer may arrive after the call was abandoned. The later of the two, the
	// answer or the end of the wait, sees the earlier one, so that no registration
	// is left behind.
	var (
		mu      sync.Mutex
		stop    func()
		givenUp bool
	)
	err := w.d.do(ctx, "watch", s.File, func() error {
		end, err := w.m.cfg.Notifier.Notify(s, wake)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if givenUp {
			end()
		}
		stop = end
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	switch {
	case noPressure(err):
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	case err == nil:
		w.stops = append(w.stops, stop)
	case stop != nil: // answered between the end of the wait and here
		stop()
	default:
		givenUp = true
	}
	return err
}

// disarm ends all notifications. None of them calls wake afterwards.
func (w *watch) disarm() {
	for _, stop := range w.stops {
		stop()
	}
}

// end makes run report that the cgroup is gone, even if a new one has the same
// name.
func (w *watch) end() {
	w.mu.Lock()
	w.gone = true
	w.mu.Unlock()
	w.wake.Set()
}

// lateFirst and lateLast are the first and the last wait for a count of v1: the
// kernel reports before it kills, and counts after it. The waits double in between:
// five seconds in all.
const (
	lateFirst = 10 * time.Millisecond
	lateLast  = 2560 * time.Millisecond
)

// run sends events until ctx ends or the cgroup is gone. It closes the channel
// last, after the watch is removed from the Manager's list.
func (w *watch) run(ctx context.Context) {
	defer close(w.out)
	defer w.m.watching(w.uid, w, false)
	defer w.disarm()
	again := time.NewTimer(lateFirst)
	again.Stop()
	defer again.Stop()
	late := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			late = lateFirst
		case <-again.C:
			late *= 2
		}
		told := w.look(ctx)
		// v1 reported before it counted; v2 counts first.
		if w.d.on.version == V1 && len(told) == 0 && late <= lateLast {
			again.Reset(late)
		}
		gone := false
		// Without a receiver the counters are not read: the kernel adds up the
		// events.
		for _, ev := range told {
			select {
			case w.out <- ev:
			case <-ctx.Done():
				return
			}
			gone = ev.Type == Gone
		}
		if gone {
			return
		}
	}
}

// look reads the counts and returns the events since the last call. Only run calls it.
func (w *watch) look(ctx context.Context) []Event {
	var out []Event
	w.mu.Lock()
	// Flags are read before the counters: a report in between leads to another
	// look.
	gone, pulled := w.gone, slices.Clone(w.pulled)
	clear(w.pulled)
	w.mu.Unlock()
	now, err := w.d.events(ctx, w.cgroup)
	switch {
	case gone || errors.Is(err, ErrNotExist):
		return []Event{{UID: w.uid, Type: Gone, Count: 1}}
	// The next report of the kernel leads to another look, with the same counts to
	// compare with.
	case err != nil:
		w.m.cfg.Log.Warn("failed to read events of cgroup", zap.String("cgroup", w.cgroup), zap.Error(err))
	default:
		out = append(out, news(w.uid, w.seen, now)...)
		w.seen = now
	}
	for i, t := range w.triggers {
		if !pulled[i] {
			continue
		}
		ev := Event{UID: w.uid, Type: Stalled, Count: 1, Trigger: t}
		if data, err := w.d.read(ctx, w.d.file(t.Resource, w.cgroup, t.Resource+".pressure")); err == nil {
			p, _ := kernel.ParsePressure(data) // the event is reported even without it
			ev.Pressure = pressure(p)
		}
		out = append(out, ev)
	}
	return out
}

// news returns the events between two readings of the counts. Counts that decreased belong to a new
// cgroup of the same name, and give no event. There is no event for Low.
func news(uid types.UID, before, now MemoryEvents) []Event {
	var out []Event
	add := func(t EventType, before, now uint64) {
		if now > before {
			out = append(out, Event{UID: uid, Type: t, Count: now - before})
		}
	}
	add(MemoryHigh, before.High, now.High)
	add(MemoryMax, before.Max, now.Max)
	add(OOM, before.OOM, now.OOM)
	add(OOMKill, before.OOMKill, now.OOMKill)
	return out
}

// events reads the event counters of a cgroup. It returns ErrNotExist if the cgroup
// is gone.
func (d *driver) events(ctx context.Context, cgroup string) (MemoryEvents, error) {
	name := "memory.events"
	if d.on.version == V1 {
		name = "memory.oom_control"
	}
	data, err := d.read(ctx, d.file("memory", cgroup, name))
	if gone(err) {
		return MemoryEvents{}, fmt.Errorf("%s of %s: %w", name, cgroup, ErrNotExist)
	}
	if err != nil {
		return MemoryEvents{}, err
	}
	return memoryEvents(kernel.ParseTable(data)), nil
}

// watching adds a watch to the watches of a pod, or removes it if on is false.
func (m *Manager) watching(uid types.UID, w *watch, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if on {
		m.watches[uid] = append(m.watches[uid], w)
		return
	}
	m.watches[uid] = slices.DeleteFunc(m.watches[uid], func(o *watch) bool { return o == w })
	if len(m.watches[uid]) == 0 {
		delete(m.watches, uid)
	}
}

// endWatches ends the watches of a pod. The list is copied, because a watch that
// ends removes itself under mu.
func (m *Manager) endWatches(uid types.UID) {
	m.mu.Lock()
	list := slices.Clone(m.watches[uid])
	m.mu.Unlock()
	for _, w := range list {
		w.end()
	}
}
