package main

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// Sizes, in pixels. Text is monospaced, so that its width is known.
const (
	charWidth           = 8
	boxHeight, gap, pad = 30, 10, 10
	rowHeight           = 56
	labelWidth          = 150
	pictureWidth        = 1000
)

type box struct {
	name       string
	x, y, wide int
}

type arrow struct{ from, to, text string }

// picture is what a text describes.
type picture struct {
	labels []string // of rows, with their y
	ys     []int
	boxes  []box
	arrows []arrow
	height int
}

// draw makes a picture of text.
func draw(text string) (string, error) {
	p, err := parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="monospace" font-size="13">`+"\n",
		pictureWidth, p.height, pictureWidth, p.height)
	b.WriteString(`<defs><marker id="end" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#567"/></marker></defs>` + "\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", pictureWidth, p.height)
	for i, l := range p.labels {
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#567">%s</text>`+"\n", pad, p.ys[i]+boxHeight/2+5, escaped(l))
	}
	for _, a := range p.arrows {
		if err := p.drawArrow(&b, a); err != nil {
			return "", err
		}
	}
	for _, x := range p.boxes {
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="#e8f0f8" stroke="#357"/>`+"\n", x.x, x.y, x.wide, boxHeight)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", x.x+x.wide/2, x.y+boxHeight/2+5, escaped(x.name))
	}
	b.WriteString("</svg>\n")
	return b.String(), nil
}

func parse(text string) (*picture, error) {
	p := &picture{height: pad}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if from, rest, ok := strings.Cut(line, " -> "); ok {
			to, text, _ := strings.Cut(rest, ":")
			p.arrows = append(p.arrows, arrow{strings.TrimSpace(from), strings.TrimSpace(to), strings.TrimSpace(text)})
			continue
		}
		label, names, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("line %d: %q: want LABEL: NAMES or NAME -> NAME: TEXT", i+1, line)
		}
		p.row(label, strings.Fields(names))
	}
	p.height += pad
	return p, nil
}

// row adds a row of boxes, in several lines if they need more than one.
func (p *picture) row(label string, names []string) {
	p.labels, p.ys = append(p.labels, label), append(p.ys, p.height)
	x := labelWidth
	for _, n := range names {
		wide := len(n)*charWidth + 2*pad
		if x > labelWidth && x+wide > pictureWidth-pad {
			x = labelWidth
			p.height += boxHeight + gap
		}
		p.boxes = append(p.boxes, box{n, x, p.height, wide})
		x += wide + gap
	}
	p.height += rowHeight
}

func (p *picture) drawArrow(b *strings.Builder, a arrow) error {
	from, to := p.find(a.from), p.find(a.to)
	if from == nil || to == nil {
		return fmt.Errorf("arrow %s -> %s: want names of boxes", a.from, a.to)
	}
	x1, x2 := from.x+from.wide/2, to.x+to.wide/2
	y1, y2 := from.y+boxHeight, to.y
	switch {
	case from.y > to.y:
		y1, y2 = from.y, to.y+boxHeight
	case from.y == to.y && from.x < to.x:
		x1, x2, y1, y2 = from.x+from.wide, to.x, from.y+boxHeight/2, to.y+boxHeight/2
	case from.y == to.y:
		x1, x2, y1, y2 = from.x, to.x+to.wide, from.y+boxHeight/2, to.y+boxHeight/2
	}
	fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#567" marker-end="url(#end)"/>`+"\n", x1, y1, x2, y2)
	if a.text != "" {
		fmt.Fprintf(b, `<text x="%d" y="%d" fill="#567" font-size="11">%s</text>`+"\n", (x1+x2)/2+6, (y1+y2)/2+4, escaped(a.text))
	}
	return nil
}

func (p *picture) find(name string) *box {
	for i := range p.boxes {
		if p.boxes[i].name == name {
			return &p.boxes[i]
		}
	}
	return nil
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder never fails
	return b.String()
}
