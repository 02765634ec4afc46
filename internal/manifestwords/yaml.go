package manifestwords

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

var atLine = regexp.MustCompile(`line (\d+): `)

// plain maps texts in the YAML parser's errors to words that describe the mistake.
var plain = []struct{ has, words string }{
	{"mapping values are not allowed", `a second ": " stands in this line: put the value in quotes, or begin a new line`},
	{"could not find expected ':'", `want "key: value"; a ":" is missing here or in the line before`},
	{"found unexpected end of stream", "a quote is not closed"},
	{"did not find expected ',' or ']'", "a [ is not closed, or a comma is missing"},
	{"did not find expected ',' or '}'", "a { is not closed, or a comma is missing"},
	{"did not find expected node content", "a value is missing, or a [ or { is not closed"},
	{"block sequence entries are not allowed", `a list's "- " stands where a value has begun: begin a new line`},
	{"unknown anchor", "an alias (*) has no anchor (&) before it"},
}

// YAML describes the error err of the YAML parser for doc. line is the line of the mistake,
// counted from 1, or 0 if it is not known. words describes the mistake.
func YAML(doc []byte, err error) (line int, words string) {
	words = strings.TrimPrefix(err.Error(), "yaml: ")
	if m := atLine.FindStringSubmatch(words); m != nil {
		line, _ = strconv.Atoi(m[1])
		words = strings.Replace(words, m[0], "", 1)
	}
	lines := strings.Split(string(doc), "\n")
	for i, l := range lines {
		if before := l[:len(l)-len(strings.TrimLeft(l, " \t"))]; strings.Contains(before, "\t") && strings.TrimSpace(l) != "" {
			return i + 1, "begins with a tab; YAML wants spaces"
		}
	}
	// If a block ends too soon, the parser reports the line before the line that it cannot parse.
	if strings.Contains(words, "did not find expected key") || strings.Contains(words, "did not find expected '-' indicator") {
		if at, text := indentation(lines, line); text != "" {
			return at, text
		}
	}
	for _, p := range plain {
		if strings.Contains(words, p.has) {
			return line, p.words
		}
	}
	return line, words
}

// indentation finds the first wrongly indented line from about-1 on: a line that ends a block, but
// has not the indentation of an outer block. It returns the line's number, and words that describe
// the mistake. words is "" if there is no such line.
func indentation(lines []string, about int) (line int, words string) {
	type block struct {
		column int
		key    string
	}
	var open []block
	for i, l := range lines {
		text := strings.TrimLeft(l, " ")
		if text == "" || text[0] == '#' {
			continue
		}
		column := len(l) - len(text)
		var was block // the outermost block that ends here
		for len(open) > 0 && open[len(open)-1].column > column {
			was, open = open[len(open)-1], open[:len(open)-1]
		}
		if was.key != "" && (len(open) == 0 || open[len(open)-1].column != column) && i+1 >= about-1 {
			return i + 1, fmt.Sprintf("%q is %s left of %q: keys of one object need the same indentation", keyOf(text), columns(was.column-column), was.key)
		}
		add := func(column int, key string) {
			if len(open) == 0 || open[len(open)-1].column != column {
				open = append(open, block{column, key})
			} else {
				open[len(open)-1].key = key
			}
		}
		for strings.HasPrefix(text, "- ") { // an item of a list; the text after the dash is indented, too
			add(column, "-")
			rest := strings.TrimLeft(text[1:], " ")
			column += len(text) - len(rest)
			text = rest
		}
		add(column, keyOf(text))
	}
	return 0, ""
}

func columns(n int) string {
	if n == 1 {
		return "one column"
	}
	return fmt.Sprintf("%d columns", n)
}

// keyOf returns the key in a line of YAML.
func keyOf(text string) string {
	key, _, _ := strings.Cut(strings.TrimPrefix(text, "- "), ":")
	return strings.TrimSpace(key)
}

// Document is a YAML document with the line numbers of its fields. The zero value has no fields.
type Document struct{ root *yaml.Node }

// Parse parses a YAML document. If doc is not valid YAML, the result has no fields.
func Parse(doc []byte) Document {
	var root yaml.Node
	if yaml.Unmarshal(doc, &root) != nil || len(root.Content) == 0 {
		return Document{}
	}
	return Document{root.Content[0]}
}

// Line returns the line, counted from 1, of the field at a path such as spec.containers[0].image.
// If the field is missing, it returns the line of the nearest existing parent, or 0 if there is
// none.
func (d Document) Line(path string) int {
	if d.root == nil {
		return 0
	}
	at, line := d.root, 0
	for _, step := range steps(path) {
		for at.Kind == yaml.AliasNode {
			at = at.Alias
		}
		next := (*yaml.Node)(nil)
		switch n, err := strconv.Atoi(strings.Trim(step, "[]")); {
		case at.Kind == yaml.SequenceNode && err == nil && n >= 0 && n < len(at.Content):
			next = at.Content[n]
			line = next.Line
		case at.Kind == yaml.MappingNode:
			for i := 0; i+1 < len(at.Content); i += 2 {
				if at.Content[i].Value == strings.Trim(step, "[]") {
					next, line = at.Content[i+1], at.Content[i].Line
				}
			}
		}
		if next == nil {
			return line
		}
		at = next
	}
	return line
}

// Lines returns the line numbers of all fields by path, except fields within lists.
func (d Document) Lines() map[string]int {
	out := map[string]int{}
	if d.root != nil {
		linesOf(d.root, "", out)
	}
	return out
}

func linesOf(n *yaml.Node, path string, out map[string]int) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		p := strings.TrimPrefix(path+"."+n.Content[i].Value, ".")
		out[p] = n.Content[i].Line
		linesOf(n.Content[i+1], p, out)
	}
}

// steps splits a path into field names and indices in brackets, such as "spec", "containers", "[0]".
func steps(path string) []string {
	return strings.FieldsFunc(strings.ReplaceAll(path, "[", ".["), func(r rune) bool { return r == '.' })
}
