package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDraw(t *testing.T) {
	svg, err := draw("# a picture\nup: a<b longer\n\ndown: c\na<b -> c: calls\nlonger -> a<b\n")
	if err != nil {
		t.Fatal(err)
	}
	for dec := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, svg)
		}
	}
	for what, want := range map[string]int{"<rect": 4, "<line": 2, ">a&lt;b<": 1, ">calls<": 1} {
		if got := strings.Count(svg, what); got != want {
			t.Errorf("%d times %s, want %d\n%s", got, what, want, svg)
		}
	}
	for _, bad := range []string{"no colon", "a: b\nb -> c: x"} {
		if _, err := draw(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

// The pictures are those of the texts beside them.
func TestDocuments(t *testing.T) {
	files, err := filepath.Glob("../../../docs/*.txt")
	if err != nil || len(files) < 2 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := draw(string(text))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(strings.TrimSuffix(file, ".txt") + ".svg"); err != nil || string(got) != want {
			t.Errorf("%s: its picture is another; run go run ./internal/cmd/diagram %s (%v)", file, strings.TrimPrefix(file, "../../../"), err)
		}
	}
}
