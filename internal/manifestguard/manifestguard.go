// Package manifestguard rejects YAML and JSON whose decoding would need much more
// memory or time than the size of the text suggests: aliases that expand to gigabytes,
// lists of a million empty objects, unlimited nesting, and quantities whose parsing takes
// forever. It also converts YAML to JSON, and reports duplicate keys.
package manifestguard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v2"
	kyaml "sigs.k8s.io/yaml"
)

// maxTwice is the maximum number of duplicate keys in the result of JSON, and maxPath the
// maximum length of a key's path in bytes.
const (
	maxTwice = 20
	maxPath  = 200
)

// JSON converts the first document of a YAML text to JSON, as the kubelet does with
// manifests. If a mapping has a key more than once, JSON uses the last value, and twice
// contains the key's path. A key that overrides a merged key ("<<") is not a duplicate.
// The caller has to check the text with [Aliases] first.
func JSON(text []byte) (raw []byte, twice []string, err error) {
	strict, err := kyaml.YAMLToJSONStrict(text)
	if err == nil {
		return strict, nil, nil
	}
	if raw, err = kyaml.YAMLToJSON(text); err != nil {
		return nil, nil, err
	}
	var doc yaml.MapSlice // all keys in the text, without merged keys
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return raw, nil, nil // not an object
	}
	return raw, repeated(nil, nil, doc), nil
}

// repeated appends the paths of duplicate keys in v to twice. path is the path of v.
func repeated(twice, path []string, v any) []string {
	switch v := v.(type) {
	case yaml.MapSlice:
		seen := make(map[string]bool, len(v))
		for _, item := range v {
			key := fmt.Sprint(item.Key) // JSON's form of a key
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

// Aliases returns an error for YAML that is larger than limit bytes when its aliases are
// expanded (the "billion laughs"). The YAML decoder itself limits only the number of
// values: thousands of aliases may share one long text, which JSON would repeat. For
// invalid YAML, Aliases returns nil, because the decoder returns a better error. It checks
// only the first document.
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

// expanded subtracts the expanded size of v from left and returns the rest. It stops as soon as
// the rest is negative.
func expanded(v any, left int) int {
	left -= 8 // quotes, commas, and a number or a bool
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

// MoreDocuments reports whether a YAML text has content after its first document.
func MoreDocuments(text []byte) bool {
	content, next := false, false
	for line := range bytes.Lines(text) {
		rest, isMarker := bytes.CutPrefix(bytes.TrimSpace(line), []byte("---"))
		isMarker = isMarker && bytes.HasPrefix(line, []byte("---")) && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '#')
		switch {
		case isMarker:
			next = content
		case len(rest) == 0 || rest[0] == '#' || rest[0] == '%':
		case next:
			return true
		default:
			content = true
		}
	}
	return false
}

// Values returns the number of values and field names in YAML or JSON. The YAML parser
// needs some hundred bytes for each. For JSON the number is exact. For YAML it is an
// estimate: at least half of the number, minus two. The estimate may be too high, since it
// counts punctuation within texts.
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

// Shape is the nesting and the size of a JSON text.
type Shape struct {
	Depth  int // depth of nested arrays and objects
	Values int // number of values and field names
}

// ShapeOf returns the shape of a JSON text, valid or not. It makes one pass without
// allocations.
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
