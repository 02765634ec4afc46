// Package manifestguard refuses YAML and JSON that would cost much more than
// its size says, before it is decoded: aliases that come to gigabytes, lists of
// a million empty objects, nesting without end, and quantities that parse for
// ever. It also reads YAML, and tells keys that are written twice.
package manifestguard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v2"
	kyaml "sigs.k8s.io/yaml"
)

// maxTwice bounds the keys that JSON returns, and maxPath how long each of them is, in bytes.
const (
	maxTwice = 20
	maxPath  = 200
)

// JSON makes JSON of the first document of some YAML, as the kubelet reads
// manifests. A key behind a merge ("<<") overrides what is merged. twice are the
// paths of the keys that are written twice in one mapping of an object; the last
// of them counts. Texts with costly aliases are for [Aliases] to refuse before.
func JSON(text []byte) (raw []byte, twice []string, err error) {
	strict, err := kyaml.YAMLToJSONStrict(text)
	if err == nil {
		return strict, nil, nil
	}
	if raw, err = kyaml.YAMLToJSON(text); err != nil {
		return nil, nil, err
	}
	var doc yaml.MapSlice // has the keys of a mapping as they are written, and nothing that is merged
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return raw, nil, nil // no object
	}
	return raw, repeated(nil, nil, doc), nil
}

// repeated appends the paths of keys that are written twice in v, which is at path.
func repeated(twice, path []string, v any) []string {
	switch v := v.(type) {
	case yaml.MapSlice:
		seen := make(map[string]bool, len(v))
		for _, item := range v {
			key := fmt.Sprint(item.Key) // as JSON has it
			at := append(path, "."+key)
			if seen[key] && len(twice) < maxTwice {
				twice = append(twice, fmt.Sprintf("%.*s", maxPath, strings.Join(at, "")[1:]))
			}
			seen[key] = true
			twice = repeated(twice, at, item.Value)
		}
	case []any:
		for i := range v {
			twice = repeated(twice, append(path, fmt.Sprintf("[%d]", i)), v[i])
		}
	}
	return twice
}

// Aliases refuses YAML that comes to more than limit bytes once its aliases
// are replaced by what they stand for (the "billion laughs"). The decoder
// bounds the number of values, but a long text that thousands of aliases stand
// for is shared until it is written as JSON. Text that is no YAML is no error:
// whoever decodes it says so better. Only the first document counts.
func Aliases(text []byte, limit int) error {
	if !bytes.ContainsRune(text, '&') || !bytes.ContainsRune(text, '*') {
		return nil
	}
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		return nil
	}
	if expanded(v, limit) < 0 {
		return fmt.Errorf("want a document of at most %d bytes once its aliases are replaced", limit)
	}
	return nil
}

// expanded takes the size of v off left, and stops as soon as that is below 0.
func expanded(v any, left int) int {
	left -= 8 // quotes, commas, and what a number or a truth takes
	switch v := v.(type) {
	case string:
		left -= len(v)
	case []any:
		for i := 0; i < len(v) && left >= 0; i++ {
			left = expanded(v[i], left)
		}
	case map[any]any:
		for key, value := range v {
			if left < 0 {
				break
			}
			left = expanded(value, expanded(key, left))
		}
	}
	return left
}

// Values returns how many values and names of fields some YAML or JSON has: of
// JSON exactly, of YAML at least half of them, but for two. Each takes the YAML
// parser some hundred bytes. Marks within the texts of YAML count as if they were
// outside.
func Values(text []byte) int {
	if json.Valid(text) {
		return ShapeOf(text).Values
	}
	n := 0
	for i, c := range text {
		switch c {
		case '\n', '\r', ',', ':', '[', '{', '?':
			n++
		case '-':
			if i+1 < len(text) && (text[i+1] == ' ' || text[i+1] == '\t') {
				n++
			}
		}
	}
	return n
}

// Shape is what some JSON is made of.
type Shape struct {
	Depth  int // of arrays and objects in each other
	Values int // at most: names of fields count as well
}

// ShapeOf returns the shape of some JSON, valid or not, in one pass that
// allocates nothing.
func ShapeOf(text []byte) Shape {
	var s Shape
	depth, quoted, scalar := 0, false, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		if quoted {
			switch c {
			case '\\':
				i++
			case '"':
				quoted = false
			}
			continue
		}
		switch c {
		case '{', '[':
			depth++
			s.Depth, s.Values, scalar = max(s.Depth, depth), s.Values+1, false
		case '}', ']':
			depth--
			scalar = false
		case '"':
			quoted, scalar = true, false
			s.Values++
		case ',', ':', ' ', '\t', '\r', '\n':
			scalar = false
		default:
			if !scalar {
				s.Values++
			}
			scalar = true
		}
	}
	return s
}
