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
)

// Watch reports events of the pod's cgroup until ctx ends or the cgroup is
// destroyed; then the channel is closed. What nobody takes is added up. Triggers
// take cgroup v2. Events of before the call are not reported. Several watches
// of one pod do not disturb each other. Where the kernel has no PSI, triggers
// are an error of ErrUnsupported.
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
		woken: make(chan struct{}, 1), pulled: make([]bool, len(triggers)), out: make(chan Event),
	}
	// The counts are read before the kernel is asked to report, so that nothing is
	// lost in between: the first look compares with them.
	if w.seen, err = d.events(ctx, cgroup); err != nil {
		return fail(err)
	}
	if err := w.arm(ctx); err != nil {
		w.disarm()
		return fail(err)
	}
	// From here on Destroy ends the watch.
	m.watching(uid, w, true)
	w.wake() // to look whether it went meanwhile
	go w.run(ctx)
	return w.out, nil
}

// watch is one call of Watch. Its goroutine, run, owns the fields up to seen;
// the kernel's reports and Destroy only set the last three and wake it.
type watch struct {
	m        *Manager
	d        *driver
	uid      types.UID
	cgroup   string
	triggers []Trigger
	// stops end the notifications, one for each signal.
	stops []func()
	out   chan Event
	// seen are the counts that were reported last.
	seen MemoryEvents

	woken chan struct{} // capacity 1
	// mu guards pulled and gone.
	mu     sync.Mutex
	pulled []bool // of triggers
	gone   bool
}

// arm asks the kernel for all that is to be told. On failure some of it may be
// armed already; disarm undoes that.
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
	if err := w.signal(ctx, memory, w.wake); err != nil {
		return err
	}
	for i, t := range w.triggers {
		s := Signal{File: w.d.file(t.Resource, w.cgroup, t.Resource+".pressure"), Arg: t.String()}
		// The notifier calls this with a lock held: only flags are set here.
		err := w.signal(ctx, s, func() {
			w.mu.Lock()
			w.pulled[i] = true
			w.mu.Unlock()
			w.wake()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// signal asks the notifier for one signal, within Config.CallTimeout. A kernel
// without that file is ErrUnsupported.
func (w *watch) signal(ctx context.Context, s Signal, wake func()) error {
	// The answer may come after the call has been given up: whoever is second of the
	// two, the answer or the end of the wait, sees the other, and nothing that was
	// asked for stays behind.
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
	case stop != nil: // it came between the end of the wait and here
		stop()
	default:
		givenUp = true
	}
	return err
}

// disarm ends all notifications. None of them wakes w after it.
func (w *watch) disarm() {
	for _, stop := range w.stops {
		stop()
	}
}

// wake has run look again. It does not block, and may be called from anywhere.
func (w *watch) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// end makes the next look report that the cgroup is gone, even if another one
// of the same name is there by then.
func (w *watch) end() {
	w.mu.Lock()
	w.gone = true
	w.mu.Unlock()
	w.wake()
}

// On v1 the kernel reports before it kills, and counts after it. These are the
// first and the last wait for the count. The waits double in between: five
// seconds in all.
const (
	lateFirst = 10 * time.Millisecond
	lateLast  = 2560 * time.Millisecond
)

// run reports until ctx ends or the cgroup is gone. The channel is closed last,
// after the watch is out of the Manager's list.
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
		case <-w.woken:
			late = lateFirst
		case <-again.C:
			late *= 2
		}
		told := w.look(ctx)
		// v1 was early; v2 counts before it reports.
		if w.d.on.version == V1 && len(told) == 0 && late <= lateLast {
			again.Reset(late)
		}
		gone := false
		// While nobody receives, no look is taken: the kernel's counters add up what
		// happens meanwhile.
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

// look finds out what happened since the last look. It is called by run alone.
func (w *watch) look(ctx context.Context) []Event {
	var out []Event
	w.mu.Lock()
	// Flags are taken before the counters are read: a report that comes in between
	// leads to another look, instead of being lost.
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
		w.m.cfg.Log.Warn("events of a cgroup cannot be read", zap.String("cgroup", w.cgroup), zap.Error(err))
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
			ev.Pressure, _ = ParsePressure(data) // it is told of all the same
		}
		out = append(out, ev)
	}
	return out
}

// news returns the events between two looks. Counts that went back are those of
// another cgroup of the name, and report nothing. There is no event for Low.
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

// events reads how often a cgroup came to its limits, as far as it is told of.
// It is ErrNotExist if the cgroup is gone.
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
	return memoryEvents(parseFlat(data)), nil
}

// watching adds a watch to those of a pod, or removes it.
func (m *Manager) watching(uid types.UID, w *watch, yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if yes {
		m.watches[uid] = append(m.watches[uid], w)
		return
	}
	m.watches[uid] = slices.DeleteFunc(m.watches[uid], func(o *watch) bool { return o == w })
	if len(m.watches[uid]) == 0 {
		delete(m.watches, uid)
	}
}

// endWatches informs those who watch a pod that its cgroup is gone. The list is
// copied, because a watch that ends takes itself off under mu.
func (m *Manager) endWatches(uid types.UID) {
	m.mu.Lock()
	list := slices.Clone(m.watches[uid])
	m.mu.Unlock()
	for _, w := range list {
		w.end()
	}
}
