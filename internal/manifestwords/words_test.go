package manifestwords_test

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/manifestwords"
)

func TestNearest(t *testing.T) {
	names := []string{"maxPods", "evictionHard", "httpGet", "tcpSocket", "image", "imagePullPolicy"}
	for word, want := range map[string]string{
		"maxPod": "maxPods", "maxpods": "maxPods", "evictionHardd": "evictionHard", "http": "httpGet", "iamge": "image", "imagepullpolicy": "imagePullPolicy",
		"zzz": "", "": "", "x": "", strings.Repeat("image", 1000): "",
	} {
		if got := manifestwords.Nearest(word, names); got != want {
			t.Errorf("%q is near %q, want %q", word, got, want)
		}
	}
}

func TestLine(t *testing.T) {
	doc := manifestwords.Parse([]byte("a:\n  b:\n  - c: 1\n  - c: 2\n    d.e: 3\nx: &x\n  y: 1\nz: *x\n"))
	for path, want := range map[string]int{
		"a": 1, "a.b": 2, "a.b[1].c": 4, "a.b[1].none": 4, "a.b[9]": 2, "none": 0, "": 0, "z.y": 7,
	} {
		if got := doc.Line(path); got != want {
			t.Errorf("%s is in line %d, want %d", path, got, want)
		}
	}
	if got, want := doc.Lines(), map[string]int{"a": 1, "a.b": 2, "x": 6, "x.y": 7, "z": 8, "z.y": 7}; !maps.Equal(got, want) {
		t.Errorf("lines %v, want %v", got, want)
	}
	if got := manifestwords.Parse([]byte("{")).Line("a"); got != 0 {
		t.Errorf("line %d of no YAML", got)
	}
}

// Whatever a manifest contains, nothing fails, and lines are within it.
func FuzzWords(f *testing.F) {
	for _, s := range []string{"a:\n b: 1\n  c", "\ta: b", "- - a: 1\n   b", "a: [", "a: &x {b: *x}", "{\"spec\":{\"containers\":[{\"env\":[{\"value\":1}]}]}}", "spec: {overhead: {cpu: 1x}}", "? a\n: b"} {
		f.Add(s, "spec.containers[0].env[0].value", "line 2: did not find expected key")
	}
	f.Fuzz(func(t *testing.T, doc, path, text string) {
		lines := strings.Count(doc, "\n") + 1
		if n := manifestwords.Parse([]byte(doc)).Line(path); n < 0 || n > lines {
			t.Errorf("line %d of %d", n, lines)
		}
		if n, words := manifestwords.YAML([]byte(doc), errors.New("yaml: line 2: did not find expected key")); n < 0 || words == "" {
			t.Errorf("line %d, words %q", n, words)
		}
		manifestwords.YAML([]byte(doc), errors.New(text))
		manifestwords.Meant(reflect.TypeFor[*v1.Pod](), path)
		var p v1.Pod
		if err := json.Unmarshal([]byte(doc), &p); err != nil {
			manifestwords.Decoding([]byte(doc), err)
		}
	})
}
