package dirwalk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// chain makes a chain of directories below dir.
func chain(t testing.TB, dir, name string, depth int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	for range depth {
		must(t, unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(fd))
		fd = next
	}
	must(t, unix.Close(fd))
}

func descriptors(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(names)
}

// seen is what a walk came across.
type seen struct {
	names             []string
	deepest, lost     int
	most, before, now int // descriptors
}

// all walks to the end. Each step may do something first.
func all(t testing.TB, w *Walk, each func(Event)) (s seen) {
	t.Helper()
	s.before = descriptors(t)
	for step := 0; ; step++ {
		event, err := w.Next()
		must(t, err)
		if each != nil {
			each(event)
		}
		if step%100 == 0 {
			s.most = max(s.most, descriptors(t)-s.before)
		}
		switch event {
		case Entry:
			s.names = append(s.names, w.Path(w.Name()))
			if err := w.Enter(); err != nil && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOENT) {
				t.Fatal(err)
			}
			s.deepest = max(s.deepest, w.Depth())
		case Lost:
			s.lost++
		case Done:
			w.Close()
			s.now = descriptors(t)
			return s
		case End, Back:
		}
	}
}

func TestEverythingIsSeenOnce(t *testing.T) {
	dir := t.TempDir()
	var want []string
	var fill func(string, int)
	r := rand.New(rand.NewPCG(1, 2))
	fill = func(dir string, depth int) {
		for i := range 1 + r.IntN(4) {
			path := filepath.Join(dir, fmt.Sprint(i, strings.Repeat("x", r.IntN(100))))
			want = append(want, path)
			switch r.IntN(4) {
			case 0:
				must(t, os.WriteFile(path, nil, 0o600))
			case 1:
				must(t, os.Symlink(dir, path))
			default:
				must(t, os.Mkdir(path, 0o700))
				if depth < 6 {
					fill(path, depth+1)
				}
			}
		}
	}
	fill(dir, 0)
	for i := range 3000 { // several buffers
		path := filepath.Join(dir, fmt.Sprintf("file-%d", i))
		want = append(want, path)
		must(t, os.WriteFile(path, nil, 0o600))
	}
	w, err := Open(dir)
	must(t, err)
	s := all(t, w, nil)
	slices.Sort(want)
	slices.Sort(s.names)
	if !slices.Equal(s.names, want) {
		t.Errorf("%d names, want %d", len(s.names), len(want))
	}
}

// Deeper than descriptors go, and with siblings on the way up.
func TestDepthCostsNoDescriptorsAndLittleMemory(t *testing.T) {
	depth := 20_000
	if testing.Short() {
		depth = 2000
	}
	dir := t.TempDir()
	chain(t, dir, strings.Repeat("d", 200), depth)
	defer remove(t, dir)
	w, err := Open(dir)
	must(t, err)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	entries := 0
	for event := Entry; event != Done; {
		event, err = w.Next()
		must(t, err)
		if event == Entry {
			entries++
			must(t, w.Enter())
			if entries == depth {
				if n := len(w.Path("x")); n > maxShown {
					t.Errorf("a path of %d bytes", n)
				}
				if n := len(w.frames); n > Descriptors {
					t.Errorf("%d frames", n)
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
			}
		}
		if event == Lost {
			t.Fatal("the walk does not find back")
		}
	}
	w.Close()
	if entries != depth {
		t.Errorf("%d entries, want %d", entries, depth)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

// remove takes down what os.RemoveAll would need a path for.
func remove(t testing.TB, dir string) {
	t.Helper()
	for {
		w, err := Open(dir)
		must(t, err)
		left := false
		for event := Entry; event != Done; {
			event, err = w.Next()
			must(t, err)
			if event == Entry {
				if errors.Is(unix.Unlinkat(w.Fd(), w.Name(), unix.AT_REMOVEDIR), unix.ENOTEMPTY) {
					left = true
					must(t, w.Enter())
				}
			}
			if event == Back {
				w.Again()
			}
		}
		w.Close()
		if !left {
			return
		}
	}
}

func TestDeepTreeWithSiblings(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", 3*Held)), 0o700))
	want := 3 * Held
	for i := range 3 * Held {
		for j := range 3 {
			must(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", i), fmt.Sprint(j), "x/y"), 0o700))
			want += 3
		}
	}
	w, err := Open(dir)
	must(t, err)
	s := all(t, w, nil)
	if len(s.names) != want || s.lost != 0 || s.deepest != 3*Held+2 && s.deepest != 3*Held {
		t.Errorf("%d entries, %d lost, %d deep; want %d, none, %d", len(s.names), s.lost, s.deepest, want, 3*Held)
	}
	if s.most > Descriptors || s.now >= s.before {
		t.Errorf("at most %d descriptors, and %d after %d", s.most, s.now, s.before)
	}
}

// A way back that does not lead where the walk came from is not taken.
func TestMovedDirectory(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, strings.Repeat("d/", 2*Held))
	must(t, os.MkdirAll(deep, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "sibling"), nil, 0o600))
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600))
	w, err := Open(dir)
	must(t, err)
	moved := false
	s := all(t, w, func(Event) {
		if w.Depth() == 2*Held && !moved {
			moved = true
			must(t, os.Rename(deep, filepath.Join(outside, "moved")))
		}
	})
	if s.lost != 1 || !moved {
		t.Errorf("lost %d times, want once", s.lost)
	}
	for _, n := range s.names {
		if strings.Contains(n, "secret") {
			t.Errorf("the walk went out to %s", n)
		}
	}
}

