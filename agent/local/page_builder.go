package local

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"time"
)

// builder writes HTML. It is no template: those keep the linker from dropping methods
// that nobody calls.
type builder struct{ strings.Builder }

// escape makes text of anything, also within quotes.
func escape(s string) string { return html.EscapeString(s) }

// raw writes HTML with arguments that are text.
func (b *builder) raw(format string, args ...string) {
	list := make([]any, len(args))
	for i, a := range args {
		list[i] = escape(a)
	}
	fmt.Fprintf(b, format, list...)
}

// table begins a table.
func (b *builder) table(class string, head ...string) {
	b.raw(`<table class="%s"><thead><tr>`, class)
	for _, h := range head {
		b.raw("<th>%s</th>", h)
	}
	b.raw("</tr></thead><tbody>\n")
}

func (b *builder) end() { b.raw("</tbody></table>\n") }

// row is a row of a table whose cells are text.
func (b *builder) row(class string, cells ...string) {
	b.raw(`<tr class="%s">`, class)
	for _, c := range cells {
		b.raw("<td>%s</td>", c)
	}
	b.raw("</tr>\n")
}

// age returns how long ago something was.
func age(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	switch d := time.Since(t); {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + "h"
	default:
		return strconv.Itoa(int(d.Hours()/24)) + "d"
	}
}

// bytesOf shows an amount of memory.
func bytesOf(n float64) string {
	if n < 0 {
		return ""
	}
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if n < 1024 {
			return strconv.FormatFloat(n, 'f', precision(n), 64) + " " + unit
		}
		n /= 1024
	}
	return strconv.FormatFloat(n, 'f', 1, 64) + " TiB"
}

func precision(n float64) int {
	if n < 10 && n != float64(int(n)) {
		return 1
	}
	return 0
}

// cores shows processor time.
func cores(n float64) string {
	switch {
	case n < 0:
		return ""
	case n < 1:
		return strconv.Itoa(int(n*1000)) + "m"
	}
	return strconv.FormatFloat(n, 'f', 2, 64)
}

// chart draws values of the last hour, of which those below 0 are not known.
func (b *builder) chart(title string, values []float64, show func(float64) string) {
	const width, height = 360, 60
	top, last := 0.0, -1.0
	for _, v := range values {
		top = max(top, v)
		if v >= 0 {
			last = v
		}
	}
	b.raw(`<figure><figcaption>%s <b>%s</b> <small>highest %s</small></figcaption><svg viewBox="0 0 %s %s" role="img"><polyline points="`,
		title, show(last), show(top), strconv.Itoa(width), strconv.Itoa(height))
	for i, v := range values {
		if v >= 0 && top > 0 {
			x := float64(width) * (1 - float64(len(values)-1-i)/float64(maxSamples-1))
			fmt.Fprintf(b, "%.1f,%.1f ", x, height-1-v/top*(height-2))
		}
	}
	b.raw(`"/></svg></figure>`)
}
