package check

import (
	"slices"
	"time"
)

// slowAfter is how long a check of a group may keep its place: the API's
// default of a probe's timeout.
const slowAfter = time.Second

// lane is the places of one kind of check, and who waits for them. A place is
// given to the groups that wait in turn. A check of a group that runs for long
// gives its place back and goes on as one of the group's share, so that a place
// is free again within slowAfter, whatever the checks do.
type lane struct {
	limit    int // places
	share    int // checks of a group at a time, those without a place included
	busy     int // places taken
	slow     int // checks that gave their place back and run
	suspects int // places taken by checks that took long the last time
	groups   map[string]*group
	turns    []*group // those with probes that wait, the next one first
}

// group is what a lane knows of the probes that share its places.
type group struct {
	name     string
	running  int // checks
	suspects int // of them, those that took long the last time, or do so now
	queue    [2]fifo
	inTurn   bool // it is in lane.turns
}

// run is a check that is under way.
type run struct {
	p      *Scheduled
	g      *group
	line   int  // the queue that it came from; 1 once it has given its place back
	placed bool // it has a place
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

// lineOf returns in which of the two queues of a group a probe waits.
func lineOf(p *Scheduled) int {
	if p.suspect {
		return 1
	}
	return 0
}

// take returns the check that runs next, or nil if there is none or no place
// for it, and counts it as busy.
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

// allowed returns which of the first two of a group may run, the one due first
// if both may, or nil. Suspects have half of the lane's places and half of
// their group's share, and at least one.
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

// leave takes a group that has nobody waiting out of the turns.
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

// yield has a check that runs for long give its place back. From now on it
// counts as a suspect.
func (l *lane) yield(r *run) {
	r.placed = false
	l.busy--
	l.slow++
	l.suspects -= r.line
	r.g.suspects += 1 - r.line
	r.line = 1
}

// done notes that a check has ended.
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

// waiting returns how many probes wait for a place.
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
