package eviction

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/eviction/rank"
)

// One condition's goroutine: when it looks, and the order in which it acts. What it
// remembers needs no lock, since nobody else touches it; m.mu guards what is
// shared.

const (
	// soonest is how soon a falling figure is looked at again, soonestDisk
	// how soon a filesystem's is: that asks the runtime.
	soonest     = 500 * time.Millisecond
	soonestDisk = 2 * time.Second
	// again is when a look that failed, or came to nothing new, is repeated
	// while something is to be done.
	again = time.Second
)

// lane watches the thresholds of one condition, in one goroutine. What one
// waits for, a slow disk or the removal of images, holds up no other.
type lane struct {
	m         *Manager
	condition v1.NodeConditionType
	own       *Signal // nil: the signals are those of package rank
	// A second cause while one waits is dropped: one look serves both.
	wake chan string // why; capacity 1

	// What follows belongs to the goroutine.
	given     []rank.Threshold // of the configuration
	list      []rank.Threshold // with those of the layout, in order
	layout    rank.Layout
	watches   map[rank.Threshold]watch
	trends    map[rank.Signal]trend
	errs      map[string]string // by what failed, of the last time
	retry     bool              // look again soon
	aimed     time.Time         // when notifiers were told of levels
	reclaimed time.Time         // when reclaiming last ended

	// floor is when an eviction or reclaim last ended: figures from before
	// are out of date. Guarded by m.mu.
	floor time.Time
}

// newLane returns the lane of a condition with its part of the thresholds. It
// starts nothing.
func newLane(m *Manager, c v1.NodeConditionType, own *Signal) *lane {
	l := &lane{
		m: m, condition: c, own: own, wake: make(chan string, 1),
		watches: map[rank.Threshold]watch{}, trends: map[rank.Signal]trend{}, errs: map[string]string{},
	}
	for _, t := range m.cfg.Thresholds {
		if l.watchesSignal(t.Signal) {
			l.given = append(l.given, t)
		}
	}
	l.setList()
	return l
}

// watchesSignal reports whether a signal is the lane's.
func (l *lane) watchesSignal(s rank.Signal) bool {
	if l.own != nil {
		return s == l.own.Name
	}
	return s.Condition() == l.condition
}

// idle reports that there is nothing for the lane to do.
func (l *lane) idle() bool { return len(l.given) == 0 && !l.limits() }

// limits reports whether the lane watches limits of local storage, which is the
// disk lane's.
func (l *lane) limits() bool { return l.condition == v1.NodeDiskPressure && !l.m.cfg.IgnoreLimits }

// setLayout notes which filesystems there are. A disk for images may come while the
// agent runs; the kubelet looks once.
func (l *lane) setLayout(layout rank.Layout) {
	if l.layout == layout {
		return
	}
	l.m.cfg.Log.Info("layout of filesystems", zap.Stringer("layout", layout), zap.Stringer("before", l.layout))
	l.layout = layout
	l.setList()
}

// setList makes the list of thresholds for the layout, in the order in which they
// are acted upon: memory first.
func (l *lane) setList() {
	list, ignored := rank.ForLayout(l.given, l.layout)
	for _, t := range ignored {
		l.m.cfg.Log.Error("threshold ignored: those of containerfs follow from the filesystem it is on",
			zap.String("signal", string(t.Signal)))
	}
	slices.SortStableFunc(list, func(a, b rank.Threshold) int { return rank.CompareSignals(a.Signal, b.Signal) })
	// What is remembered of a threshold that is no longer there must not keep its
	// condition on.
	for t := range l.watches {
		if !slices.Contains(list, t) {
			delete(l.watches, t)
		}
	}
	l.list = list
}

// kick has the lane look now.
func (l *lane) kick(cause string) {
	select {
	case l.wake <- cause:
	default: // it will look anyway
	}
}

