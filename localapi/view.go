package localapi

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// view makes a kind another version of a stored kind: clients read and write the same objects,
// with other names for some top-level fields.
type view struct {
	of *kind
	// names maps field names of this version to field names of the stored kind, where they differ.
	names map[string]string
	// check returns further mistakes in an object that is written in this version.
	check func(o, old object) field.ErrorList
}

// kept returns the stored kind: of a view, the kind behind it, otherwise k itself.
func (k *kind) kept() *kind {
	if k.view == nil {
		return k
	}
	return k.view.of
}

// shown converts a stored object to this version. It shares everything that the fields point to.
func (k *kind) shown(o object) object {
	if k.view == nil {
		return o
	}
	return k.view.converted(o, k.view.of, k)
}

// stored converts an object of this version to the stored one. It shares everything that the
// fields point to.
func (k *kind) stored(o object) object {
	if k.view == nil {
		return o
	}
	return k.view.converted(o, k, k.view.of)
}

// checked returns the mistakes of a stored object, written in this version, that only this version
// forbids.
func (k *kind) checked(o, old object) field.ErrorList {
	if k.view == nil {
		return nil
	}
	return k.view.check(o, old)
}

// storedName returns the stored name of a field of this version; "" if this version has no such
// field.
func (k *kind) storedName(name string) string {
	if k.view == nil {
		return name
	}
	if k.view.named(name, k) != name {
		return ""
	}
	return k.view.named(name, k.view.of)
}

// storedFields converts the JSON of an object of this version to the stored field names.
func (k *kind) storedFields(content map[string]any) map[string]any {
	if k.view == nil {
		return content
	}
	out := map[string]any{}
	for name, v := range content {
		out[k.view.named(name, k.view.of)] = v
	}
	out["apiVersion"], out["kind"] = k.view.of.GroupVersion().String(), k.view.of.Kind
	return out
}

// named returns the name of a field in the kind to. name is its name in the other of
// the two kinds.
func (v *view) named(name string, to *kind) string {
	for here, there := range v.names {
		switch {
		case to == v.of && name == here:
			return there
		case to != v.of && name == there:
			return here
		}
	}
	return name
}

func (v *view) converted(o object, from, to *kind) object {
	out := to.new()
	in, is := reflect.ValueOf(o).Elem(), reflect.ValueOf(out).Elem()
	at := map[string]int{}
	for i := range is.NumField() {
		at[jsonName(is.Type().Field(i))] = i
	}
	for i := range in.NumField() {
		f := is.Field(at[v.named(jsonName(in.Type().Field(i)), to)])
		f.Set(in.Field(i).Convert(f.Type()))
	}
	out.GetObjectKind().SetGroupVersionKind(to.GroupVersionKind)
	notes := slices.Clone(o.GetManagedFields())
	for i := range notes {
		if notes[i].APIVersion == from.GroupVersion().String() {
			notes[i].APIVersion, notes[i].FieldsV1 = to.GroupVersion().String(), v.convertedFields(notes[i].FieldsV1, to)
		}
	}
	out.SetManagedFields(notes)
	return out
}

// convertedFields converts the names in a set of managed fields. A set that cannot be decoded is
// unchanged.
func (v *view) convertedFields(set *metav1.FieldsV1, to *kind) *metav1.FieldsV1 {
	var in map[string]json.RawMessage
	if set == nil || json.Unmarshal(set.GetRawBytes(), &in) != nil {
		return set
	}
	out := map[string]json.RawMessage{}
	for name, within := range in {
		if f, ok := strings.CutPrefix(name, "f:"); ok {
			name = "f:" + v.named(f, to)
		}
		out[name] = within
	}
	text, err := json.Marshal(out)
	if err != nil {
		return set
	}
	return metav1.NewFieldsV1(string(text))
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name // "" is for TypeMeta
}

// viewOfEvents returns events.k8s.io/v1, which has core events with newer field names. Every
// event written in it must have a time in microseconds and none of the deprecated fields. In an
// existing event, only the series may change.
func viewOfEvents(of *kind) *view {
	return &view{of: of, check: checkNewEvent, names: map[string]string{
		"note": "message", "regarding": "involvedObject", "reportingController": "reportingComponent", "deprecatedSource": "source",
		"deprecatedFirstTimestamp": "firstTimestamp", "deprecatedLastTimestamp": "lastTimestamp", "deprecatedCount": "count",
	}}
}
