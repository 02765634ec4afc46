package kubeletconfig

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Value is a value of the configuration in effect, with its origin.
type Value struct {
	// Field is the path of the value in the file, such as evictionHard.memory.available. For a flag
	// without a field in the file it is the flag, such as --root-dir.
	Field string `json:"field"`
	Value any    `json:"value"` // in JSON's types
	// Origin is the file with the line, the flag, or "default".
	Origin string `json:"origin"`
}

// byDefault is the origin of a value that nobody has set.
const byDefault = "default"

// origins has the structure of the configuration's document. In place of each value it has a
// string: the file and line, or the flag, that set the value. A list counts as one value.
type origins map[string]any

// marked returns the origins of a value v in a file. A null stays null, so that the merge
// removes the origin with the value.
func marked(file, path string, v any, lines map[string]int) any {
	fields, ok := v.(map[string]any)
	switch {
	case v == nil:
		return nil
	case !ok || len(fields) == 0:
		for at := path; at != ""; at = at[:max(0, strings.LastIndexByte(at, '.'))] { // a merged value (<<) has the line above it
			if n := lines[at]; n > 0 {
				return fmt.Sprintf("%s:%d", file, n)
			}
		}
		return file
	}
	out := make(map[string]any, len(fields))
	for name, v := range fields {
		out[name] = marked(file, strings.TrimPrefix(path+"."+name, "."), v, lines)
	}
	return out
}

// of returns the place where a field was set. For a field with subfields, it returns the place of
// the first subfield that was set. It returns "" if the value is a default. The path may name an
// entry of a list.
func (o origins) of(path string) string {
	for at := map[string]any(o); ; {
		next, rest, ok := step(at, path)
		if !ok {
			return ""
		}
		switch v := next.(type) {
		case string:
			return v
		case map[string]any:
			if rest == "" {
				return first(v)
			}
			at, path = v, rest
		default:
			return ""
		}
	}
}

// step returns the value of the field that a path begins with, and the rest of the path. Names of
// fields may have dots.
func step(document map[string]any, path string) (v any, rest string, ok bool) {
	for end := len(path); end > 0; end = max(strings.LastIndexByte(path[:end], '.'), strings.LastIndexByte(path[:end], '[')) {
		if v, ok := document[path[:end]]; ok {
			return v, strings.TrimPrefix(path[end:], "."), true
		}
	}
	return nil, "", false
}

// first returns the first place in a document, in the order of field names.
func first(document map[string]any) string {
	for _, name := range slices.Sorted(maps.Keys(document)) {
		switch v := document[name].(type) {
		case string:
			return v
		case map[string]any:
			if place := first(v); place != "" {
				return place
			}
		}
	}
	return ""
}

// Values returns the fields in effect that have a value, sorted by their paths. Fields that are
// off or empty by default are left out. Values that may be credentials are masked, as by
// [Config.Redacted].
func (c *Config) Values() []Value {
	raw, _ := json.Marshal(c.Redacted())
	doc := map[string]any{}
	_ = json.Unmarshal(raw, &doc)
	delete(doc, "kind")
	delete(doc, "apiVersion")
	return values(nil, "", doc, c.origins)
}

// values appends the values below v to out. from says where they were set. It is a document of
// origins, the place where all of them were set, or nil.
func values(out []Value, path string, v, from any) []Value {
	fields, ok := v.(map[string]any)
	if !ok || len(fields) == 0 && path != "" {
		origin, _ := from.(string)
		return append(out, Value{path, v, cmp.Or(origin, byDefault)})
	}
	places, some := from.(map[string]any)
	if o, ok := from.(origins); ok {
		places, some = o, true
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		at := from // a place of them all
		if some {
			at = places[name]
		}
		out = values(out, strings.TrimPrefix(path+"."+name, "."), fields[name], at)
	}
	return out
}

// Values returns the flags without a field in the file, with their values. It includes the
// program's own flags in the FlagSet passed to [Flags.Bind]. Passwords and queries of URLs
// are masked.
func (f *Flags) Values() []Value {
	if f.bound == nil {
		return nil
	}
	var out []Value
	given, skip := f.given(), map[string]bool{}
	for name := range fieldsOfFlags() {
		skip[name] = true
	}
	for _, name := range deadFlags {
		skip[name] = true
	}
	f.bound.VisitAll(func(fl *flag.Flag) {
		if skip[fl.Name] {
			return
		}
		v := Value{"--" + fl.Name, withoutPassword(fl.Value.String()), byDefault}
		if given[fl.Name] {
			v.Origin = v.Field
		}
		out = append(out, v)
	})
	return out
}

// fieldsOfFlags returns the paths of the fields that flags set, by the names of the flags.
func fieldsOfFlags() map[string]string {
	out := map[string]string{"pod-manifest-path": "staticPodPath", "manifest-url": "staticPodURL"}
	for _, s := range settings() {
		if out[s.name] == "" {
			first, rest, _ := strings.Cut(s.name, "-")
			for word := range strings.SplitSeq(rest, "-") {
				first += strings.ToUpper(word[:1]) + word[1:]
			}
			out[s.name] = first
		}
	}
	for _, l := range fieldFlags {
		out[l.name] = l.path
	}
	return out
}

// mark replaces, in o, the places of the fields that flags have set by the names of
// these flags.
func (f *Flags) mark(o origins) {
	fields := fieldsOfFlags()
	for name := range f.given() {
		path, ok := fields[name]
		if !ok {
			continue
		}
		var place any = "--" + name
		if gates, ok := f.fields[name].(map[string]any); ok && path == "featureGates" { // the others stay
			all := map[string]any{}
			if before, ok := o[path].(map[string]any); ok {
				all = before
			}
			for gate := range gates {
				all[gate] = place
			}
			place = all
		}
		at := map[string]any(o)
		steps := strings.Split(path, ".")
		for _, name := range steps[:len(steps)-1] {
			next, ok := at[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[name] = next
			}
			at = next
		}
		at[steps[len(steps)-1]] = place
	}
}
