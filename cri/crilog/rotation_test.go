package crilog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// logFile is a log that a runtime writes and an agent rotates.
type logFile struct {
	t    *testing.T
	path string
	n    int // rotations
}

func newLog(t *testing.T) *logFile { return &logFile{t: t, path: filepath.Join(t.TempDir(), "0.log")} }

func (l *logFile) write(lines ...string) {
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, s := range lines {
		fmt.Fprintf(f, "2026-01-02T03:04:05Z stdout F %s\n", s)
	}
	_ = f.Close()
}

func (l *logFile) rotate(pack bool) {
	l.n++
	aside := l.path + "." + time.Date(2026, 1, 2, 3, 0, l.n, 0, time.UTC).Format(stampLayout)
	if err := os.Rename(l.path, aside); err != nil {
		l.t.Fatal(err)
	}
	l.write()
	if !pack {
		return
	}
	b, err := os.ReadFile(aside)
	if err != nil {
		l.t.Fatal(err)
	}
	var z bytes.Buffer
	zw := gzip.NewWriter(&z)
	_, _ = zw.Write(b)
	_ = zw.Close()
	if err := errors.Join(os.WriteFile(aside+".gz", z.Bytes(), 0o600), os.Remove(aside)); err != nil {
		l.t.Fatal(err)
	}
}

