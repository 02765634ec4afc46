package patch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/nodewright/nodewright/internal/patch"
)

func object(t *testing.T, s string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(s), &v); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return v
}

func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func TestJSON(t *testing.T) {
	for _, c := range []struct{ doc, patch, want string }{
		{`{"a":1}`, `[{"op":"add","path":"/b","value":{"c":[1]}}]`, `{"a":1,"b":{"c":[1]}}`},
		{`{"a":[1,3]}`, `[{"op":"add","path":"/a/1","value":2},{"op":"add","path":"/a/-","value":4}]`, `{"a":[1,2,3,4]}`},
		{`{"a":[1,2,3]}`, `[{"op":"remove","path":"/a/0"},{"op":"replace","path":"/a/0","value":9}]`, `{"a":[9,3]}`},
		{`{"a":{"x/y":1,"m~n":2}}`, `[{"op":"remove","path":"/a/x~1y"},{"op":"replace","path":"/a/m~0n","value":null}]`, `{"a":{"m~n":null}}`},
		{`{"a":{"b":1},"c":{}}`, `[{"op":"move","from":"/a/b","path":"/c/d"},{"op":"copy","from":"/c","path":"/e"},{"op":"test","path":"/e/d","value":1}]`, `{"a":{},"c":{"d":1},"e":{"d":1}}`},
		{`{"a":1}`, `[{"op":"replace","path":"","value":{"b":2}}]`, `{"b":2}`},
		{`{"a":[[1],[2]]}`, `[{"op":"add","path":"/a/1/-","value":3}]`, `{"a":[[1],[2,3]]}`},
		{`{"a":[1]}`, `[{"op":"move","from":"/a/0","path":"/a/0"}]`, `{"a":[1]}`},
	} {
		doc := object(t, c.doc)
		got, err := patch.JSON(doc, []byte(c.patch))
		if err != nil || text(got) != c.want {
			t.Errorf("%s to %s: %s, %v, want %s", c.patch, c.doc, text(got), err, c.want)
		}
		if text(doc) != text(object(t, c.doc)) {
			t.Errorf("%s changed the object that it was given", c.patch)
		}
	}
}

func TestJSONRefused(t *testing.T) {
	many := "[" + strings.Repeat(`{"op":"test","path":"","value":{}},`, patch.MaxOperations) + `{"op":"test","path":"","value":{}}]`
	bomb := `[{"op":"add","path":"/a","value":["` + strings.Repeat("x", 1000) + `"]}`
	for range 40 {
		bomb += `,{"op":"copy","from":"/a","path":"/a/-"}`
	}
	for _, c := range []struct {
		patch string
		want  error
	}{
		{`{}`, patch.ErrMalformed},
		{`[{"op":"add","path":"b","value":1}]`, patch.ErrDoesNotApply},
		{`[{"op":"add","value":1}]`, patch.ErrMalformed},
		{`[{"op":"add","path":"/b"}]`, patch.ErrMalformed},
		{`[{"op":"copy","path":"/b"}]`, patch.ErrMalformed},
		{`[{"op":"burn","path":"/b"}]`, patch.ErrMalformed},
		{`[{"op":"move","from":"/l","path":"/l/0"}]`, patch.ErrDoesNotApply},
		{`[{"op":"remove","path":"/none"}]`, patch.ErrDoesNotApply},
		{`[{"op":"remove","path":""}]`, patch.ErrDoesNotApply},
		{`[{"op":"replace","path":"/none","value":1}]`, patch.ErrDoesNotApply},
		{`[{"op":"add","path":"/l/7","value":1}]`, patch.ErrDoesNotApply},
		{`[{"op":"add","path":"/l/x/y","value":1}]`, patch.ErrDoesNotApply},
		{`[{"op":"test","path":"/l","value":[2]}]`, patch.ErrDoesNotApply},
		{`[{"op":"replace","path":"","value":[]}]`, patch.ErrDoesNotApply},
		{many, patch.ErrTooLarge},
		{bomb + "]", patch.ErrTooLarge},
	} {
		if _, err := patch.JSON(object(t, `{"l":[1]}`), []byte(c.patch)); !errors.Is(err, c.want) {
			t.Errorf("%.100s: %v, want %v", c.patch, err, c.want)
		}
	}
}

func TestMerge(t *testing.T) {
	doc := object(t, `{"a":{"b":1,"c":2},"l":[1,2]}`)
	got, err := patch.Merge(doc, []byte(`{"a":{"b":null,"d":{"e":null,"f":1}},"l":[3],"x":{"y":null}}`))
	if want := `{"a":{"c":2,"d":{"f":1}},"l":[3],"x":{}}`; err != nil || text(got) != want {
		t.Errorf("%s, %v, want %s", text(got), err, want)
	}
	for bad, want := range map[string]error{`{`: patch.ErrMalformed, `1`: patch.ErrDoesNotApply, `[]`: patch.ErrDoesNotApply, `null`: patch.ErrDoesNotApply} {
		if got, err := patch.Merge(doc, []byte(bad)); !errors.Is(err, want) {
			t.Errorf("%s: %s, %v, want %v", bad, text(got), err, want)
		}
	}
}

