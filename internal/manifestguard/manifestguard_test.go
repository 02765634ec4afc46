package manifestguard

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestJSON(t *testing.T) {
	const base = "a: &a {x: 1, z: 2}\n"
	for _, tc := range []struct {
		name, text, want string
		twice            []string
	}{
		{"plain", "a: 1", `{"a":1}`, nil},
		{"overrides", base + "b: {<<: *a, x: 3}", `{"a":{"x":1,"z":2},"b":{"x":3,"z":2}}`, nil},
		{"overrides of several", base + "b: &b {x: 4}\nc: [{<<: [*b, *a], x: 3}]", `{"a":{"x":1,"z":2},"b":{"x":4},"c":[{"x":3,"z":2}]}`, nil},
		{"behind a merge", base + "b: [{<<: *a, x: 3, x: 4}]", `{"a":{"x":1,"z":2},"b":[{"x":4,"z":2}]}`, []string{"b[0].x"}},
		{"twice", "a: 1\nb: {c: {d: 1, d: 2}}\na: 2", `{"a":2,"b":{"c":{"d":2}}}`, []string{"b.c.d", "a"}},
		{"array", "[{a: 1, a: 2}]", `[{"a":2}]`, nil},
	} {
		raw, twice, err := JSON([]byte(tc.text))
		if err != nil || string(raw) != tc.want || !slices.Equal(twice, tc.twice) {
			t.Errorf("%s: %s %q %v, want %s %q", tc.name, raw, twice, err, tc.want, tc.twice)
		}
	}
	if _, _, err := JSON([]byte("a: {")); err == nil {
		t.Error("no error for what is no YAML")
	}
	many := "a: {" + strings.Repeat(strings.Repeat("k", 1000)+": 1, ", 100) + "}"
	if _, twice, _ := JSON([]byte(many)); len(twice) != maxTwice || len(twice[0]) != maxPath {
		t.Errorf("%d keys of %d bytes", len(twice), len(twice[0]))
	}
}

// What is read is what the kubelet reads, and strictly read text has no key twice.
func FuzzJSON(f *testing.F) {
	f.Add("a: &a {x: 1}\nb: {<<: *a, x: 3, x: 4}")
	f.Fuzz(func(t *testing.T, text string) {
		if Aliases([]byte(text), 1<<20) != nil {
			return
		}
		raw, twice, err := JSON([]byte(text))
		want, wantErr := yaml.YAMLToJSON([]byte(text))
		if (err == nil) != (wantErr == nil) || string(raw) != string(want) {
			t.Errorf("%q: %s %v, want %s %v", text, raw, err, want, wantErr)
		}
		if _, err := yaml.YAMLToJSONStrict([]byte(text)); err == nil && twice != nil {
			t.Errorf("%q: %q", text, twice)
		}
	})
}

