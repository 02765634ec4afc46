package atomicdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// memoryDir is a directory in memory where there is one: some tests make
// thousands of files.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "atomicdir")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newWriter(t *testing.T, cfg Config) *Writer {
	t.Helper()
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func write(t *testing.T, w *Writer, p Payload) bool {
	t.Helper()
	changed, err := w.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// files of mode 0644, "name=content".
func payload(files ...string) Payload {
	p := Payload{}
	for _, f := range files {
		name, data, _ := strings.Cut(f, "=")
		p[name] = File{Data: []byte(data), Mode: 0o644}
	}
	return p
}

// visible is what readers see: every file below dir by its path, links
// followed.
func visible(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	var walk func(string)
	walk = func(below string) {
		entries, err := os.ReadDir(filepath.Join(dir, below))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := filepath.Join(below, e.Name())
			if strings.HasPrefix(name, "..") {
				continue
			}
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				out[name] = "broken"
				continue
			}
			if info.IsDir() {
				walk(name)
				continue
			}
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			out[name] = string(data)
		}
	}
	walk("")
	return out
}

// tidy checks that dir has what p needs and nothing else.
func tidy(t testing.TB, dir string, p Payload) {
	t.Helper()
	got := visible(t, dir)
	if len(got) != len(p) {
		t.Errorf("readers see %v, want %d files", got, len(p))
	}
	for name, f := range p {
		if data, ok := got[name]; !ok || data != string(f.Data) {
			t.Errorf("readers see %q in %s, want %q", data, name, f.Data)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := 2 + len(p.tops()); len(entries) != want {
		t.Errorf("%d entries, want %d: %v", len(entries), want, entries)
	}
	to, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil || !isStamp(to) {
		t.Errorf("..data leads to %q (%v)", to, err)
	}
}

func target(t *testing.T, dir string) string {
	t.Helper()
	to, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func TestNew(t *testing.T) {
	dir, bad := t.TempDir(), int64(-1)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []Config{{}, {Dir: filepath.Join(dir, "none")}, {Dir: file}, {Dir: dir, Group: &bad}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

func TestSequences(t *testing.T) {
	for _, tc := range []struct {
		name   string
		writes []Payload
		change []bool
	}{
		{"once", []Payload{payload("a=1", "b=2")}, []bool{true}},
		{"nothing at all", []Payload{{}, {}}, []bool{true, false}},
		{"hidden files and directories", []Payload{payload(".a=1", ".d/.b=2", "x/y/z=3")}, []bool{true}},
		{"the same again", []Payload{payload("a=1", "d/b=2"), payload("a=1", "d/b=2")}, []bool{true, false}},
		{"the same, spelled otherwise", []Payload{payload("d/b=2"), payload("d//./b=2")}, []bool{true, false}},
		{"changed content", []Payload{payload("a=1"), payload("a=2")}, []bool{true, true}},
		{"one more", []Payload{payload("a=1"), payload("a=1", "b=2")}, []bool{true, true}},
		{"one less", []Payload{payload("a=1", "b=2"), payload("a=1")}, []bool{true, true}},
		{"one less in a directory", []Payload{payload("d/a=1", "d/b=2"), payload("d/a=1")}, []bool{true, true}},
		{"a directory less", []Payload{payload("d/a=1", "b=2"), payload("b=2")}, []bool{true, true}},
		{"none left", []Payload{payload("a=1", "d/b=2"), {}}, []bool{true, true}},
		{"none, then some", []Payload{{}, payload("a=1")}, []bool{true, true}},
		{"moved within a directory", []Payload{payload("a/b=1"), payload("a/c=1")}, []bool{true, true}},
		{"a file becomes a directory", []Payload{payload("a=1"), payload("a/b=1")}, []bool{true, true}},
		{"a directory becomes a file", []Payload{payload("a/b=1"), payload("a=1")}, []bool{true, true}},
		{"there and back", []Payload{payload("a=1"), payload("a=2"), payload("a=1")}, []bool{true, true, true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			w := newWriter(t, Config{Dir: dir})
			var before string
			for i, p := range tc.writes {
				if got := write(t, w, p); got != tc.change[i] {
					t.Errorf("write %d: changed %t, want %t", i, got, tc.change[i])
				}
				clean, err := p.Clean()
				if err != nil {
					t.Fatal(err)
				}
				tidy(t, dir, clean)
				if now := target(t, dir); (now != before) != tc.change[i] {
					t.Errorf("write %d: ..data led to %q and leads to %q", i, before, now)
				}
				before = target(t, dir)
			}
		})
	}
}

func TestInvalidPayloadChangesNothing(t *testing.T) {
	dir := t.TempDir()
	w := newWriter(t, Config{Dir: dir})
	write(t, w, payload("a=1"))
	before, tooLarge := target(t, dir), int64(1)<<32
	for _, p := range []Payload{payload("a=2", "../b=1"), payload("a=2", "b=1", "b/c=1"), {"a": {UID: &tooLarge}}} {
		if changed, err := w.Write(p); changed || err == nil {
			t.Errorf("changed %t, error %v", changed, err)
		}
	}
	if target(t, dir) != before {
		t.Error("it was written")
	}
	tidy(t, dir, payload("a=1"))
}

func TestModes(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir := t.TempDir()
	w := newWriter(t, Config{Dir: dir})
	p := Payload{
		"secret":   {Mode: 0o400},
		"d/script": {Mode: 0o755},
		"none":     {Mode: 0},
		"open":     {Mode: 0o666 | fs.ModeSetuid},
	}
	write(t, w, p)
	for name, want := range map[string]fs.FileMode{
		"secret": 0o400, "d/script": 0o755, "none": 0, "open": 0o666, "d": fs.ModeDir | 0o755, "..data": fs.ModeDir | 0o755,
	} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: mode %v (%v), want %v", name, info.Mode(), err, want)
		}
	}
	if os.Getuid() == 0 && write(t, w, p) {
		t.Error("the same modes count as a change")
	}
	p["secret"] = File{Mode: 0o440}
	if !write(t, w, p) {
		t.Error("another mode counts as no change")
	}
	if info, err := os.Stat(filepath.Join(dir, "secret")); err != nil || info.Mode() != 0o440 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	// Another process with the permission changed the mode.
	if err := os.Chmod(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if !write(t, w, p) {
		t.Error("a directory's mode counts as no change")
	}
}

func TestOwners(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	dir, uid, other, group := t.TempDir(), int64(1234), int64(1235), int64(2000)
	check := func(name string, uid, gid uint32, mode fs.FileMode) {
		t.Helper()
		info, err := os.Lstat(dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != uid || st.Gid != gid {
			t.Errorf("%s belongs to %d:%d, want %d:%d", name, st.Uid, st.Gid, uid, gid)
		}
		if mode != 0 && info.Mode() != mode {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), mode)
		}
	}
	p := Payload{"token": {Mode: 0o600, UID: &uid}, "d/a": {Mode: 0o600}}
	w := newWriter(t, Config{Dir: dir})
	write(t, w, p)
	check("..data/token", 1234, 0, 0o600)
	check("token", 1234, 0, 0)
	check("..data/d/a", 0, 0, 0o600)
	check("d", 0, 0, 0)
	if write(t, w, p) {
		t.Error("the same owner counts as a change")
	}
	p["token"] = File{Mode: 0o600, UID: &other}
	if !write(t, w, p) {
		t.Error("another owner counts as no change")
	}
	check("..data/token", 1235, 0, 0o600)

	w = newWriter(t, Config{Dir: dir, Group: &group})
	if !write(t, w, p) {
		t.Error("a group counts as no change")
	}
	check("..data/token", 1235, 2000, 0o640)
	check("..data/d/a", 0, 2000, 0o640)
	check("..data/d", 0, 2000, fs.ModeDir|fs.ModeSetgid|0o755)
	check("..data/.", 0, 2000, fs.ModeDir|fs.ModeSetgid|0o755)
	if write(t, w, p) {
		t.Error("the same group counts as a change")
	}
	tidy(t, dir, p)
}

func TestMoreDirectories(t *testing.T) {
	dir := t.TempDir()
	w := newWriter(t, Config{Dir: dir, Dirs: []string{"d/for/mounts"}})
	p := payload("d/a=1")
	if !write(t, w, p) || write(t, w, p) {
		t.Error("directories count as a change each time")
	}
	if info, err := os.Stat(filepath.Join(dir, "d/for/mounts")); err != nil || !info.IsDir() {
		t.Errorf("%v (%v)", info, err)
	}
	if _, err := w.Write(payload("d/for=1")); !errors.Is(err, ErrPath) {
		t.Errorf("a file in place of a directory: %v", err)
	}
	if _, err := New(Config{Dir: dir, Dirs: []string{"../x"}}); !errors.Is(err, ErrPath) {
		t.Errorf("a directory outside: %v", err)
	}
}

func TestPrepareComesBeforePublication(t *testing.T) {
	dir := t.TempDir()
	write(t, newWriter(t, Config{Dir: dir}), payload("a=1"))
	old := target(t, dir)
	fail := errors.New("no label")
	var told string
	w := newWriter(t, Config{Dir: dir, Prepare: func(d string) error {
		told = d
		if data, err := os.ReadFile(filepath.Join(d, "a")); err != nil || string(data) != "2" {
			t.Errorf("not complete: %q %v", data, err)
		}
		return fail
	}})
	if changed, err := w.Write(payload("a=2")); changed || !errors.Is(err, fail) {
		t.Errorf("changed %t, error %v", changed, err)
	}
	if told == "" || target(t, dir) != old {
		t.Errorf("told %q, ..data leads to %q", told, target(t, dir))
	}
	tidy(t, dir, payload("a=1"))
}

// The next Write repairs what a crash, or another process, left in the directory.
func TestMends(t *testing.T) {
	at := func(dir string, name ...string) string { return filepath.Join(append([]string{dir}, name...)...) }
	for _, tc := range []struct {
		name    string
		harm    func(dir string) error
		changed bool
	}{
		{"killed before the links", func(d string) error { return os.Remove(at(d, "a")) }, false},
		{"killed before the link of a name that is gone went", func(d string) error { return os.Symlink("..data/old", at(d, "old")) }, false},
		{"a link that leads elsewhere", func(d string) error {
			return errors.Join(os.Remove(at(d, "a")), os.Symlink("/etc/passwd", at(d, "a")))
		}, false},
		{"a link that was not renamed", func(d string) error { return os.Symlink("..2020_01_01_00_00_00.7", at(d, tempLink)) }, false},
		{"a directory never published", func(d string) error { return os.MkdirAll(at(d, "..2020_01_01_00_00_00.7", "x"), 0o755) }, false},
		{"the published directory is gone", func(d string) error {
			to, err := os.Readlink(at(d, dataLink))
			return errors.Join(err, os.RemoveAll(at(d, to)))
		}, true},
		{"..data is gone", func(d string) error { return os.Remove(at(d, dataLink)) }, true},
		{"..data leads out", func(d string) error {
			return errors.Join(os.Remove(at(d, dataLink)), os.Symlink("/etc", at(d, dataLink)))
		}, true},
		{"a file too many", func(d string) error { return os.WriteFile(at(d, dataLink, "more"), nil, 0o644) }, true},
		{"a directory too many", func(d string) error { return os.Mkdir(at(d, dataLink, "more"), 0o755) }, true},
		{"a file is a link", func(d string) error {
			return errors.Join(os.Remove(at(d, dataLink, "a")), os.Symlink("/etc/passwd", at(d, dataLink, "a")))
		}, true},
		{"a file was cut", func(d string) error { return os.Truncate(at(d, dataLink, "a"), 0) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			w := newWriter(t, Config{Dir: dir})
			p := payload("a=1", "d/b=2")
			write(t, w, p)
			if err := tc.harm(dir); err != nil {
				t.Fatal(err)
			}
			if got := write(t, w, p); got != tc.changed {
				t.Errorf("changed %t, want %t", got, tc.changed)
			}
			tidy(t, dir, p)
		})
	}
}

// Others may have directories here, for volumes that are mounted below.
func TestLeavesOthersAlone(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"nested/x", "a", "..other"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("elsewhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	w := newWriter(t, Config{Dir: dir})
	write(t, w, payload("a=1", "b=1"))
	write(t, w, Payload{})
	for _, name := range []string{"nested/x", "a", "..other", "link"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// Readers that open ..data once never have files of two sets, however often it
// changes.
func TestReadersNeverSeeAMix(t *testing.T) {
	dir := memoryDir(t)
	w := newWriter(t, Config{Dir: dir})
	set := func(i int) Payload {
		return payload(fmt.Sprintf("a=%d", i), fmt.Sprintf("d/b=%d", i), fmt.Sprintf("c=%d", i))
	}
	write(t, w, set(0))
	done := make(chan struct{})
	var wg sync.WaitGroup
	reads := 0
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			data, err := os.OpenRoot(filepath.Join(dir, dataLink))
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed between the link and the directory
			}
			if err != nil {
				t.Error(err)
				return
			}
			var all []string
			for _, name := range []string{"a", "d/b", "c"} {
				b, err := data.ReadFile(name)
				if errors.Is(err, fs.ErrNotExist) {
					break // removed since: the reader starts over
				}
				all = append(all, string(b))
			}
			_ = data.Close()
			if len(all) == 3 {
				reads++
				if all[0] != all[1] || all[1] != all[2] {
					t.Errorf("a mix: %q", all)
				}
			}
			// Each file alone is whole, and there at all times.
			if b, err := os.ReadFile(filepath.Join(dir, "a")); err == nil && len(b) == 0 {
				t.Error("an empty file")
			}
		}
	})
	for i := 1; i <= 1000; i++ {
		write(t, w, set(i))
	}
	close(done)
	wg.Wait()
	if reads == 0 {
		t.Error("nobody read a whole set")
	}
	tidy(t, dir, set(1000))
}
