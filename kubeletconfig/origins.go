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

// Value is an effective value of the configuration, with its origin.
type Value struct {
	// Field is the path of the field in the file, such as evictionHard.memory.available. For a flag
	// without a field in the file it is the name of the flag, such as --root-dir.
	Field string `json:"field"`
	Value any    `json:"value"` // as decoded from JSON
	// Origin tells what set the value: FILE:LINE, the name of a flag, or "default".
	Origin string `json:"origin"`
}

// byDefault is the origin of a default value.
const byDefault = "default"

// origins is a document with the structure of the configuration. In place of each value it has a
// string: the file and line, or the flag, that set the value. A list counts as one value.
type origins map[string]any

// marked returns the origins of a value v at a path in a file. lines are the line numbers of the
// file's fields. A null stays null, so that the merge patch that removes a value also removes its
// origin.
func marked(file, path string, v any, lines map[string]int) any {
	fields, ok := v.(map[string]any)
	switch {
	case v == nil:
		return nil
	case !ok || len(fields) == 0:
		for at := path; at != ""; at = at[:max(0, strings.LastIndexByte(at, '.'))] { // a merged value (<<) has no line: use its parent's
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

// of returns the origin of a field. For a field with subfields, it returns the origin of the first
// subfield that was set. It returns "" for a default. path may be the path of an item of a list.
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

// step returns the value of the field with which a path begins, and the rest of the path. A field's
// name may contain dots.
func step(document map[string]any, path string) (v any, rest string, ok bool) {
	for end := len(path); end > 0; end = max(strings.LastIndexByte(path[:end], '.'), strings.LastIndexByte(path[:end], '[')) {
		if v, ok := document[path[:end]]; ok {
			return v, strings.TrimPrefix(path[end:], "."), true
		}
	}
	return nil, "", false
}

// first returns the first origin in a document, in the order of field names.
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

// Values returns the effective values of all fields, sorted by their paths. It leaves out fields that
// are empty. It masks values that may be credentials, as [Config.Redacted] does.
func (c *Config) Values() []Value {
	raw, _ := json.Marshal(c.Redacted())
	doc := map[string]any{}
	_ = json.Unmarshal(raw, &doc)
	delete(doc, "kind")
	delete(doc, "apiVersion")
	return values(nil, "", doc, c.origins)
}

// values appends v, or the values below v, to out. path is the path of v. from has their origins: it
// is a document of origins, a single origin of all of them, or nil for defaults.
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
		at := from // a single origin
		if some {
			at = places[name]
		}
		out = values(out, strings.TrimPrefix(path+"."+name, "."), fields[name], at)
	}
	return out
}

// Values returns the values of the flags that have no field in the file. It includes the program's
// own flags in the FlagSet that was passed to [Flags.Bind]. It masks passwords and queries of URLs.
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

// fieldsOfFlags returns the path of the field that a flag sets, by the flag's name.
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

// mark sets the origins in o of all fields that the given flags set.
func (f *Flags) mark(o origins) {
	fields := fieldsOfFlags()
	for name := range f.given() {
		path, ok := fields[name]
		if !ok {
			continue
		}
		var place any = "--" + name
		if gates, ok := f.fields[name].(map[string]any); ok && path == "featureGates" { // other gates keep their origins
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
