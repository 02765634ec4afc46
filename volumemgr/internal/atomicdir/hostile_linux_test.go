package atomicdir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// For any content of the directory, the next Write publishes the set, with limited memory, and
// changes nothing outside.
func TestHostileDirectory(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	first, next := payload("a=1", "d/b=2"), payload("a=1", "d/b=2", "c=3")
	const stamp = "..2020_01_01_00_00_00.7"
	outside := t.TempDir()
	must(os.WriteFile(filepath.Join(outside, "kept"), []byte("1"), 0o600))
	for name, change := range map[string]func(dir, data string){
		"a directory for ..data": func(dir, _ string) {
			must(os.Remove(filepath.Join(dir, dataLink)))
			must(os.MkdirAll(filepath.Join(dir, dataLink, "full/full"), 0o755))
		},
		"a file for ..data": func(dir, _ string) {
			must(os.Remove(filepath.Join(dir, dataLink)))
			must(os.WriteFile(filepath.Join(dir, dataLink), nil, 0o600))
		},
		"..data leads out": func(dir, _ string) {
			must(os.Remove(filepath.Join(dir, dataLink)))
			must(os.Symlink(outside, filepath.Join(dir, dataLink)))
		},
		"a set that is a link out": func(dir, data string) {
			must(os.RemoveAll(data))
			must(os.Symlink(outside, data))
		},
		"a set that is a pipe": func(dir, data string) {
			must(os.RemoveAll(data))
			must(unix.Mkfifo(data, 0o600))
		},
		"a directory for the link to be renamed": func(dir, _ string) {
			must(os.MkdirAll(filepath.Join(dir, tempLink, "full/full"), 0o755))
		},
		"an old set that is deep": func(dir, _ string) {
			at := filepath.Join(dir, stamp)
			must(os.Mkdir(at, 0o755))
			fd, err := unix.Open(at, unix.O_PATH, 0)
			must(err)
			for range 300 {
				must(unix.Mkdirat(fd, strings.Repeat("n", 200), 0o755))
				below, err := unix.Openat(fd, strings.Repeat("n", 200), unix.O_PATH, 0)
				must(err)
				must(unix.Close(fd))
				fd = below
			}
			must(unix.Close(fd))
		},
		"an old set that is a link out": func(dir, _ string) { must(os.Symlink(outside, filepath.Join(dir, stamp))) },
		"many links": func(dir, _ string) {
			for i := range 2000 {
				must(os.Symlink(filepath.Join(outside, "kept"), filepath.Join(dir, fmt.Sprint("link", i))))
			}
		},
		"many files in the set": func(_, data string) {
			for i := range 2000 {
				must(os.WriteFile(filepath.Join(data, fmt.Sprint(i)), nil, 0o600))
			}
		},
		"a deep directory in the set": func(_, data string) {
			must(os.MkdirAll(filepath.Join(data, strings.Repeat("x/", 1000)), 0o755))
		},
		"a pipe for a file": func(_, data string) {
			must(os.Remove(filepath.Join(data, "a")))
			must(unix.Mkfifo(filepath.Join(data, "a"), 0o600))
		},
		"a link out for a file": func(_, data string) {
			must(os.Remove(filepath.Join(data, "a")))
			must(os.Symlink(filepath.Join(outside, "kept"), filepath.Join(data, "a")))
		},
		"a huge file": func(_, data string) { must(os.Truncate(filepath.Join(data, "a"), 1<<40)) },
	} {
		for _, p := range []Payload{first, next} {
			t.Run(name, func(t *testing.T) {
				dir := t.TempDir()
				w := newWriter(t, Config{Dir: dir})
				write(t, w, first)
				data, err := os.Readlink(filepath.Join(dir, dataLink))
				must(err)
				change(dir, filepath.Join(dir, data))
				write(t, w, p)
				if name != "many links" && name != "an old set that is a link out" && name != "a set that is a link out" && name != "a set that is a pipe" {
					tidy(t, dir, p)
				}
				if b, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(b) != "1" {
					t.Errorf("a: %q, %v", b, err)
				}
				if b, err := os.ReadFile(filepath.Join(outside, "kept")); err != nil || string(b) != "1" {
					t.Errorf("outside: %q, %v", b, err)
				}
			})
		}
	}
}

// A file may be replaced between stat and open.
func TestFileThatIsReplacedBeforeItIsRead(t *testing.T) {
	dir := t.TempDir()
	f, err := openRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "large"), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, limit := range map[string]int64{"pipe": 10, "large": 99, ".": 10, "none": 10} {
		if b, err := f.readFile(name, limit); err == nil {
			t.Errorf("%s: %q", name, b)
		}
	}
	if b, err := f.readFile("large", 100); err != nil || len(b) != 100 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if err := f.list("pipe", nil); err == nil {
		t.Error("a pipe is listed")
	}
}