// run looks until ctx ends: at once, when woken, and when the last pass said.
func (l *lane) run(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	timer := time.NewTimer(l.pass(ctx, "start"))
	defer timer.Stop()
	for {
		cause := "interval"
		select {
		case <-ctx.Done():
			return
		case cause = <-l.wake:
		case <-timer.C:
		}
		timer.Reset(l.pass(ctx, cause))
	}
}

// pass looks, acts if something is to be done, and returns when to look again.
// Limits come first, as with the kubelet: a pod that breaks its own limit goes
// before pods that break none.
func (l *lane) pass(ctx context.Context, cause string) time.Duration {
	began := time.Now()
	l.retry = false
	l.m.sweep()
	l.look(ctx)
	if !(l.limits() && l.enforce(ctx, cause)) {
		for _, t := range l.list {
			w := l.watches[t]
			if !w.acting {
				continue
			}
			// Figures that a decision was made on already, or from before the last
			// eviction ended: acting on them would end a pod for nothing.
			if !w.fresh || !w.newerThan(l.floorNow()) {
				l.retry = true
				continue
			}
			// One threshold per pass: its victims change the figures of the others.
			if l.relieve(ctx, t, cause) {
				break
			}
		}
	}
	l.m.met.pass(l.condition, time.Since(began))
	return l.next(time.Now())
}

// look reads the figures and notes them. A signal that cannot be read keeps its
// state.
func (l *lane) look(ctx context.Context) {
	// The disk lane reads without thresholds, too: limits depend on the layout.
	if len(l.given) == 0 && l.condition != v1.NodeDiskPressure {
		return
	}
	seen, err := l.read(ctx)
	l.failed("node", err)
	now := time.Now()
	for s, o := range seen {
		l.trends[s] = l.trends[s].noted(o, now)
	}
	on := false
	for _, t := range l.list {
		o, ok := seen[t.Signal]
		w := l.watches[t].noted(t, o, ok, now, l.m.cfg.Transition)
		l.watches[t] = w
		on = on || w.lasting(now, l.m.cfg.Transition)
		l.retry = l.retry || !ok && w.met
	}
	l.show(seen)
	// Without a threshold nothing is known of the condition.
	if len(l.given) > 0 {
		l.m.setPressure(l.condition, on, now)
	}
}

// failed notes what came of reading something. Each failure counts, and is
// logged when it changes.
func (l *lane) failed(what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
		l.m.met.failure(l.condition)
	}
	if text != l.errs[what] && err != nil {
		l.m.cfg.Log.Warn("figures are missing", zap.Error(err))
	}
	l.errs[what] = text
}

// floorNow reads floor, which evictions of any lane raise.
func (l *lane) floorNow() time.Time {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	return l.floor
}

// next is how long until something can have changed.
func (l *lane) next(now time.Time) time.Duration {
	d := l.m.cfg.Interval
	// A time in the past means at once; zero means never.
	at := func(t time.Time) {
		if !t.IsZero() {
			d = min(d, max(t.Sub(now), 0))
		}
	}
	least := soonest
	if l.condition == v1.NodeDiskPressure {
		least = soonestDisk
	}
	for _, t := range l.list {
		w := l.watches[t]
		if due := w.due(t, l.m.cfg.Transition); due.After(now) {
			at(due)
		}
		// A falling figure is looked at more often, since an interval is enough for
		// a leak to reach the OOM killer.
		if trend, ok := l.trends[t.Signal]; ok && !w.met {
			// Half of what is left, so that it is watched ever closer.
			left := trend.left(t.Value.Of(w.obs.Capacity), 2*d)
			d = min(d, max(left/2, least))
		}
	}
	if l.retry {
		d = min(d, again)
	}
	// An eviction that is no longer counted on makes room for another.
	at(l.m.givesUp(l, now))
	return max(d, time.Millisecond)
}

// rules are those of the order of eviction on this node.
func (l *lane) rules() rank.Rules { return rank.Rules{Layout: l.layout, PlainInodes: true} }
