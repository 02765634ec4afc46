package local

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

const (
	// timelineParts is the number of parts of a timeline that can be zoomed into.
	timelineParts = 6
	// shortestTimeline is the shortest time that a timeline shows.
	shortestTimeline = 10 * time.Second
	// maxLanes limits the containers of a timeline.
	maxLanes = 20
	// narrowest is the width of the narrowest bar, in percent. A bar that its neighbour hides is
	// not drawn, which also limits the number of bars.
	narrowest = 0.2
	// labelWidth is the width that an exit code needs, in percent.
	labelWidth = 8
)

// timeline shows the recorded past of a pod as bars and marks over time. Positions are in percent.
type timeline struct {
	From, To time.Time
	Text     string // the time in words
	Lanes    []lane
	Parts    []timelinePart
	Links    []timelineLink
	Moments  []Moment // the last first
	More     int      // moments that are not listed
	NotKnown error
}

// lane has the bars of a container, or the marks of the pod.
type lane struct {
	Name, Text string
	Bars       []timelineBar
	Marks      []timelineMark
}

type timelineBar struct {
	X, Width            float64
	Class, Label, Title string
	Left                bool // the label is to the left of X
}

type timelineMark struct {
	X     float64
	Title string
	Bad   bool
}

// timelinePart is a part of the time, which a link zooms into.
type timelinePart struct {
	X, Width, Middle   float64
	Label, Title, Link string
}

type timelineLink struct{ Text, Link string }

// pastPage is the page of a pod that the agent does not list: only the pod's past is known.
type pastPage struct {
	Namespace, Name string
	Down            error // why the agent does not answer; nil: the pod is gone
	Timeline        *timeline
}

// Live returns the title of the page of a pod that is gone. Nothing else is updated.
func (o pastPage) Live() live {
	if o.Down != nil {
		return live{Title: o.Name + ": no answer"}
	}
	return live{Title: o.Name + ": gone"}
}

// past returns the page of a pod's recorded past, for a pod about which the agent answered with
// err. It returns err if the record has nothing about the pod.
func (p *Page) past(r *http.Request, namespace, name string, err error) (content, error) {
	if p.cfg.Past == nil || r.URL.Query().Has("part") {
		return nil, err
	}
	o := pastPage{Namespace: namespace, Name: name, Timeline: p.timeline(r, namespace, name)}
	if len(o.Timeline.Lanes) == 0 {
		return nil, err
	}
	if !errors.Is(err, ErrNotFound) {
		o.Down = err
	}
	return o, nil
}

// timeline reads a pod's past and draws it; nil if the page has no record.
func (p *Page) timeline(r *http.Request, namespace, name string) *timeline {
	if p.cfg.Past == nil {
		return nil
	}
	select {
	case p.pasts <- struct{}{}:
		defer func() { <-p.pasts }()
	case <-r.Context().Done():
		return &timeline{NotKnown: r.Context().Err()}
	}
	past, err := p.cfg.Past(PastQuery{Namespace: namespace, Name: name})
	if err != nil {
		return &timeline{NotKnown: err}
	}
	q := r.URL.Query()
	from, err1 := momentOf(q, "from")
	to, err2 := momentOf(q, "to")
	t := timelineOf(&past, from, to, time.Now())
	t.NotKnown = errors.Join(err1, err2)
	return t
}

// momentOf returns a time of a query; zero without it.
func momentOf(q url.Values, key string) (time.Time, error) {
	s := q.Get(key)
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, fmt.Errorf("%s=%.40q: want a time such as %s", key, s, time.RFC3339)
	}
	return t, nil
}

// timelineOf draws a past between two times. Zero times mean all of it. It is a pure function.
func timelineOf(past *Past, from, to, now time.Time) *timeline {
	first, last := lifeOfPast(past, now)
	if from.IsZero() || from.After(now) {
		from = first
	}
	if to.IsZero() || to.After(now) {
		to = last
	}
	if to.Sub(from) < shortestTimeline {
		from = to.Add(-shortestTimeline)
	}
	from, to = from.Truncate(time.Second), to.Truncate(time.Second)
	t := &timeline{From: from, To: to}
	t.Text = fmt.Sprintf("%s to %s, %s", When(from, now), When(to, now), duration.HumanDuration(to.Sub(from)))
	t.lanes(past, now)
	t.links(first, last, now)
	for i := len(past.Moments) - 1; i >= 0; i-- {
		switch m := &past.Moments[i]; {
		case m.At.Before(from) || m.At.After(to):
		case len(t.Moments) >= maxRows:
			t.More++
		default:
			t.Moments = append(t.Moments, *m)
		}
	}
	return t
}

