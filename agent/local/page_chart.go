package local

import (
	"fmt"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The plot of a chart, in units of its SVG. The values are to the right of it, and the times below.
const (
	plotWidth, plotTop, plotBottom = 244, 8, 88
	sparkWidth, sparkHeight        = 72, 16
	sparkPoints                    = 36
)

// chart is a chart of the last hour.
type chart struct {
	Title, Now    string
	Text          string // the chart in words
	Lines         []chartLine
	Values, Times []mark
	Limit         *mark // at which the kernel or the agent acts
}

// chartLine is a line of values. It has gaps where values are unknown.
type chartLine struct {
	Name   string
	Pieces []string // points of an SVG polyline
}

// mark is a position on an axis.
type mark struct {
	At   float64
	Text string
}

// series has the values of a line; values below 0 are unknown.
type series struct {
	name   string
	values []int64
}

// plot describes a chart.
type plot struct {
	title string
	times []time.Time
	lines []series
	// top is the value at the upper edge; 0 means one that fits all values.
	top int64
	// limit is the value at which the kernel or the agent acts; 0 means none. limitText
	// says what happens there.
	limit     int64
	limitText string
	show      func(int64) string
	share     bool // also show the last value as a share of top
}

// chartOf returns the chart of a plot; false if no value is known.
func chartOf(p plot, now time.Time) (chart, bool) {
	c := chart{Title: p.title}
	most, last := int64(-1), []string{}
	for _, l := range p.lines {
		for _, v := range l.values {
			most = max(most, v)
		}
	}
	if most < 0 {
		return c, false
	}
	top := p.top
	if top <= 0 {
		top = roundUp(max(most, p.limit))
	}
	height := func(v int64) float64 {
		return tenths(plotBottom - float64(min(v, top))/float64(top)*(plotBottom-plotTop))
	}
	begin := now.Add(-time.Hour)
	place := func(t time.Time) float64 { return tenths(float64(t.Sub(begin)) / float64(time.Hour) * plotWidth) }
	for _, l := range p.lines {
		c.Lines = append(c.Lines, chartLine{l.name, pieces(p.times, l.values, place, height)})
		text := "not known"
		if n := len(l.values); n > 0 && l.values[n-1] >= 0 {
			text = strings.TrimSpace(l.name + " " + p.show(l.values[n-1]))
			if p.share {
				text += fmt.Sprintf(" of %s, %s", p.show(top), percent(l.values[n-1], top))
			}
		}
		last = append(last, text)
	}
	c.Now = strings.Join(last, ", ")
	for _, v := range []int64{0, top / 2, top} {
		c.Values = append(c.Values, mark{height(v), p.show(v)})
	}
	for t := begin.Truncate(15 * time.Minute).Add(15 * time.Minute); t.Before(now); t = t.Add(15 * time.Minute) {
		if x := place(t); x > 14 && x < plotWidth-14 {
			c.Times = append(c.Times, mark{x, t.Local().Format("15:04")})
		}
	}
	c.Text = fmt.Sprintf("%s in the last hour: now %s; highest %s", p.title, c.Now, p.show(most))
	if p.limit > 0 && p.limit <= top {
		c.Limit = &mark{height(p.limit), p.limitText}
		c.Text += fmt.Sprintf("; %s at %s", p.limitText, p.show(p.limit))
	}
	return c, true
}

// tenths rounds to one digit after the point.
func tenths(v float64) float64 { return math.Round(v*10) / 10 }

// pieces returns the known points, split at gaps.
func pieces(times []time.Time, values []int64, place func(time.Time) float64, height func(int64) float64) (all []string) {
	var b strings.Builder
	end := func() {
		if b.Len() > 0 {
			all = append(all, b.String())
			b.Reset()
		}
	}
	for i, v := range values[:min(len(values), len(times))] {
		x := place(times[i])
		if v < 0 || x < 0 {
			end()
			continue
		}
		if i > 0 && times[i].Sub(times[i-1]) > 3*historyEvery {
			end()
		}
		if b.Len() == 0 { // a lone value is a dash
			fmt.Fprintf(&b, "%v,%v ", max(0, x-1), height(v))
		}
		fmt.Fprintf(&b, "%v,%v ", x, height(v))
	}
	end()
	return all
}

// spark returns the points of a small chart in SVG's form. Each point is the highest of some
// neighbouring values, so that a short peak is seen. It returns "" for fewer than two values.
func spark(values []int64) string {
	most := int64(0)
	for _, v := range values {
		most = max(most, v)
	}
	if len(values) < 2 {
		return ""
	}
	var b strings.Builder
	per := max(1, historyLength/sparkPoints)
	offset := historyLength - len(values)
	for i := 0; i < len(values); {
		end := min(len(values), i+per-(i+offset)%per)
		v := int64(-1)
		for _, w := range values[i:end] {
			v = max(v, w)
		}
		if v >= 0 {
			x := (offset + end - 1) * sparkWidth / (historyLength - 1)
			fmt.Fprintf(&b, "%d,%.0f ", x, sparkHeight-1-float64(v)/float64(max(most, 1))*(sparkHeight-2))
		}
		i = end
	}
	return b.String()
}

// roundUp returns the next round number for an axis.
func roundUp(v int64) int64 {
	if v < 1 {
		return 1
	}
	unit := int64(math.Pow10(int(math.Log10(float64(v)))))
	if v >= 10<<10 { // bytes
		for unit = 1; unit*16 < v; unit *= 2 {
		}
	}
	return (v + unit - 1) / unit * unit
}

func percent(of, all int64) string {
	if of < 0 || all <= 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", float64(of)/float64(all)*100)
}

// charts returns the charts of the node's usage; none without a history.
func (a *answers) charts() (all []chart) {
	h := a.history
	if h == nil {
		return nil
	}
	add := func(p plot) {
		p.times = h.Times
		if c, ok := chartOf(p, a.at); ok {
			all = append(all, c)
		}
	}
	cpus, memory := a.capacity()
	add(plot{title: "CPU", lines: []series{{"", h.Node.CPU}}, top: cpus, show: millis, share: cpus > 0})
	add(plot{title: "Memory", lines: []series{{"", h.Node.Memory}}, top: memory, show: bytesOf, share: memory > 0, limit: a.limit("memory.available", memory), limitText: "eviction"})
	size := h.Node.DiskSize
	add(plot{title: "Disk", lines: []series{{"", h.Node.Disk}}, top: size, show: bytesOf, share: size > 0, limit: a.limit("nodefs.available", size), limitText: "eviction"})
	add(plot{title: "Network", lines: []series{{"in", h.Node.Received}, {"out", h.Node.Sent}}, show: func(v int64) string { return bytesOf(v) + "/s" }})
	return all
}

// capacity returns the node's CPUs, in thousandths, and its memory; 0 is unknown.
func (a *answers) capacity() (cpus, memory int64) {
	if a.node == nil {
		return 0, 0
	}
	return a.node.Status.Capacity.Cpu().MilliValue(), a.node.Status.Capacity.Memory().Value()
}

// limit returns the usage of a resource at which pods are evicted, by the threshold of a
// signal; 0 if it is not known.
func (a *answers) limit(signal string, capacity int64) int64 {
	if a.why == nil {
		return 0
	}
	for _, f := range a.why.Figures {
		if f.Signal != signal || f.Soft {
			continue
		}
		if q, err := resource.ParseQuantity(f.Threshold); err == nil {
			return max(0, capacity-q.Value())
		}
	}
	return 0
}
