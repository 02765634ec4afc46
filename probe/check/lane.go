package check

import (
	"slices"
	"time"
)

// slowAfter is the time after which a check gives up its slot: the API's default timeout of a
// probe.
const slowAfter = time.Second

// lane has the slots of one kind of check, and the groups that wait for slots. Waiting groups get
// slots in turn. A check that runs longer than slowAfter gives its slot back and continues. It
// still counts as a running check of its group, and the number of those is limited.
type lane struct {
	limit    int // number of slots
	share    int // limit of running checks of a group, including checks that gave their slot back
	busy     int // used slots
	slow     int // running checks that gave their slot back
	suspects int // slots used by checks that were slow the last time
	groups   map[string]*group
	turns    []*group // groups with waiting probes, the next one first
}

// group is the state of the probes that share slots.
type group struct {
	name     string
	running  int // running checks
	suspects int // running checks that were slow the last time
	queue    [2]fifo
	inTurn   bool // the group is in lane.turns
}

// run is a running check.
type run struct {
	p      *Scheduled
	g      *group
	line   int  // the queue that the check came from; 1 once the check has given its slot back
	placed bool // the check has a slot
	over   bool
}

func newLane(limit int) *lane {
	return &lane{limit: limit, share: max(1, limit/4), groups: map[string]*group{}}
}

func (l *lane) push(p *Scheduled) {
	g := l.groups[p.spec.Group]
	if g == nil {
		g = &group{name: p.spec.Group}
		l.groups[g.name] = g
	}
	g.queue[lineOf(p)].push(p)
	if !g.inTurn {
		g.inTurn = true
		l.turns = append(l.turns, g)
	}
}

// lineOf returns the index of the queue in which a probe waits: each group has two queues.
func lineOf(p *Scheduled) int {
	if p.suspect {
		return 1
	}
	return 0
}

// take returns the next check and counts it as running. It returns nil if no check waits, or if
// there is no free slot.
func (l *lane) take() *run {
	for i := 0; l.busy < l.limit && i < len(l.turns); {
		g := l.turns[i]
		quick, suspect := g.queue[0].head(), g.queue[1].head()
		if quick == nil && suspect == nil {
			l.leave(i)
			continue
		}
		p := l.allowed(g, quick, suspect)
		if p == nil {
			i++
			continue
		}
		r := &run{p: p, g: g, line: lineOf(p), placed: true}
		g.queue[r.line].pop()
		l.busy++
		l.suspects += r.line
		g.running++
		g.suspects += r.line
		l.turns = append(slices.Delete(l.turns, i, i+1), g)
		return r
	}
	return nil
}

// allowed returns the probe of a group that may run next, or nil. The choice is between quick and
// suspect, the first probes of the group's two queues. If both may run, allowed returns the one
// that was due first. Suspects may use half of the lane's slots and half of their group's share,
// at least one each.
func (l *lane) allowed(g *group, quick, suspect *Scheduled) *Scheduled {
	switch {
	case g.name != "" && g.running >= l.share:
		return nil
	case suspect == nil || l.suspects >= max(1, l.limit/2) || g.name != "" && g.suspects >= max(1, l.share/2):
		return quick
	case quick == nil || suspect.due.Before(quick.due):
		return suspect
	default:
		return quick
	}
}

// leave removes the group at index i, which has no waiting probes, from l.turns.
func (l *lane) leave(i int) {
	g := l.turns[i]
	l.turns = slices.Delete(l.turns, i, i+1)
	g.inTurn = false
	l.forget(g)
}

func (l *lane) forget(g *group) {
	if g.running == 0 && !g.inTurn {
		delete(l.groups, g.name)
	}
}

// yield gives the slot of a slow check back. From now on the check counts as a suspect.
func (l *lane) yield(r *run) {
	r.placed = false
	l.busy--
	l.slow++
	l.suspects -= r.line
	r.g.suspects += 1 - r.line
	r.line = 1
}

// done records the end of a check.
func (l *lane) done(r *run) {
	r.over = true
	if r.placed {
		l.busy--
		l.suspects -= r.line
	} else {
		l.slow--
	}
	r.g.running--
	r.g.suspects -= r.line
	l.forget(r.g)
}

// waiting returns the number of probes that wait for a slot.
func (l *lane) waiting() int {
	n := 0
	for _, g := range l.turns {
		for _, q := range g.queue {
			for _, p := range q.items[q.first:] {
				if p.state == queued {
					n++
				}
			}
		}
	}
	return n
}

// load returns the number of used slots, the number of all slots, and the number of checks that
// wait for a slot.
func (l *lane) load() (running, limit, waiting int) {
	for _, g := range l.groups {
		waiting += g.queue[0].len() + g.queue[1].len()
	}
	return l.busy, l.limit, waiting
}
