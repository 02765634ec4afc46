package eviction

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/eviction/rank"
)

// The goroutine of one condition: when it reads its signals, and in which order it acts. Its own
// state needs no lock; m.mu guards shared state.

const (
	// soonest is the shortest interval for a falling figure; soonestDisk that for a filesystem,
	// which needs a call of the runtime.
	soonest     = 500 * time.Millisecond
	soonestDisk = 2 * time.Second
	// again is the interval after a reading that failed or had no new figures, while a threshold
	// is met.
	again = time.Second
)

// lane observes the thresholds of one condition, in its own goroutine: a slow disk or a removal
// of images delays no other lane.
type lane struct {
	m         *Manager
	condition v1.NodeConditionType
	own       *Signal // nil if the signals are those of package rank
	// wake has the cause of the next pass. Further causes are dropped while one waits, since one
	// pass is enough.
	wake chan string // cause; capacity 1

	// Only the lane's goroutine uses the fields below.
	given     []rank.Threshold // thresholds of the configuration
	list      []rank.Threshold // thresholds for the current layout, in the order of action
	layout    rank.Layout
	watches   map[rank.Threshold]watch
	trends    map[rank.Signal]trend
	errs      map[string]string // error of the last reading, by what failed
	retry     bool              // the next pass has to be soon
	aimed     time.Time         // when levels were last passed to notifiers
	reclaimed time.Time         // end of the last reclaim

	// floor is the end of the last eviction or reclaim: older figures are out of date. Guarded
	// by m.mu.
	floor time.Time
}

// newLane returns the lane of a condition with its thresholds. It starts nothing.
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

// watchesSignal reports whether a signal belongs to the lane.
func (l *lane) watchesSignal(s rank.Signal) bool {
	if l.own != nil {
		return s == l.own.Name
	}
	return s.Condition() == l.condition
}

// idle reports whether the lane has nothing to do: no signals and no limits.
func (l *lane) idle() bool { return len(l.given) == 0 && !l.limits() }

// limits reports whether the lane enforces limits of local storage: the disk lane does.
func (l *lane) limits() bool { return l.condition == v1.NodeDiskPressure && !l.m.cfg.IgnoreLimits }

// setLayout sets the layout of filesystems. The layout may change while the agent runs; the kubelet
// reads it once.
func (l *lane) setLayout(layout rank.Layout) {
	if l.layout == layout {
		return
	}
	l.m.cfg.Log.Info("detected layout of filesystems", zap.Stringer("layout", layout), zap.Stringer("before", l.layout))
	l.layout = layout
	l.setList()
}

// setList computes the list of thresholds for the layout, in the order of action: memory first.
func (l *lane) setList() {
	list, ignored := rank.ForLayout(l.given, l.layout)
	for _, t := range ignored {
		l.m.cfg.Log.Error("ignored threshold: containerfs is the same file system as nodefs or imagefs, whose threshold applies",
			zap.String("signal", string(t.Signal)))
	}
	slices.SortStableFunc(list, func(a, b rank.Threshold) int { return rank.CompareSignals(a.Signal, b.Signal) })
	// The watch of a removed threshold must not keep the condition true.
	for t := range l.watches {
		if !slices.Contains(list, t) {
			delete(l.watches, t)
		}
	}
	l.list = list
}

// kick makes the lane read its signals now.
func (l *lane) kick(cause string) {
	select {
	case l.wake <- cause:
	default: // a pass is due anyway
	}
}

// run makes passes until ctx ends: one at once, one whenever the lane is woken, and one when the
// interval that the last pass returned is over.
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

// pass reads the signals, acts if a threshold is met, and returns the time until the next pass.
// Limits come first, as in the kubelet: a pod that exceeds its own limit is evicted before other
// pods.
func (l *lane) pass(ctx context.Context, cause string) time.Duration {
	l.retry = false
	l.m.sweep()
	l.look(ctx)
	if !(l.limits() && l.enforce(ctx, cause)) {
		for _, t := range l.list {
			w := l.watches[t]
			if !w.acting {
				continue
			}
			// These figures were used for a decision already, or are older than the end of the
			// last eviction.
			if !w.fresh || !w.newerThan(l.floorNow()) {
				l.retry = true
				continue
			}
			// One threshold per pass, since its victims change the figures of the others.
			if l.relieve(ctx, t, cause) {
				break
			}
		}
	}
	return l.next(time.Now())
}

// look reads the signals and updates the state of their thresholds (watch). A signal that cannot be
// read keeps its state.
func (l *lane) look(ctx context.Context) {
	// The disk lane reads even without thresholds: limits depend on the layout.
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
	// Without thresholds the condition is unknown.
	if len(l.given) > 0 {
		l.m.setPressure(l.condition, on, now)
	}
}

// failed records the result of a reading. Errors are logged when they change.
func (l *lane) failed(what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != l.errs[what] && err != nil {
		l.m.cfg.Log.Warn("failed to read signals", zap.Error(err))
	}
	l.errs[what] = text
}

// floorNow returns floor. Evictions of any lane may raise it.
func (l *lane) floorNow() time.Time {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	return l.floor
}

// next returns the time until the next pass.
func (l *lane) next(now time.Time) time.Duration {
	d := interval
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
		// A falling figure is read more often: a leak may reach the OOM killer within an
		// interval.
		if trend, ok := l.trends[t.Signal]; ok && !w.met {
			// Half of the remaining time, so that readings become more frequent.
			left := trend.left(t.Value.Of(w.obs.Capacity), 2*d)
			d = min(d, max(left/2, least))
		}
	}
	if l.retry {
		d = min(d, again)
	}
	// When an eviction stops counting, another one may begin.
	at(l.m.givesUp(l, now))
	return max(d, time.Millisecond)
}

// rules returns the rules for the order of eviction on this node.
func (l *lane) rules() rank.Rules { return rank.Rules{Layout: l.layout, PlainInodes: true} }
