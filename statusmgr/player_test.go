package statusmgr

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// add makes a pod, in the place of any other.
func (h *history) add(name string) *player {
	p := &player{name: name, entry: &entry{pod: &v1.Pod{}}}
	p.pod.UID = types.UID(name)
	switch {
	case !h.start:
		p.stage = inactive
	case h.busy[name] != nil:
		p.stage = blocked
	default:
		p.stage = idle
	}
	h.entries[name], h.players[p.entry] = p, p
	return p
}

// set has a pod's status become the given one. A status is a word, or a word
// and a number, such as ready/2: a change of the number alone is no transition.
func (h *history) set(name, status string) {
	p := h.entries[name]
	if p == nil {
		p = h.add(name)
	} else if p.status == status {
		h.step(p, p.with(input{event: onRefresh}))
		return
	}
	h.serial++
	transition := p.finished || word(p.status) != word(status)
	p.status = status
	h.step(p, p.with(input{event: onSet, version: h.serial, now: h.now, urgent: transition}))
}

func word(status string) string {
	word, _, _ := strings.Cut(status, "/")
	return word
}

// with adds what the publication depends on to in.
func (p *player) with(in input) input {
	terminal := word(p.status) == "failed" || word(p.status) == "succeeded"
	in.final, in.deletion = terminal || p.finished, terminal && p.finished && p.request
	return in
}

// tick lets time pass, in which timers fire in order.
func (h *history) tick(d time.Duration) {
	end := h.now.Add(d)
	for {
		var first *player
		for _, name := range slices.Sorted(maps.Keys(h.entries)) {
			if p := h.entries[name]; !p.due.IsZero() && !p.due.After(end) && (first == nil || p.due.Before(first.due)) {
				first = p
			}
		}
		if first == nil {
			h.now = end
			return
		}
		h.now, first.due = first.due, time.Time{}
		h.step(first, input{event: onTimer})
	}
}

func (h *history) step(p *player, in input) { h.carryOut(p, p.step(in, h.delays)) }

// carryOut notes effects and does what the Manager does.
func (h *history) carryOut(p *player, do effects) {
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if do.disarm {
		note("disarm")
		p.due = time.Time{}
	}
	if do.save {
		note("store")
	}
	if do.observe {
		note("published after %v", h.now.Sub(p.since))
	}
	if do.begin {
		note("write v%d", p.writing)
	}
	if do.deletePod {
		note("delete")
	}
	if do.retry > 0 {
		p.due = h.now.Add(do.retry)
		note("retry in %v", do.retry)
	}
	if do.spread {
		note("jitter")
	}
	if do.queue != none {
		note("queue %s", [...]string{urgent: "urgent", normal: "normal", retries: "retries"}[do.queue])
	}
	if len(notes) > 0 {
		fmt.Fprintf(&h.out, "%s: %s\n", p.name, strings.Join(notes, ", "))
	}
	if do.queue != none {
		h.queue.put(p.entry, do.queue)
		h.dispatch()
	}
}

// dispatch grants free slots.
func (h *history) dispatch() {
	for h.queue.free > 0 {
		e, c := h.queue.next()
		if e == nil {
			return
		}
		p := h.players[e]
		since := p.entry.since
		do := p.step(input{event: onGrant}, h.delays)
		if do.begin {
			h.queue.begin(e, c)
			p.class, p.since = c, since
			h.busy[p.name] = p
		}
		h.carryOut(p, do)
	}
}

// describe is a state in words.
func describe(s *state) string {
	stages := [...]string{
		inactive: "inactive", idle: "idle", blocked: "blocked", queued: "queued", writing: "writing", rewriting: "rewriting",
		backingOff: "backing off", noTarget: "no target", removed: "removed",
	}
	out := fmt.Sprintf("%s, v%d", stages[s.stage], s.version)
	switch {
	case s.busy() && s.writing == 0:
		out += ", to an object that was replaced"
	case s.busy():
		out += fmt.Sprintf(", writing v%d", s.writing)
	}
	out += ", sink " + [...]string{nothing: "has nothing", known: "known", uncertain: "uncertain", gone: "gone"}[s.sink]
	if s.published > 0 {
		out += fmt.Sprintf(" v%d", s.published)
	}
	for _, f := range []struct {
		is   bool
		word string
	}{
		{s.urgent, "urgent"}, {s.unsure, "unsure"}, {s.slow, "slow"}, {s.withheld, "withheld"}, {s.mirrored, "mirror"}, {s.final, "final"},
		{s.deletion, "deletion"}, {s.deleted, "deleted"},
		{s.failures > 0, fmt.Sprint("failures=", s.failures)},
	} {
		if f.is {
			out += ", " + f.word
		}
	}
	return out
}