// However many rotations there are between two looks, compressed or not, each
// line comes once and in order.
func TestFollowOverManyRotations(t *testing.T) {
	for _, tc := range []struct {
		name      string
		rotations []bool // of one step: compressed or not
	}{
		{"none", nil},
		{"one", []bool{false}},
		{"one compressed at once", []bool{true}},
		{"two", []bool{false, false}},
		{"three, the older ones compressed", []bool{true, true, false}},
		{"three compressed", []bool{true, true, true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLog(t)
			l.write("before")
			l.rotate(true) // not shown: only the current file is
			var want []string
			line := func() {
				s := fmt.Sprintf("line %d", len(want))
				want = append(want, s)
				l.write(s)
			}
			line()
			steps := 0
			ended := func() bool {
				if steps++; steps > 3 {
					return true
				}
				line()
				for _, pack := range tc.rotations {
					l.rotate(pack)
					line()
				}
				return false
			}
			var out bytes.Buffer
			if err := Copy(t.Context(), &out, l.path, Options{Tail: -1, Follow: true, Ended: ended}); err != nil {
				t.Fatal(err)
			}
			if got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestFollowTruncated(t *testing.T) {
	l := newLog(t)
	l.write("a long line before")
	steps := 0
	ended := func() bool {
		if steps++; steps == 1 {
			if err := os.Truncate(l.path, 0); err != nil {
				t.Fatal(err)
			}
			l.write("new")
		}
		return steps > 2
	}
	var out bytes.Buffer
	if err := Copy(t.Context(), &out, l.path, Options{Tail: -1, Follow: true, Ended: ended}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "a long line before\nnew\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestStampOf(t *testing.T) {
	for name, want := range map[string]string{
		"0.log.20260102-030405":        "20260102-030405",
		"0.log.20260102-030405.gz":     "20260102-030405",
		"0.log.20260102-030405.gz.tmp": "",
		"0.log.20260102-030405.tmp":    "",
		"0.log":                        "",
		"1.log.20260102-030405":        "",
		"0.log.20269902-030405":        "",
		"0.log.1":                      "",
	} {
		if got, _ := stampOf("0.log", name); got != want {
			t.Errorf("%s: stamp %q, want %q", name, got, want)
		}
	}
}

func TestMissed(t *testing.T) {
	for _, tc := range []struct{ known, now, want []string }{
		{nil, nil, nil},
		{[]string{"a"}, []string{"a"}, nil},
		{[]string{"a"}, []string{"a", "b"}, nil},
		{[]string{"a"}, []string{"a", "b", "c"}, []string{"c"}},
		{[]string{"a"}, []string{"b", "c", "d"}, []string{"c", "d"}},
	} {
		if got := missed(tc.known, tc.now); !slices.Equal(got, tc.want) {
			t.Errorf("missed(%v, %v) = %v, want %v", tc.known, tc.now, got, tc.want)
		}
	}
}

func TestSelection(t *testing.T) {
	const stamp = "2026-01-02T03:04:05Z "
	long := strings.Repeat("x", 3*maxLine)
	for _, tc := range []struct {
		name, file string
		opts       Options
		want       string
	}{
		{"both streams", "stdout F a\nstderr F b\n", Options{}, "a\nb\n"},
		{"stdout", "stdout F a\nstderr F b\n", Options{Stream: Stdout}, "a\n"},
		{"stderr", "stdout F a\nstderr F b\n", Options{Stream: Stderr}, "b\n"},
		{"limit within a line", "stdout F abc\nstdout F def\n", Options{Limit: 6}, "abc\nde"},
		{"limit at a line's end", "stdout F abc\nstdout F def\n", Options{Limit: 4}, "abc\n"},
		{"limit beyond the end", "stdout F abc\n", Options{Limit: 400}, "abc\n"},
		{"a line longer than memory allows", "stdout F " + long + "\nstdout F b\n", Options{}, long + "\nb\n"},
		{"a part longer than memory allows", "stdout P " + long + "\nstdout F b\n", Options{}, long + "b\n"},
		{"a long line that is filtered", "stdout F " + long + "\nstderr F b\n", Options{Stream: Stderr}, "b\n"},
		{"a long line once", "stdout F " + long + "\n", Options{Timestamps: true}, stamp + long + "\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "0.log")
			file := stamp + strings.ReplaceAll(strings.TrimSuffix(tc.file, "\n"), "\n", "\n"+stamp) + "\n"
			if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
			tc.opts.Tail = -1
			var out bytes.Buffer
			if err := Copy(t.Context(), &out, path, tc.opts); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != tc.want {
				t.Errorf("got %.40q (%d bytes), want %.40q (%d bytes)", got, len(got), tc.want, len(tc.want))
			}
		})
	}
}

// What is neither a line nor has an end is copied as it is, within bounds.
func TestNoLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	want := strings.Repeat("y", 2*maxLine) + "\n"
	if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Copy(t.Context(), &out, path, Options{Tail: -1}); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("%d bytes, want %d", out.Len(), len(want))
	}
}

func TestLogsStayInTheirDirectory(t *testing.T) {
	base := t.TempDir()
	root, outside := filepath.Join(base, "pods"), filepath.Join(base, "secret")
	fifo := filepath.Join(root, "fifo.log")
	for _, err := range []error{
		os.Mkdir(root, 0o700), os.WriteFile(outside, []byte("secret\n"), 0o600),
		os.WriteFile(filepath.Join(root, "0.log"), []byte("fine\n"), 0o600),
		os.Symlink("0.log", filepath.Join(root, "within.log")),
		os.Symlink(outside, filepath.Join(root, "absolute.log")),
		os.Symlink("../secret", filepath.Join(root, "up.log")),
		os.Symlink(".", filepath.Join(root, "dir")),
		syscall.Mkfifo(fifo, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, fine := range map[string]bool{
		filepath.Join(root, "0.log"):        true,
		filepath.Join(root, "within.log"):   false,
		filepath.Join(root, "dir", "0.log"): false,
		filepath.Join(root, "absolute.log"): false,
		filepath.Join(root, "up.log"):       false,
		root + "/../secret":                 false,
		outside:                             false,
		fifo:                                false,
		root:                                false,
	} {
		var out bytes.Buffer
		err := Copy(t.Context(), &out, path, Options{Tail: -1, Root: root})
		if (err == nil) != fine || strings.Contains(out.String(), "secret") {
			t.Errorf("%s: error %v and %q; want it readable: %v", path, err, out.String(), fine)
		}
	}
}
