//go:build linux

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// joined is what a log says of a stream; the lines are checked.
func joined(t testing.TB, path, stream string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	last := int64(0)
	for _, l := range bytes.SplitAfter(b, []byte{'\n'}) {
		if len(l) == 0 {
			continue
		}
		at, ok := parseTime(l)
		if !ok || len(l) <= prefixSize || l[len(l)-1] != '\n' || at < last || len(l) > prefixSize+batchSize+1 {
			t.Fatalf("line is %.80q after one of %d", l, last)
		}
		last = at
		if string(l[31:37]) != stream {
			continue
		}
		out.Write(l[prefixSize : len(l)-1])
		switch l[38] {
		case 'F':
			out.WriteByte('\n')
		case 'P':
		default:
			t.Fatalf("line is %.80q", l)
		}
	}
	return out.String()
}

func testLog(t testing.TB, path string) *logFile {
	t.Helper()
	l, err := newLog(path, func(lost uint64, message string) { t.Logf("lost %d %s", lost, message) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

func TestLinesAreWrittenInTheCRIFormat(t *testing.T) {
	const at = 1767323045000000006
	for _, tc := range []struct {
		name string
		in   []string
		want string
	}{
		{"line", []string{"a\n"}, "F a|"},
		{"two lines at once", []string{"a\nb\n"}, "F a|F b|"},
		{"line in parts", []string{"a", "b", "\n"}, "P a|P b|F |"},
		{"no end", []string{"a"}, "P a|"},
		{"empty lines", []string{"\n\n"}, "F |F |"},
		{"carriage return and NUL", []string{"a\r\n\x00\n"}, "F a\r|F \x00|"},
		{"a line and a part", []string{"a\nb"}, "F a|P b|"},
		{"nothing", nil, ""},
	} {
		path := filepath.Join(t.TempDir(), "log")
		l := testLog(t, path)
		for _, s := range tc.in {
			l.write(0, []byte(s), at, true, make([]byte, 0, formatSize))
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		for _, w := range strings.SplitAfter(tc.want, "|") {
			if w != "" {
				want += "2026-01-02T03:04:05.000000006Z stdout " + strings.TrimSuffix(w, "|") + "\n"
			}
		}
		if string(b) != want {
			t.Errorf("%s: got %q, want %q", tc.name, b, want)
		}
	}
}

// Any bytes in any pieces come out as they were, and times never go back.
func FuzzLog(f *testing.F) {
	f.Add([]byte("a\nb\r\x00\n\n"), uint64(1))
	f.Add(bytes.Repeat([]byte("x"), 40<<10), uint64(2))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		path := filepath.Join(t.TempDir(), "log")
		l := testLog(t, path)
		r := rand.New(rand.NewPCG(seed, 1))
		buf := make([]byte, 0, batchSize)
		out := make([]byte, 0, formatSize)
		for rest := data; len(rest) > 0 || len(buf) > 0; {
			n := min(len(rest), r.IntN(batchSize)+1, batchSize-len(buf))
			buf = append(buf, rest[:n]...)
			rest = rest[n:]
			all := r.IntN(3) == 0 || len(rest) == 0 || len(buf) == batchSize
			left := l.write(0, buf, r.Int64N(1<<60), all, out)
			if all && left > 0 {
				t.Fatalf("%d bytes are left of all", left)
			}
			buf = append(buf[:0], buf[len(buf)-left:]...)
		}
		want := string(data)
		if got := joined(t, path, "stdout"); got != want {
			t.Errorf("%d bytes came out as %d", len(want), len(got))
		}
		if l.lost != 0 {
			t.Errorf("%d bytes lost", l.lost)
		}
	})
}

// What a full disk does not take is counted to the byte, and the log goes on
// with a whole line when there is space again.
func TestFullDiskIsCountedAndNeverWaitedFor(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "log")
	var told []string
	l, err := newLog(path, func(lost uint64, message string) { told = append(told, fmt.Sprint(lost > 0, message != "")) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	written := 0
	out := make([]byte, 0, formatSize)
	write := func(s string) {
		written += len(s)
		l.write(0, []byte(s), 1, true, out)
	}
	for i := range 300 {
		write(fmt.Sprintf("%d %s\n", i, strings.Repeat("x", 1000)))
	}
	if len(told) != 1 || told[0] != "true true" {
		t.Errorf("told %q of the disk that is full", told)
	}
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole := 0
	for _, line := range bytes.SplitAfter(kept, []byte{'\n'}) {
		if len(line) > 0 && line[len(line)-1] == '\n' {
			whole += len(line) - prefixSize
		}
	}
	if uint64(whole)+l.lost != uint64(written) {
		t.Errorf("%d bytes written, %d in whole lines, %d counted as lost", written, whole, l.lost)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=1m"); err != nil {
		t.Fatal(err)
	}
	lost := l.lost
	write("again\n")
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := bytes.Split(after, []byte{'\n'})
	if got := all[len(all)-2]; !bytes.HasSuffix(got, []byte("stdout F again")) || len(got) != prefixSize+len("again") {
		t.Errorf("goes on with %q", got)
	}
	if l.lost != lost || len(told) != 2 || told[1] != "true false" {
		t.Errorf("lost %d, then %d; told %q", lost, l.lost, told)
	}
}

func TestLogThatEndsWithinALineGoesOnWithANewOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("2200-01-02T03:04:05.000000006Z stdout F whole\n2026-01-02T03:04"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := testLog(t, path)
	l.write(0, []byte("a\n"), 5, true, make([]byte, 0, formatSize))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "2200-01-02T03:04:05.000000006Z stdout F whole\n2026-01-02T03:04\n2200-01-02T03:04:05.000000006Z stdout F a\n"
	if string(b) != want {
		t.Errorf("got %q", b)
	}
}

func TestLogsAreNoLinksPipesOrDevices(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.Symlink("/etc/passwd", at("link")), os.Symlink(dir, at("dir")), unix.Mkfifo(at("pipe"), 0o600), os.Mkdir(at("sub"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{at("link"), at("dir") + "/log", at("pipe"), at("sub"), at("missing") + "/log", "/dev/full"} {
		if l, err := newLog(path, nil); err == nil {
			l.close()
			t.Errorf("%s is a log", path)
		}
	}
}

// A container that writes more than its log may have has a line in it that says how much
// is missing; and all again once it writes less. Lines cost what they take in the log.
func TestLogRate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := testLog(t, path)
	out := make([]byte, 0, formatSize)
	newlines := bytes.Repeat([]byte{'\n'}, batchSize)
	const at = int64(1767323045000000000)
	now, in := at, uint64(0)
	for range 20 { // seconds, in each of which the log would grow by 160 MB
		for range 250 {
			l.write(0, newlines, now, true, out)
			in += batchSize
			now += 4e6
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	if most := int64(logBurst + 20*logRate + 1<<20); st.Size > most || st.Size < most/2 {
		t.Errorf("the log has %d bytes after 20 s, want at most %d", st.Size, most)
	}
	now += 1e9
	l.write(0, []byte("after\n"), now, true, out)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines, dropped := uint64(0), uint64(0)
	for _, line := range bytes.SplitAfter(b, []byte{'\n'}) {
		var n uint64
		if i := bytes.Index(line, []byte("nodewright: dropped ")); i >= 0 {
			if _, err := fmt.Sscanf(string(line[i:]), "nodewright: dropped %d bytes", &n); err != nil || !bytes.Contains(line, []byte(" stderr F ")) {
				t.Fatalf("%q, %v", line, err)
			}
			dropped += n
		} else if len(line) > 0 {
			lines++
		}
	}
	if lines+dropped != in+1 || dropped != l.lost || !bytes.HasSuffix(b, []byte("stdout F after\n")) {
		t.Errorf("%d lines and %d dropped bytes, lost %d, of %d", lines, dropped, l.lost, in)
	}
}

// A burst is written whole, however fast it comes.
func TestLogBurstIsWhole(t *testing.T) {
	l := testLog(t, filepath.Join(t.TempDir(), "log"))
	line := append(bytes.Repeat([]byte{'x'}, batchSize-1), '\n')
	for range 200 << 20 / batchSize {
		l.write(0, line, 1e18, true, make([]byte, 0, formatSize))
	}
	if l.lost != 0 {
		t.Errorf("%d bytes of 200 MiB are dropped", l.lost)
	}
}
