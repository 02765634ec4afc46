package strategicpatch_test

import (
	"encoding/json"
	"testing"

	"github.com/nodewright/nodewright/internal/strategicpatch"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestObjects(t *testing.T) {
	for _, tc := range []struct{ name, was, is, diff, overwrite string }{
		{"nothing", `{}`, `{}`, `{}`, `{}`},
		{"the same", `{"a":1,"b":{"c":[1]}}`, `{"a":1,"b":{"c":[1]}}`, `{}`, `{"a":1,"b":{"c":[1]}}`},
		{"new", `{}`, `{"a":1,"b":{"c":2}}`, `{"a":1,"b":{"c":2}}`, `{"a":1,"b":{"c":2}}`},
		{"another", `{"a":1,"b":2}`, `{"a":3,"b":2}`, `{"a":3}`, `{"a":3,"b":2}`},
		{"gone", `{"a":1,"b":2}`, `{"b":2}`, `{"a":null}`, `{"a":null,"b":2}`},
		{"within", `{"m":{"a":1,"b":2,"c":3}}`, `{"m":{"a":1,"b":3}}`, `{"m":{"b":3,"c":null}}`, `{"m":{"a":1,"b":3}}`},
		{"an object in place of a value", `{"a":1}`, `{"a":{"b":2}}`, `{"a":{"b":2}}`, `{"a":{"b":2}}`},
		{"a list as a whole", `{"l":[1,2]}`, `{"l":[2]}`, `{"l":[2]}`, `{"l":[2]}`},
		{"null was not there", `{}`, `{"a":null}`, `{}`, `{"a":null}`},
		{"null now", `{"a":1}`, `{"a":null}`, `{"a":null}`, `{"a":null}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			was, is := object(t, tc.was), object(t, tc.is)
			if got := text(t, strategicpatch.Diff(was, is)); got != tc.diff {
				t.Errorf("Diff = %s, want %s", got, tc.diff)
			}
			if got := text(t, strategicpatch.Overwrite(was, is)); got != tc.overwrite {
				t.Errorf("Overwrite = %s, want %s", got, tc.overwrite)
			}
			if text(t, was) != text(t, object(t, tc.was)) || text(t, is) != text(t, object(t, tc.is)) {
				t.Error("the objects have changed")
			}
		})
	}
}

func TestByKey(t *testing.T) {
	for _, tc := range []struct{ name, was, is, diff, overwrite string }{
		{"nothing", `[]`, `[]`, `null`, `null`},
		{"the same in another order", `[{"k":"a","x":1},{"k":"b"}]`, `[{"k":"b"},{"k":"a","x":1}]`, `null`, `null`},
		{"new", `[]`, `[{"k":"a","x":1}]`, `[{"k":"a","x":1}]`, `[{"k":"a","x":1}]`},
		{"another", `[{"k":"a","x":1,"y":2,"z":3},{"k":"b"}]`, `[{"k":"a","x":1,"y":3},{"k":"b"}]`,
			`[{"k":"a","y":3,"z":null}]`, `[{"k":"a","x":1,"y":3,"z":null}]`},
		{"gone", `[{"k":"a","x":1},{"k":"b"}]`, `[{"k":"b"}]`, `[{"$patch":"delete","k":"a"}]`, `[{"$patch":"delete","k":"a"}]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			was, is := strategicpatch.List(object(t, `{"l":`+tc.was+`}`)["l"]), strategicpatch.List(object(t, `{"l":`+tc.is+`}`)["l"])
			if got := text(t, strategicpatch.ByKey("k", was, is, strategicpatch.Diff)); got != tc.diff {
				t.Errorf("with Diff %s, want %s", got, tc.diff)
			}
			if got := text(t, strategicpatch.ByKey("k", was, is, strategicpatch.Overwrite)); got != tc.overwrite {
				t.Errorf("with Overwrite %s, want %s", got, tc.overwrite)
			}
			if text(t, was) != tc.was || text(t, is) != tc.is {
				t.Errorf("the lists have become %s and %s", text(t, was), text(t, is))
			}
		})
	}
}

func TestReplace(t *testing.T) {
	o := object(t, `{"a":1}`)
	if got := text(t, strategicpatch.Replace(o)); got != `{"$patch":"replace","a":1}` {
		t.Error(got)
	}
	if got := text(t, strategicpatch.Replace(nil)); got != `{"$patch":"replace"}` || text(t, o) != `{"a":1}` {
		t.Error(got, o)
	}
}

func TestObject(t *testing.T) {
	got, err := strategicpatch.Object(struct {
		A int    `json:"a"`
		B string `json:"b,omitempty"`
	}{A: 1})
	if err != nil || text(t, got) != `{"a":1}` {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []any{1, []int{1}, make(chan int)} {
		if got, err := strategicpatch.Object(bad); err == nil {
			t.Errorf("%v is an object: %v", bad, got)
		}
	}
	if strategicpatch.List("x") != nil || strategicpatch.List(nil) != nil {
		t.Error("what is no list is one")
	}
}
