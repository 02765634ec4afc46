package safefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// tree makes a directory with one of everything.
func tree(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	dir := filepath.Join(top, "dir")
	for _, err := range []error{
		os.WriteFile(filepath.Join(top, "secret"), []byte("secret"), 0o600),
		os.MkdirAll(filepath.Join(dir, "sub"), 0o700),
		os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o600),
		os.WriteFile(filepath.Join(dir, "sub", "file"), []byte("below"), 0o600),
		os.Symlink("sub", filepath.Join(dir, "inside")),
		os.Symlink("sub/file", filepath.Join(dir, "linked")),
		os.Symlink("../secret", filepath.Join(dir, "out")),
		os.Symlink("..", filepath.Join(dir, "up")),
		os.Symlink(filepath.Join(top, "secret"), filepath.Join(dir, "absolute")),
		os.Symlink("loop", filepath.Join(dir, "loop")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
		os.Truncate(filepath.Join(dir, "file"), 4),
		os.WriteFile(filepath.Join(dir, "sparse"), nil, 0o600),
		os.Truncate(filepath.Join(dir, "sparse"), 1<<40),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestWhatIsRead(t *testing.T) {
	dir := tree(t)
	file := func(path string, limit int64) ([]byte, error) { return ReadFile(filepath.Join(dir, path), limit) }
	in := func(name string, limit int64) ([]byte, error) { return ReadIn(dir, name, limit) }
	linked := func(path string, limit int64) ([]byte, error) { return ReadLinked(filepath.Join(dir, path), limit) }
	within := func(name string, limit int64) ([]byte, error) { return ReadWithin(dir, name, limit) }
	for _, c := range []struct {
		how   string
		read  func(string, int64) ([]byte, error)
		texts map[string]string // of what is read; all else is an error
	}{
		{"Open", file, map[string]string{"file": "text", "sub/file": "below", "inside/file": "below", "up/secret": "secret", "../secret": "secret", "./file": "text", "sub/../file": "text"}},
		{"ReadLinked", linked, map[string]string{
			"file": "text", "sub/file": "below", "inside/file": "below", "up/secret": "secret", "../secret": "secret", "./file": "text", "sub/../file": "text",
			"linked": "below", "out": "secret", "absolute": "secret",
		}},
		{"OpenIn", in, map[string]string{"file": "text", "sub/file": "below", "./file": "text", "sub/../file": "text"}},
		{"OpenWithin", within, map[string]string{"file": "text", "sub/file": "below", "inside/file": "below", "linked": "below", "./file": "text", "sub/../file": "text"}},
	} {
		for _, name := range []string{
			"file", "sub/file", "inside/file", "linked", "out", "up/secret", "absolute", "loop", "pipe", "sub", "sparse",
			"../secret", "missing", "", ".", "./file", "sub/../file", "file/x",
		} {
			text, err := c.read(name, 6)
			switch want, ok := c.texts[name]; {
			case ok && (err != nil || string(text) != want):
				t.Errorf("%s %q: %q, %v, want %q", c.how, name, text, err, want)
			case !ok && (err == nil || text != nil):
				t.Errorf("%s %q: %q, %v, want an error", c.how, name, text, err)
			}
		}
	}
	for _, c := range []struct {
		name string
		want error
	}{{"pipe", ErrNotRegular}, {"sub", ErrNotRegular}, {"linked", ErrNotRegular}, {"sparse", ErrTooLarge}, {"missing", os.ErrNotExist}} {
		if _, err := file(c.name, 5); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if _, err := within("/etc/hosts", 5); err == nil {
		t.Error("an absolute name is read")
	}
}

func TestExactlyTheLimit(t *testing.T) {
	dir := tree(t)
	if b, err := ReadIn(dir, "file", 4); err != nil || string(b) != "text" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := ReadIn(dir, "file", 3); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
}

func TestTail(t *testing.T) {
	dir := tree(t)
	for _, c := range []struct {
		name  string
		limit int64
		want  string
		whole bool
	}{{"file", 2, "xt", false}, {"file", 4, "text", true}, {"file", 9, "text", true}, {"sparse", 3, "\x00\x00\x00", false}} {
		f, err := OpenIn(dir, c.name)
		if err != nil {
			t.Fatal(err)
		}
		if b, whole, err := Tail(f, c.limit); string(b) != c.want || whole != c.whole || err != nil {
			t.Errorf("last %d bytes of %s: %q, %t, %v", c.limit, c.name, b, whole, err)
		}
		_ = f.Close()
	}
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []int{3, 4, 5, 6} {
		names, err := Names(dir, limit)
		if len(names) != min(limit, 5) || (limit < 5) != errors.Is(err, ErrTooMany) {
			t.Errorf("at most %d: %q, %v", limit, names, err)
		}
		entries, err := Entries(dir, limit)
		if len(entries) != min(limit, 5) || (limit < 5) != errors.Is(err, ErrTooMany) {
			t.Errorf("at most %d: %v, %v", limit, entries, err)
		}
	}
	if err := os.Symlink(dir, dir+"-link"); err != nil {
		t.Fatal(err)
	}
	if _, err := Names(dir+"-link", 9); err == nil {
		t.Error("a link to a directory is read")
	}
	if _, err := Names(filepath.Join(dir, "0"), 9); err == nil {
		t.Error("a file is read as a directory")
	}
}

// What is read can change while it is.
func TestAFileThatGrows(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := os.WriteFile(path, bytes.Repeat([]byte("a"), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(f, 10); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
	if _, err := io.ReadAll(f); err != nil {
		t.Error(err)
	}
}

// The links of an image are those of a machine whose root it is.
func TestOpenRooted(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there alone")
	}
	outside, dir := t.TempDir(), t.TempDir()
	for path, content := range map[string]string{
		filepath.Join(outside, "passwd"): "theirs", filepath.Join(dir, "real"): "ours",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"abs": "/real", "up": "../../../real", "out": filepath.Join(outside, "passwd"), "etc": "/"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"real": "ours", "abs": "ours", "up": "ours", "etc/real": "ours", "out": "", "etc/../../real": ""} {
		f, err := OpenRooted(dir, name)
		if (err == nil) != (want != "") {
			t.Errorf("OpenRooted(%s): %v; want %q", name, err, want)
		}
		if err != nil {
			continue
		}
		b, _ := Read(f, 100)
		_ = f.Close()
		if string(b) != want {
			t.Errorf("OpenRooted(%s) has %q", name, b)
		}
	}
}

func TestExists(t *testing.T) {
	dir := tree(t)
	for _, c := range []struct {
		name        string
		there, fail bool
	}{
		{"file", true, false}, {"sub", true, false}, {"sub/file", true, false}, {"pipe", true, false}, {".", true, false},
		{"absolute", true, false}, {"out", true, false}, {"loop", true, false}, // links count as they are
		{"none", false, false}, {"sub/none", false, false}, {"none/file", false, false},
		{"inside/file", false, true}, {"up/secret", false, true}, {"loop/file", false, true}, // links on the way
		{"file/none", false, true}, {"../secret", false, true}, {"", false, true},
	} {
		if there, err := Exists(dir, c.name); there != c.there || (err != nil) != c.fail {
			t.Errorf("%q: %v, %v; want %v, an error: %v", c.name, there, err, c.there, c.fail)
		}
	}
	if there, err := Exists(filepath.Join(dir, "none"), "file"); there || err != nil {
		t.Errorf("below a directory that is not there: %v, %v", there, err)
	}
}