func TestMarks(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "a", strings.Repeat("d/", 2*Held), "bad"), 0o700))
	must(t, os.MkdirAll(filepath.Join(dir, "b", strings.Repeat("d/", 2*Held)), 0o700))
	w, err := Open(dir)
	must(t, err)
	marked := map[string]int{}
	branch := ""
	all(t, w, func(e Event) {
		if e == Entry && w.Depth() == 0 {
			branch = w.Name()
		}
		if e == Entry && w.Name() == "bad" {
			w.Mark()
		}
		if e == End && w.Marked() {
			marked[branch]++
		}
	})
	// The directory with the bad entry, those above it, and the first one,
	// which may have ended under either name.
	if marked["a"]+marked["b"] != 2*Held+2 || min(marked["a"], marked["b"]) > 1 {
		t.Errorf("marked: %v, want the %d that hold the bad entry", marked, 2*Held+2)
	}
}

// A walk that is interrupted after every step sees the same as one that is not.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	for i := range 4 {
		for j := range 300 {
			must(t, os.MkdirAll(filepath.Join(dir, fmt.Sprint(i), fmt.Sprint(j), "x"), 0o700))
		}
	}
	for i := range 10 { // below what stays open
		must(t, os.MkdirAll(filepath.Join(dir, "0", strings.Repeat("d/", 2*Held), fmt.Sprint(i), fmt.Sprint("x", i)), 0o700))
	}
	const want = 4 + 2*4*300 + 2*Held + 2*10
	var p Position
	var names []string
	for done := false; !done; {
		w, whole, err := Resume(dir, p)
		must(t, err)
		if !whole {
			t.Fatal("the walk does not find where it was")
		}
		for range 7 {
			event, err := w.Next()
			must(t, err)
			if done = event == Done; done {
				break
			}
			if event == Entry {
				names = append(names, w.Path(w.Name()))
				must(t, w.Enter())
			}
		}
		p, _ = w.Position()
		w.Close()
	}
	slices.Sort(names)
	if n := len(names); n != want || len(slices.Compact(names)) != n {
		t.Errorf("%d names, %d different; want %d", n, len(slices.Compact(names)), want)
	}
	must(t, os.RemoveAll(filepath.Join(dir, "0")))
	w, _, err := Resume(dir, p)
	must(t, err)
	w.Close()
}

// A directory that is gone is passed over.
func TestResumeWhereSomethingIsGone(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, strings.Repeat("d/", 2*Held))
	must(t, os.MkdirAll(filepath.Join(deep, "x/y"), 0o700))
	w, err := Open(dir)
	must(t, err)
	for w.Depth() < 2*Held+1 {
		event, err := w.Next()
		must(t, err)
		if event != Entry {
			t.Fatal(event)
		}
		must(t, w.Enter())
	}
	p, whole := w.Position()
	w.Close()
	if !whole {
		t.Error("not a whole position")
	}
	w, whole, err = Resume(dir, p)
	must(t, err)
	if w.Depth() != 2*Held+1 || !whole {
		t.Errorf("at %d, %t", w.Depth(), whole)
	}
	w.Close()
	must(t, os.Rename(filepath.Join(deep, "x"), filepath.Join(dir, "moved")))
	w, whole, err = Resume(dir, p)
	must(t, err)
	defer w.Close()
	if w.Depth() != 2*Held || whole {
		t.Errorf("at %d, %t; want behind what was moved", w.Depth(), whole)
	}
	if event, err := w.Next(); event != End || err != nil {
		t.Errorf("%v, %v; want the end", event, err)
	}
}

func TestMountPointsAreNotEntered(t *testing.T) {
	dir := t.TempDir()
	point := filepath.Join(dir, "point")
	must(t, os.Mkdir(point, 0o700))
	if err := unix.Mount(t.TempDir(), point, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("bind mount: %v (needs CAP_SYS_ADMIN)", err)
	}
	defer func() { _ = unix.Unmount(point, unix.MNT_DETACH) }()
	w, err := Open(dir)
	must(t, err)
	defer w.Close()
	if event, err := w.Next(); event != Entry || err != nil {
		t.Fatalf("%v, %v", event, err)
	}
	if err := w.Enter(); !errors.Is(err, unix.EXDEV) {
		t.Errorf("Enter = %v, want EXDEV", err)
	}
}

// What getdents(2) returns comes from whoever serves the file system.
func FuzzEntries(f *testing.F) {
	dir := f.TempDir()
	for _, n := range []string{"a", "bb", strings.Repeat("c", 255)} {
		must(f, os.WriteFile(filepath.Join(dir, n), nil, 0o600))
	}
	fd, err := unix.Open(dir, unix.O_RDONLY, 0)
	must(f, err)
	buf := make([]byte, bufferSize)
	n, err := unix.ReadDirent(fd, buf)
	must(f, err)
	must(f, unix.Close(fd))
	f.Add(buf[:n])
	f.Add([]byte{})
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr := &frame{buf: b, end: len(b)}
		for fr.pos < fr.end {
			was := fr.pos
			name, _, ok := fr.parse()
			if !ok {
				return
			}
			if fr.pos <= was || fr.pos > fr.end || strings.ContainsRune(name, 0) {
				t.Fatalf("%d after %d of %d: %q", fr.pos, was, fr.end, name)
			}
		}
	})
}
