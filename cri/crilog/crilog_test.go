package crilog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParseLine(t *testing.T) {
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
		got, err := ParseLine([]byte(tc.in))
		if (err != nil) != tc.bad {
			t.Errorf("%q: error %v, want error %v", tc.in, err, tc.bad)
			continue
		}
		if !tc.bad && (string(got.Content) != tc.content || got.Partial != tc.partial) {
			t.Errorf("%q = %q partial %v, want %q partial %v", tc.in, got.Content, got.Partial, tc.content, tc.partial)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte("2026-01-02T03:04:05.6Z stdout F x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := ParseLine(b)
		if err == nil && !bytes.HasSuffix(b, l.Content) {
			t.Errorf("content %q is no end of %q", l.Content, b)
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

func TestCopy(t *testing.T) {
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
		opts Options
		want string
	}{
		{"all", Options{Tail: -1}, "one\ntwo halves\nthree\n"},
		{"tail", Options{Tail: 1}, "three\n"},
		{"since", Options{Tail: -1, Since: base.Add(3 * time.Second)}, "three\n"},
		{"timestamps", Options{Tail: 1, Timestamps: true}, "2026-01-02T03:04:08Z three\n"},
		{"follow until the end", Options{Tail: -1, Follow: true, Ended: func() bool { return true }}, "one\ntwo halves\nthree\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := Copy(t.Context(), &out, path, tc.opts); err != nil {
				t.Fatal(err)
			}
			if out.String() != tc.want {
				t.Errorf("got %q, want %q", out.String(), tc.want)
			}
		})
	}
}

// A rotation while following loses nothing and repeats nothing.
func TestCopyFollowsRotation(t *testing.T) {
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
	if err := Copy(t.Context(), &out, path, Options{Tail: -1, Follow: true, Ended: ended}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "before\nlate\nafter\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Whatever is in a file, it is copied without an error, and no more is written
// than is there.
func FuzzCopy(f *testing.F) {
	f.Add([]byte("2026-01-02T03:04:05.6Z stdout F x\n2026-01-02T03:04:05.6Z stderr P y"), int64(-1), "")
	f.Add([]byte("\n\n"), int64(1), Stderr)
	f.Fuzz(func(t *testing.T, b []byte, tail int64, stream string) {
		path := filepath.Join(t.TempDir(), "0.log")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := Copy(t.Context(), &out, path, Options{Tail: tail, Stream: stream}); err != nil {
			t.Fatal(err)
		}
		if out.Len() > len(b)+1 {
			t.Errorf("%d bytes of %d", out.Len(), len(b))
		}
	})
}
