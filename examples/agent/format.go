package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/internal/podtext"
)

// formats are the values of --output, for the help.
const formats = "wide, name, json, yaml, jsonpath=TEMPLATE, custom-columns=HEADER:PATH,..., go-template=TEMPLATE"

// format is the value of --output.
type format struct {
	kind, text string
	path       *jsonpath.JSONPath
	columns    []customColumn
	template   *template.Template
}

// customColumn is a column of the format custom-columns.
type customColumn struct {
	header string
	path   *jsonpath.JSONPath
}

func (f *format) Type() string { return "format" }

func (f *format) String() string {
	if f.text != "" {
		return f.kind + "=" + f.text
	}
	return f.kind
}

// Set implements pflag.Value.
func (f *format) Set(s string) (err error) {
	f.kind, f.text, _ = strings.Cut(s, "=")
	switch f.kind {
	case "wide", "name", "json", "yaml":
		if f.text == "" {
			return nil
		}
	case "jsonpath":
		f.path, err = parsePath(f.text, false)
		return err
	case "go-template":
		f.template, err = template.New("output").Parse(f.text)
		return err
	case "custom-columns":
		for c := range strings.SplitSeq(f.text, ",") {
			header, path, ok := strings.Cut(c, ":")
			if !ok || header == "" {
				return fmt.Errorf("%q: want HEADER:PATH, such as NAME:.metadata.name", c)
			}
			p, err := parsePath(path, true)
			if err != nil {
				return err
			}
			f.columns = append(f.columns, customColumn{header, p})
		}
		return nil
	}
	return errors.New(formats)
}

// isTable reports whether the format prints one line per object.
func (f *format) isTable() bool { return f.kind == "" || f.kind == "wide" || f.kind == "name" }

// parsePath parses a JSONPath template, or a single expression if expression is true or text has no
// braces. A single expression may have braces or not.
func parsePath(text string, expression bool) (*jsonpath.JSONPath, error) {
	if expression || !strings.Contains(text, "{") {
		text = strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
		if text == "" {
			return nil, errors.New("a path such as .metadata.name")
		}
		text = "{." + strings.TrimPrefix(text, ".") + "}"
	}
	p := jsonpath.New("output").AllowMissingKeys(true)
	return p, p.Parse(text)
}

// write writes objects as a list or, if one is true, only the first object.
func (f *format) write(w io.Writer, objects []object, one, noHeaders bool) error {
	if f.kind == "custom-columns" {
		return f.writeColumns(w, objects, noHeaders)
	}
	var items []any
	for _, o := range objects {
		m, err := plain(o)
		if err != nil {
			return err
		}
		items = append(items, m)
	}
	var v any = map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": append([]any{}, items...)}
	if one {
		v = items[0]
	}
	switch f.kind {
	case "jsonpath":
		return f.path.Execute(w, v)
	case "go-template":
		return f.template.Execute(w, v)
	case "yaml":
		b, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	}
	b, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", b)
	return err
}

func (f *format) writeColumns(w io.Writer, objects []object, noHeaders bool) error {
	var rows [][]string
	if !noHeaders {
		var head []string
		for _, c := range f.columns {
			head = append(head, c.header)
		}
		rows = append(rows, head)
	}
	for _, o := range objects {
		m, err := plain(o)
		if err != nil {
			return err
		}
		var cells []string
		for _, c := range f.columns {
			values, err := valuesAt(c.path, m)
			if err != nil {
				return err
			}
			var texts []string
			for _, v := range values {
				texts = append(texts, fmt.Sprint(v))
			}
			cells = append(cells, podtext.OrNone(oneLine(strings.Join(texts, ","))))
		}
		rows = append(rows, cells)
	}
	return (&podtext.Lines{W: w}).Write(rows...)
}

// plain converts an object to the values of its JSON form.
func plain(o runtime.Object) (map[string]any, error) {
	return runtime.DefaultUnstructuredConverter.ToUnstructured(o)
}

// valuesAt returns the values at a path in an object.
func valuesAt(p *jsonpath.JSONPath, in map[string]any) (out []any, err error) {
	found, err := p.FindResults(in)
	if err != nil {
		return nil, err
	}
	for _, values := range found {
		for _, v := range values {
			if v.IsValid() && v.CanInterface() && (v.Kind() != reflect.Interface || !v.IsNil()) {
				out = append(out, v.Interface())
			}
		}
	}
	return out, nil
}

// typedName returns an object's name in the form TYPE/NAME, which "agent get" accepts.
func typedName(o object) string {
	return strings.ToLower(o.GetObjectKind().GroupVersionKind().Kind) + "/" + o.GetName()
}

// sorting returns a function that compares objects by a field, or nil if by is "". It compares numbers
// and quantities by their amounts, and other values by their texts. Objects without the field come
// first.
func sorting(by string) (func(a, b object) int, error) {
	if by == "" {
		return nil, nil //nolint:nilnil // the order of the list
	}
	path, err := parsePath(by, true)
	if err != nil {
		return nil, err
	}
	value := func(o object) string {
		m, err := plain(o)
		if err != nil {
			return ""
		}
		values, err := valuesAt(path, m)
		if err != nil || len(values) == 0 {
			return ""
		}
		return fmt.Sprint(values[0])
	}
	return func(a, b object) int { return compareValues(value(a), value(b)) }, nil
}

func compareValues(a, b string) int {
	x, err1 := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	switch {
	case err1 == nil && err2 == nil && x < y:
		return -1
	case err1 == nil && err2 == nil && x > y:
		return 1
	case err1 == nil && err2 == nil:
		return 0
	}
	if p, err := resource.ParseQuantity(a); err == nil {
		if q, err := resource.ParseQuantity(b); err == nil {
			return p.Cmp(q)
		}
	}
	return strings.Compare(a, b)
}

// objectFields is an object in its JSON form, whose fields --field-selector selects by path.
type objectFields map[string]any

func fieldsOf(o object) objectFields {
	m, err := plain(o)
	if err != nil {
		return nil
	}
	return m
}

// Has implements fields.Fields.
func (f objectFields) Has(path string) bool { return f.Get(path) != "" }

// Get implements fields.Fields.
func (f objectFields) Get(path string) string {
	var v any = map[string]any(f)
	for part := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = m[part]
	}
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// eachItem calls do for the objects of a list.
func eachItem(list runtime.Object, do func(object)) error {
	return meta.EachListItem(list, func(o runtime.Object) error {
		do(o.(object))
		return nil
	})
}
