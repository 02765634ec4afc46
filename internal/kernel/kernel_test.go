package kernel

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
)

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

func TestProcessOfThisMachine(t *testing.T) {
	p, err := This.Process(t.Context(), os.Getpid())
	if err != nil || p.Start == 0 || p.Ended() || p.Parent != os.Getppid() || p.Group != syscall.Getpgrp() {
		t.Errorf("%+v, %v", p, err)
	}
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if p, err := This.Process(t.Context(), cmd.Process.Pid); !errors.Is(err, ErrGone) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its end: %+v, %v", p, err)
	}
}

func statLine(name, state, start, exit string) string {
	f := strings.Fields(strings.Repeat("0 ", 50))
	f[0], f[1], f[2], f[5], f[19], f[49] = state, "2", "3", "-1", start, exit
	return "7 (" + name + ") " + strings.Join(f, " ") + "\n"
}

func TestParseProcess(t *testing.T) {
	for text, want := range map[string]Process{
		statLine("a", "Z", "123", "256"):                                         {'Z', 2, 3, 123, 256},
		statLine("a) b) ", "S", "9", "0"):                                        {'S', 2, 3, 9, 0},
		statLine(") R 1", "X", "18446744073709551615", "-1"):                     {'X', 2, 3, 1<<64 - 1, -1},
		"7 (x) S 2 3 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 9":              {'S', 2, 3, 777, 0},
		statLine("", "S", "9", "0") + " of a newer kernel 1 2 3 4 5 6 7 8 9 10 ": {'S', 2, 3, 9, 0},
	} {
		if got, err := parseProcess([]byte(text)); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "7 (a", "7 (a) S 1 2", "x", "7 x", statLine("a", "Sx", "1", "0"), statLine("a", "S", "-1", "0"), statLine("a", "S", "1", "99999999999"),
	} {
		var bad *FormatError
		if got, err := parseProcess([]byte(text)); !errors.As(err, &bad) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func FuzzParseProcess(f *testing.F) {
	f.Add([]byte(statLine("a) b", "S", "9", "0")))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parseProcess(b); err == nil && p.State == 0 {
			t.Errorf("%q: %+v", b, p)
		}
	})
}

// failing are files whose reads fail, or hang until the channel is closed.
type failing struct {
	Files
	err  error
	hang chan struct{}
}

func (f failing) Read(name string, most int) ([]byte, error) {
	if f.hang != nil {
		<-f.hang
	}
	if f.err != nil {
		return nil, classify(&fs.PathError{Op: "read", Path: name, Err: f.err})
	}
	return f.Files.Read(name, most)
}

func TestErrors(t *testing.T) {
	proc := fstest.MapFS{"1/stat": file(statLine("a", "S", "9", "0")), "2/stat": file(strings.Repeat("x", maxStat+1)), "3/stat": file("x")}
	r := New(Options{Proc: Of(proc)})
	var bad *FormatError
	if _, err := r.Process(t.Context(), 2); !errors.Is(err, ErrTooLong) {
		t.Errorf("a long file: %v", err)
	}
	if _, err := r.Process(t.Context(), 3); !errors.As(err, &bad) || err.Error() != `stat: "x"; want 22 fields, of which the second is a name in parentheses` {
		t.Errorf("nonsense: %v", err)
	}
	for _, tt := range []struct{ from, want error }{
		{syscall.ENOENT, ErrGone}, {syscall.ESRCH, ErrGone}, {syscall.ENODEV, ErrGone}, {syscall.EACCES, fs.ErrPermission},
	} {
		r := New(Options{Proc: failing{Of(proc), tt.from, nil}})
		if _, err := r.Process(t.Context(), 1); !errors.Is(err, tt.want) || !errors.Is(err, tt.from) || !strings.Contains(err.Error(), "1/stat") {
			t.Errorf("%v: %v, want %v", tt.from, err, tt.want)
		}
	}
}

// A read that hangs is left behind and counted; another of its file fails at once until it returns.
func TestAReadThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, hang := Hanging(), make(chan struct{})
		r := New(Options{Proc: failing{Of(fstest.MapFS{"1/stat": file(statLine("a", "S", "9", "0"))}), nil, hang}, Timeout: time.Second})
		for range 3 {
			if _, err := r.Process(t.Context(), 1); !errors.Is(err, ErrNoAnswer) {
				t.Errorf("%v", err)
			}
		}
		if n := Hanging() - before; n != 1 {
			t.Errorf("%d hang, want 1", n)
		}
		close(hang)
		synctest.Wait()
		if p, err := r.Process(t.Context(), 1); err != nil || p.Start != 9 || Hanging() != before {
			t.Errorf("afterwards: %+v, %v, %d hang", p, err, Hanging()-before)
		}
	})
}

// Both kinds of files answer alike.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/a", []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/b", "/c"} {
		if err := os.Mkdir(dir+name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for kind, f := range map[string]Files{
		"a directory": Dir(dir), "io/fs": Of(fstest.MapFS{"a": file("12345"), "b/x": file(""), "c/x": file("")}), "below": below{Of(fstest.MapFS{"d/a": file("12345"), "d/b/x": file(""), "d/c/x": file("")}), "d/"},
	} {
		if b, err := f.Read("a", 5); string(b) != "12345" || err != nil {
			t.Errorf("%s: %q, %v", kind, b, err)
		}
		if b, err := f.Read("a", 4); b != nil || !errors.Is(err, ErrTooLong) {
			t.Errorf("%s: %q, %v", kind, b, err)
		}
		if b, err := f.Read("none", 4); b != nil || !errors.Is(err, ErrAbsent) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", kind, b, err)
		}
		if b, err := f.Read("../a", 9); b != nil || err == nil {
			t.Errorf("%s: %q, %v", kind, b, err)
		}
	}
	for kind, f := range map[string]Files{"a directory": Dir(dir), "io/fs": Of(fstest.MapFS{"a": file("12345"), "b/x": file(""), "c/x": file("")})} {
		names, err := f.Dirs(".", 3)
		slices.Sort(names) // the kernel's order differs by file system
		if strings.Join(names, " ") != "b c" || err != nil {
			t.Errorf("%s: %q, %v", kind, names, err)
		}
		if names, err := f.Dirs(".", 2); names != nil || !errors.Is(err, ErrTooLong) {
			t.Errorf("%s: %q, %v", kind, names, err)
		}
		if names, err := f.Dirs("none", 2); names != nil || !errors.Is(err, ErrAbsent) {
			t.Errorf("%s: %q, %v", kind, names, err)
		}
	}
	if Of(nil) != nil {
		t.Error("nothing has files")
	}
}