func TestAliases(t *testing.T) {
	laughs := "a0: &a0 [ha, ha]\n"
	for i := range 8 {
		laughs += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	for _, tc := range []struct {
		name, text string
		limit      int
		ok         bool
	}{
		{"none", "a: b", 1, true},
		{"few", "a: &x y\nb: *x", 100, true},
		{"laughs", laughs, 5000, false},
		{"a long text", "x: &x " + strings.Repeat("x", 1000) + "\ny: [" + strings.Repeat("*x,", 100) + "]", 13000, false},
		{"as a key", "x: &x " + strings.Repeat("x", 1000) + "\ny: [" + strings.Repeat("{*x : 1},", 100) + "]", 20000, false},
		{"merged", "x: &x {" + strings.Repeat("k", 1000) + ": 1}\ny: [" + strings.Repeat("{<<: *x},", 100) + "]", 20000, false},
		{"no YAML", "a: &a {*a", 1, true},
	} {
		if err := Aliases([]byte(tc.text), tc.limit); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestShape(t *testing.T) {
	for _, tc := range []struct {
		text string
		want Shape
	}{
		{"", Shape{}}, {"1", Shape{0, 1}}, {"{}", Shape{1, 1}}, {`{"a":[1,"b]{",null]}`, Shape{2, 6}}, {`"\"[["`, Shape{0, 1}},
		{"[[[", Shape{3, 3}}, {"]]]", Shape{}}, {"[ 12 , -3.5e7 ]", Shape{1, 3}},
	} {
		if got := ShapeOf([]byte(tc.text)); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.text, got, tc.want)
		}
	}
}

func TestQuantities(t *testing.T) {
	const huge = "1e-2000000000"
	pod := func(spec string) []byte {
		b, err := yaml.YAMLToJSON([]byte("metadata: {labels: {a: '" + huge + "'}}\nspec: " + strings.ReplaceAll(spec, "HUGE", "'"+huge+"'")))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, tc := range []struct {
		spec string
		want []string
	}{
		{"{nodeName: HUGE, containers: [{args: [HUGE]}]}", nil},
		{"{containers: [{resources: {limits: {cpu: HUGE, memory: 1Gi}}}]}", []string{"spec.containers[0].resources.limits[cpu]"}},
		{"{overhead: {cpu: ' 1e2000000000 '}, resources: {requests: {x: HUGE}}}", []string{"spec.overhead[cpu]", "spec.resources.requests[x]"}},
		{"{volumes: [{emptyDir: {sizeLimit: HUGE}}]}", []string{"spec.volumes[0].emptyDir.sizeLimit"}},
		{"{volumes: [{downwardAPI: {items: [{resourceFieldRef: {divisor: HUGE}}]}}]}", []string{"spec.volumes[0].downwardAPI.items[0].resourceFieldRef.divisor"}},
		{"{containers: [{resources: {limits: {cpu: " + strings.Repeat("9", 300) + "}}}]}", []string{"spec.containers[0].resources.limits[cpu]"}},
		{"[]", nil}, {"{containers: {resources: HUGE}}", nil}, {"{overhead: [HUGE]}", nil},
	} {
		var got []string
		_, found := Inspect(pod(tc.spec), &v1.Pod{})
		for _, f := range found {
			got = append(got, f.Path)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%.100s: %q, want %q", tc.spec, got, tc.want)
		}
	}
	if _, got := Inspect([]byte(`{"spec":{"overhead":{"cpu":"1e-\u0032000000000"}}}`), &v1.Pod{}); len(got) != 1 {
		t.Errorf("escaped digits: %v", got)
	}
	if _, got := Inspect([]byte(`{"spec":{"overhead":{"cpu":1e-2000000000}}}`), &v1.Pod{}); len(got) != 1 {
		t.Errorf("a number: %v", got)
	}
	// A decoder takes both of two fields with one name.
	if _, got := Inspect([]byte(`{"spec":{"overhead":{"cpu":"1e-2000000000","cpu":"1"},"overhead":{}},"spec":{}}`), &v1.Pod{}); len(got) != 1 {
		t.Errorf("said twice: %v", got)
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, `{"a": [1, ",,,"]}`: 5, "a: b\n": 2, "[0,0,0]": 4, "x: [',', a]": 4, "- a\n- b\n": 4, "- - - a": 3,
	} {
		if got := Values([]byte(text)); got != want {
			t.Errorf("%q has %d values, want %d", text, got, want)
		}
	}
}

// Empty objects take two bytes of text, and much more as what they are.
func TestInspectSize(t *testing.T) {
	for _, tc := range []struct {
		text     string
		min, max int
	}{
		{`{}`, 500, 5000},
		{`{"spec":{"containers":[` + strings.Repeat("{},", 999) + `{}]}}`, 300 << 10, 5 << 20},
		{`{"metadata":{"labels":{"a":"` + strings.Repeat("x", 100000) + `"}}}`, 100000, 105000},
	} {
		if got, _ := Inspect([]byte(tc.text), &v1.Pod{}); got < tc.min || got > tc.max {
			t.Errorf("%.40s comes to %d bytes, want %d to %d", tc.text, got, tc.min, tc.max)
		}
	}
}

// What passes the guards is decoded soon, and comes to no more than was allowed.
func FuzzGuards(f *testing.F) {
	for _, s := range []string{
		"a: &a [x, x]\nb: [*a, *a]", "metadata: {name: a}\nspec: {overhead: {cpu: 1e-2000000000}}", "x: &x {a: b}\ny: {<<: *x}",
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1e-20000000000"}}}]}}`, "spec: {overhead: {cpu: '0.0e-2000000'}}", "[[[[",
		"spec: {resources: {limits: {\"\\u0063pu\": ' 1E+2000000 '}}}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		limit := 10*len(text) + 100
		if Aliases(text, limit) != nil {
			return
		}
		raw, err := yaml.YAMLToJSON(text)
		if err != nil {
			return
		}
		if len(raw) > 6*limit { // a control character is six in JSON
			t.Fatalf("%d bytes came to %d", len(text), len(raw))
		}
		if s := ShapeOf(raw); s.Depth > len(raw) || s.Values > len(raw) {
			t.Fatalf("shape %+v of %d bytes", s, len(raw))
		}
		if n := ShapeOf(raw).Values; !strings.ContainsAny(string(text), "&*<") && n > 2*Values(text)+2 {
			t.Fatalf("%d values in %q, want at most %d", n, raw, 2*Values(text)+2)
		}
		if _, costly := Inspect(raw, &v1.Pod{}); len(costly) == 0 {
			_ = json.Unmarshal(raw, &v1.Pod{})
		}
	})
}