func TestStrategic(t *testing.T) {
	const pod = `{"spec":{"tolerations":[{"key":"k"}],"containers":[{"name":"a","image":"1","env":[{"name":"X","value":"1"},{"name":"Y","value":"2"}]},{"name":"b","image":"2"}]},"metadata":{"finalizers":["f/1","f/2"],"labels":{"a":"1"}}}`
	containers := func(list string) string {
		return strings.Replace(pod, pod[strings.Index(pod, `[{"name":"a"`):strings.Index(pod, `},"metadata"`)], list, 1)
	}
	for _, c := range []struct{ patch, want string }{
		{`{"metadata":{"labels":{"b":"2","a":null}}}`, strings.Replace(pod, `{"a":"1"}`, `{"b":"2"}`, 1)},
		{`{"spec":{"containers":[{"name":"b","image":"3"}]}}`, strings.Replace(pod, `"image":"2"`, `"image":"3"`, 1)},
		{`{"spec":{"containers":[{"name":"a","$patch":"delete"}]}}`, containers(`[{"name":"b","image":"2"}]`)},
		{`{"spec":{"containers":[{"$patch":"replace"},{"name":"n","image":"9"}]}}`, containers(`[{"name":"n","image":"9"}]`)},
		{`{"spec":{"containers":[{"name":"a","env":[{"name":"X","$patch":"delete"}]}]}}`, strings.Replace(pod, `{"name":"X","value":"1"},`, ``, 1)},
		{
			`{"spec":{"$setElementOrder/containers":[{"name":"c"},{"name":"a"}],"containers":[{"name":"c","image":"4"}]}}`,
			containers(`[{"name":"c","image":"4"},{"name":"a","image":"1","env":[{"name":"X","value":"1"},{"name":"Y","value":"2"}]},{"name":"b","image":"2"}]`),
		},
		{`{"spec":{"tolerations":[{"key":"l"}]}}`, strings.Replace(pod, `"k"`, `"l"`, 1)},
		{`{"metadata":{"finalizers":["f/3","f/1"]}}`, strings.Replace(pod, `"f/2"`, `"f/2","f/3"`, 1)},
		{`{"metadata":{"$deleteFromPrimitiveList/finalizers":["f/1"]}}`, strings.Replace(pod, `"f/1",`, ``, 1)},
		{`{"metadata":{"labels":{"$patch":"replace","z":"1"}}}`, strings.Replace(pod, `{"a":"1"}`, `{"z":"1"}`, 1)},
		{`{"metadata":{"$retainKeys":["finalizers"]}}`, strings.Replace(pod, `,"labels":{"a":"1"}`, ``, 1)},
		{`{"spec":{"securityContext":{"$patch":"replace","runAsUser":1},"affinity":{"$patch":"delete"}}}`, pod},
		{`{"spec":{"containers":[{"name":"b","resources":{"limits":{"$patch":"replace","cpu":"1"}}}]}}`, strings.Replace(pod, `"image":"2"`, `"image":"2","resources":{}`, 1)},
		{`{"metadata":{"annotations":{"a":null,"b":"1"}}}`, strings.Replace(pod, `"labels"`, `"annotations":{"b":"1"},"labels"`, 1)},
	} {
		doc := object(t, pod)
		got, err := patch.Strategic(doc, object(t, c.patch), reflect.TypeFor[v1.Pod]())
		if err != nil || !reflect.DeepEqual(got, object(t, c.want)) {
			t.Errorf("%s:\n got %s, %v,\nwant %s", c.patch, text(got), err, text(object(t, c.want)))
		}
		if !reflect.DeepEqual(doc, object(t, pod)) {
			t.Errorf("%s changed the object that it was given", c.patch)
		}
	}
	for _, bad := range []string{
		`{"spec":{"containers":[{"image":"1"}]}}`, `{"spec":{"containers":["a"]}}`, `{"spec":{"containers":[{"name":{}}]}}`, `{"spec":{"$patch":"burn"}}`,
		`{"spec":{"$retainKeys":1}}`, `{"spec":{"$setElementOrder/containers":1}}`, `{"spec":{"$deleteFromPrimitiveList/x":1}}`,
	} {
		if got, err := patch.Strategic(object(t, pod), object(t, bad), reflect.TypeFor[v1.Pod]()); !errors.Is(err, patch.ErrMalformed) {
			t.Errorf("%s: %s, %v, want an error", bad, text(got), err)
		}
	}
}

func FuzzStrategic(f *testing.F) {
	f.Add(`{"spec":{"containers":[{"name":"a"}]}}`, `{"spec":{"$setElementOrder/containers":[{"name":"a"}],"containers":[{"name":"a","$patch":"delete"}]}}`)
	f.Add(`{"metadata":{"finalizers":["a",{}]}}`, `{"metadata":{"finalizers":[[],1,"a"],"$deleteFromPrimitiveList/finalizers":[{}]}}`)
	f.Fuzz(func(t *testing.T, doc, p string) {
		var d, m map[string]any
		if kjson.UnmarshalCaseSensitivePreserveInts([]byte(doc), &d) != nil || kjson.UnmarshalCaseSensitivePreserveInts([]byte(p), &m) != nil {
			return
		}
		before := text(d)
		_, _ = patch.Strategic(d, m, reflect.TypeFor[v1.Pod]())
		_, _ = patch.JSON(d, fmt.Appendf(nil, "[%s]", p))
		_, _ = patch.Merge(d, []byte(p))
		if text(d) != before {
			t.Error("the object was changed")
		}
	})
}
