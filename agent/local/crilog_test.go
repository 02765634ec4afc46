package local

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParseLogLine(t *testing.T) {
	at := "2026-01-02T03:04:05.000000006Z"
	for _, tc := range []struct {
		in      string
		content string
		partial bool
		bad     bool
	}{
		{in: at + " stdout F hello world", content: "hello world"},
		{in: at + " stderr P half ", content: "half ", partial: true},
		{in: at + " stdout F ", content: ""},
		{in: at + " stdout F", content: ""},
		{in: at + " stdout F:x tagged", content: "tagged"},
		{in: at + " stdin F hello", bad: true},
		{in: at + " stdout X hello", bad: true},
		{in: "yesterday stdout F hello", bad: true},
		{in: "", bad: true},
	} {
		got, err := parseLogLine([]byte(tc.in))
		if (err != nil) != tc.bad {
			t.Errorf("%q: error %v, want error %v", tc.in, err, tc.bad)
			continue
		}
		if !tc.bad && (string(got.content) != tc.content || got.partial != tc.partial) {
			t.Errorf("%q = %q partial %v, want %q partial %v", tc.in, got.content, got.partial, tc.content, tc.partial)
		}
	}
}

func FuzzParseLogLine(f *testing.F) {
	f.Add([]byte("2026-01-02T03:04:05.6Z stdout F x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseLogLine(b)
		if err == nil && !bytes.HasSuffix(b, l.content) {
			t.Errorf("content %q is no end of %q", l.content, b)
		}
	})
}

func TestTailStart(t *testing.T) {
	long := strings.Repeat("x", 40<<10)
	for _, tc := range []struct {
		text string
		n    int64
		want string
	}{
		{"a\nb\nc\n", 1, "c\n"},
		{"a\nb\nc\n", 2, "b\nc\n"},
		{"a\nb\nc\n", 3, "a\nb\nc\n"},
		{"a\nb\nc\n", 9, "a\nb\nc\n"},
		{"a\nb\nc", 1, "c"},
		{"a\nb\nc", 2, "b\nc"},
		{"a\n", 0, ""},
		{"a\n", -1, "a\n"},
		{"", 3, ""},
		{"\n\n\n", 2, "\n\n"},
		{"a\n" + long + "\nb\n", 2, long + "\nb\n"},
		{long + "\n" + long + "\n", 1, long + "\n"},
	} {
		off, err := tailStart(strings.NewReader(tc.text), int64(len(tc.text)), tc.n)
		if err != nil {
			t.Fatal(err)
		}
		if got := tc.text[off:]; got != tc.want {
			t.Errorf("tail %d of %.20q (%d bytes) = %.20q, want %.20q", tc.n, tc.text, len(tc.text), got, tc.want)
		}
	}
}

func TestCopyLog(t *testing.T) {
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var file bytes.Buffer
	for i, l := range []string{"F one", "P two ", "F halves", "F three"} {
		fmt.Fprintf(&file, "%s stdout %s\n", base.Add(time.Duration(i)*time.Second).Format(time.RFC3339Nano), l)
	}
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		opts LogOptions
		want string
	}{
		{"all", LogOptions{Tail: -1}, "one\ntwo halves\nthree\n"},
		{"tail", LogOptions{Tail: 1}, "three\n"},
		{"since", LogOptions{Tail: -1, Since: base.Add(3 * time.Second)}, "three\n"},
		{"timestamps", LogOptions{Tail: 1, Timestamps: true}, "2026-01-02T03:04:08Z three\n"},
		{"follow until the end", LogOptions{Tail: -1, Follow: true}, "one\ntwo halves\nthree\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := copyLog(t.Context(), &out, func() {}, path, tc.opts, func() bool { return true }); err != nil {
				t.Fatal(err)
			}
			if out.String() != tc.want {
				t.Errorf("got %q, want %q", out.String(), tc.want)
			}
		})
	}
}

// A rotation while following loses nothing and repeats nothing.
func TestCopyLogFollowsRotation(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	line := func(s string) []byte { return []byte("2026-01-02T03:04:05Z stdout F " + s + "\n") }
	if err := os.WriteFile(path, line("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	steps := 0
	ended := func() bool { // called once each time everything there has been written
		steps++
		switch steps {
		case 1:
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = f.Write(line("late"))
			_ = f.Close()
			if err := os.Rename(path, path+".1"); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, line("after"), 0o600); err != nil {
				t.Fatal(err)
			}
			return false
		default:
			return true
		}
	}
	var out bytes.Buffer
	if err := copyLog(t.Context(), &out, func() {}, path, LogOptions{Tail: -1, Follow: true}, ended); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "before\nlate\nafter\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
