package check

import "time"

// agenda is a binary heap of waiting probes, the next due one at the top. Each
// probe stores its index, so that it can be removed.
type agenda []*Scheduled

func (a agenda) before(i, j int) bool { return a[i].due.Before(a[j].due) }

func (a agenda) swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}

func (a *agenda) push(p *Scheduled) {
	p.index = len(*a)
	*a = append(*a, p)
	a.up(p.index)
}

func (a *agenda) remove(i int) {
	last := len(*a) - 1
	a.swap(i, last)
	(*a)[last].index = -1
	(*a)[last] = nil
	*a = (*a)[:last]
	if i < last {
		a.down(i)
		a.up(i)
	}
}

func (a agenda) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !a.before(i, parent) {
			return
		}
		a.swap(i, parent)
		i = parent
	}
}

func (a agenda) down(i int) {
	for {
		least := 2*i + 1
		if least >= len(a) {
			return
		}
		if right := least + 1; right < len(a) && a.before(right, least) {
			least = right
		}
		if !a.before(least, i) {
			return
		}
		a.swap(i, least)
		i = least
	}
}

// fifo is a queue whose stopped probes are skipped.
type fifo struct {
	items []*Scheduled
	first int
}

func (f *fifo) push(p *Scheduled) { f.items = append(f.items, p) }

func (f *fifo) len() int { return len(f.items) - f.first }

func (f *fifo) head() *Scheduled {
	for f.first < len(f.items) && f.items[f.first].state == stopped {
		f.pop()
	}
	if f.first == len(f.items) {
		return nil
	}
	return f.items[f.first]
}

func (f *fifo) pop() {
	f.items[f.first] = nil
	f.first++
	if 2*f.first >= len(f.items) {
		n := copy(f.items, f.items[f.first:])
		clear(f.items[n:])
		f.items, f.first = f.items[:n], 0
	}
}

// never is the time after which the timer of an empty agenda fires: no check is due then.
const never = time.Hour