// lifeOfPast returns the first and the last time of a pod's past.
func lifeOfPast(past *Past, now time.Time) (first, last time.Time) {
	first = now
	for i := range past.Moments {
		if m := &past.Moments[i]; m.UID != "" {
			first, last = earlier(first, m.At), latest(last, m.At)
		}
	}
	for i := range past.Stretches {
		s := &past.Stretches[i]
		if s.Container == "" {
			continue
		}
		first, last = earlier(first, s.From), latest(last, s.To)
		if s.To.IsZero() {
			last = now
		}
	}
	if last.IsZero() {
		last = now
	}
	return first, latest(last, first.Add(shortestTimeline))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// at returns the place of a time in percent.
func (t *timeline) at(when time.Time) float64 {
	share := float64(when.Sub(t.From)) / float64(t.To.Sub(t.From)) * 100
	return hundredths(max(0, min(100, share)))
}

// hundredths rounds to two digits after the point.
func hundredths(v float64) float64 { return math.Round(v*100) / 100 }

// lanes draws the pod, its containers in the order of their starts, and the agent.
func (t *timeline) lanes(past *Past, now time.Time) {
	pod, agent := lane{Name: "pod"}, lane{Name: "agent"}
	byName := map[string]*lane{}
	var names []string
	of := func(name string) *lane {
		if l := byName[name]; l != nil {
			return l
		}
		l := &lane{Name: name}
		if len(names) < maxLanes {
			names = append(names, name)
		}
		byName[name] = l
		return l
	}
	for i := range past.Stretches {
		s := &past.Stretches[i]
		end := s.To
		if end.IsZero() {
			end = now
		}
		if end.Before(t.From) || s.From.After(t.To) {
			continue
		}
		l := &agent
		if s.Container != "" {
			l = of(s.Container)
		}
		l.bar(t, s, end, now)
	}
	for i := range past.Moments {
		m := &past.Moments[i]
		if m.At.Before(t.From) || m.At.After(t.To) || m.UID == "" {
			continue
		}
		l := &pod
		if m.Container != "" {
			l = of(m.Container)
			if m.Kind != "probe" || !m.Problem { // the bars already show the container's starts and ends
				continue
			}
		}
		l.mark(t.at(m.At), When(m.At, now)+" "+m.Text, m.Problem)
	}
	t.Lanes = append(t.Lanes, pod)
	for _, name := range names {
		t.Lanes = append(t.Lanes, *byName[name])
	}
	if len(agent.Bars) > 0 {
		t.Lanes = append(t.Lanes, agent)
	}
	for i := range t.Lanes {
		l := &t.Lanes[i]
		switch n := len(l.Marks); {
		case n > 0 && i == 0:
			l.say(fmt.Sprintf("%d events, which the table below has", n))
		case n > 0:
			l.say(fmt.Sprintf("%d failed probes", n))
		case l.Text == "":
			l.Text = "nothing in this time"
		}
	}
}

// maxLaneText limits the description of a lane, in bytes.
const maxLaneText = 1000

// say appends text to the description of a lane, and drops the oldest parts beyond maxLaneText.
func (l *lane) say(text string) {
	l.Text = strings.TrimPrefix(l.Text+"; "+text, "; ")
	if n := len(l.Text); n > maxLaneText {
		_, l.Text, _ = strings.Cut(l.Text[n-maxLaneText:], "; ")
	}
}

func (l *lane) bar(t *timeline, s *Stretch, end, now time.Time) {
	b := timelineBar{X: t.at(s.From), Class: s.State, Title: When(s.From, now) + " " + s.State + ": " + s.Text}
	b.Width = max(narrowest, hundredths(t.at(end)-b.X))
	if s.Problem {
		b.Class += " bad"
	}
	if s.ExitCode != nil {
		b.Title += fmt.Sprintf(" (exit code %d)", *s.ExitCode)
	}
	l.say(b.Title)
	n := len(l.Bars)
	if n > 0 && b.X+b.Width-l.Bars[n-1].X-l.Bars[n-1].Width < narrowest/2 {
		return
	}
	if s.ExitCode != nil {
		b.Left = b.X > 100-labelWidth
		room := float64(labelWidth)
		if b.Left {
			room *= 2
		}
		if !slices.ContainsFunc(l.Bars, func(o timelineBar) bool { return o.Label != "" && b.X-o.X < room }) {
			b.Label = fmt.Sprintf("exit %d", *s.ExitCode)
		}
	}
	l.Bars = append(l.Bars, b)
}

func (l *lane) mark(x float64, title string, bad bool) {
	if n := len(l.Marks); n > 0 && x-l.Marks[n-1].X < narrowest && (l.Marks[n-1].Bad || !bad) {
		return
	}
	l.Marks = append(l.Marks, timelineMark{x, title, bad})
}

// links makes the links that show another time.
func (t *timeline) links(first, last, now time.Time) {
	to := func(from, to time.Time) string {
		return "?" + url.Values{"from": {from.UTC().Format(time.RFC3339)}, "to": {to.UTC().Format(time.RFC3339)}}.Encode() + "#timeline"
	}
	size := t.To.Sub(t.From)
	layout := time.TimeOnly
	switch {
	case size > 7*24*time.Hour:
		layout = "Jan 2"
	case size > 24*time.Hour:
		layout = "2. 15:04"
	case size > timelineParts*2*time.Minute:
		layout = "15:04"
	}
	for i := range timelineParts {
		from, end := t.From.Add(size*time.Duration(i)/timelineParts), t.From.Add(size*time.Duration(i+1)/timelineParts)
		part := timelinePart{X: t.at(from), Width: hundredths(t.at(end) - t.at(from)), Label: from.Local().Format(layout), Title: "Zoom into " + When(from, now) + " to " + When(end, now)}
		part.Middle = hundredths(part.X + part.Width/2)
		if size > shortestTimeline*timelineParts {
			part.Link = to(from, end)
		}
		t.Parts = append(t.Parts, part)
	}
	add := func(text string, from, end time.Time) { t.Links = append(t.Links, timelineLink{text, to(from, end)}) }
	if t.From.After(first) {
		add("Earlier", t.From.Add(-size/2), t.To.Add(-size/2))
	}
	if t.To.Before(last.Truncate(time.Second)) {
		add("Later", t.From.Add(size/2), t.To.Add(size/2))
	}
	if t.From.After(first) || t.To.Before(last.Truncate(time.Second)) {
		add("Zoom out", latest(t.From.Add(-size), first), earlier(t.To.Add(size), now))
		t.Links = append(t.Links, timelineLink{"All of it", "?#timeline"})
	}
	if size > time.Hour {
		add("Last hour", last.Add(-time.Hour), last)
	}
	if size > 24*time.Hour {
		add("Last day", last.Add(-24*time.Hour), last)
	}
}
