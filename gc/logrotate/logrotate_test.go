package logrotate

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/internal/testrun"
)

func namesBeside(path string) ([]string, error) {
	dir, err := openDir(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	return fileNames(dir)
}

// writer is a container that writes its log, and the runtime that reopens it.
type writer struct {
	mu      sync.Mutex
	logs    map[string]*os.File
	paths   map[string]string
	fail    error // of reopening
	late    bool  // fail after the work is done, as when the answer is lost
	reopens int
}

func newWriter() *writer { return &writer{logs: map[string]*os.File{}, paths: map[string]string{}} }

func (w *writer) open(t testing.TB, l Log) Log {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(l.Path), 0o755); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.paths[l.ID] = l.Path
	w.mu.Unlock()
	if err := w.ReopenContainerLog(context.Background(), l.ID); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.logs[l.ID].Close() })
	return l
}

func (w *writer) ReopenContainerLog(_ context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reopens++
	if w.fail != nil && !w.late {
		return w.fail
	}
	f, err := os.OpenFile(w.paths[id], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	if old := w.logs[id]; old != nil {
		_ = old.Close()
	}
	w.logs[id] = f
	return w.fail
}

func (w *writer) write(t testing.TB, id, text string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.logs[id].WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// handIdle is an idle whose writes a test reports.
type handIdle struct {
	mu    sync.Mutex
	armed map[string]bool
	arms  int // calls of arm: every other look at an idle log
	ch    chan string
}

func (h *handIdle) arm(key, _ string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.armed[key] = true
	h.arms++
	return true
}
func (h *handIdle) written() <-chan string { return h.ch }
func (h *handIdle) close()                 {}

func newManager(t testing.TB, cfg Config) *Manager {
	t.Helper()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.idle = func() idle { return noIdle{} }
	return m
}

func log(t testing.TB, pod, container string) Log {
	return Log{ID: container, Pod: "uid", Path: filepath.Join(t.TempDir(), pod, container, "0.log")}
}

// contents are a directory's files, decompressed, by their names without times.
func contents(t testing.TB, l Log) (names []string, text string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(l.Path))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	// The log itself comes last.
	slices.SortFunc(all, func(a, b string) int {
		return strings.Compare(strings.Replace(a, "0.log.", "", 1), strings.Replace(b, "0.log.", "", 1))
	})
	var b strings.Builder
	sorted := append(slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == "0.log" }), "0.log")
	for _, n := range sorted {
		raw, err := os.ReadFile(filepath.Join(filepath.Dir(l.Path), n))
		if err != nil {
			continue
		}
		suffix := ""
		if strings.HasSuffix(n, compressed) {
			z, err := gzip.NewReader(bytes.NewReader(raw))
			if err != nil {
				t.Fatalf("%s: %v", n, err)
			}
			if raw, err = io.ReadAll(z); err != nil {
				t.Fatalf("%s: %v", n, err)
			}
			suffix = compressed
		}
		names = append(names, string(raw)+suffix)
		b.Write(raw)
	}
	return names, b.String()
}

// What is left of five rotations: the log, the last one as it was, and the
// others compressed.
func TestRotate(t *testing.T) {
	w := newWriter()
	l := w.open(t, log(t, "pod", "c"))
	m := newManager(t, Config{Runtime: w, MaxFiles: 4})
	for i := range 5 {
		w.write(t, l.ID, fmt.Sprint(i))
		pack, err := m.rotate(t.Context(), l, 1)
		if err != nil {
			t.Fatal(err)
		}
		m.pack(t.Context(), pack)
	}
	w.write(t, l.ID, "now")
	if names, _ := contents(t, l); !slices.Equal(names, []string{"2.gz", "3.gz", "4", "now"}) {
		t.Errorf("files %q", names)
	}
	if fi, err := os.Stat(l.Path); err != nil || fi.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", fi, err)
	}
	if pack, err := m.rotate(t.Context(), l, 4); pack != nil || err != nil || w.reopens != 6 {
		t.Errorf("a log below its limit: %q, %v, %d times reopened", pack, err, w.reopens)
	}
}

func TestMissingLogIsReopened(t *testing.T) {
	w := newWriter()
	l := w.open(t, log(t, "pod", "c"))
	m := newManager(t, Config{Runtime: w})
	if err := os.Remove(l.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := m.rotate(t.Context(), l, 10); err != nil {
		t.Fatal(err)
	}
	w.write(t, l.ID, "x")
	if names, _ := contents(t, l); !slices.Equal(names, []string{"x"}) {
		t.Errorf("files %q", names)
	}
	w.fail = errors.New("boom")
	if err := os.Remove(l.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := m.rotate(t.Context(), l, 10); !errors.Is(err, w.fail) {
		t.Errorf("%v, want the runtime's error", err)
	}
}

func TestReopenFails(t *testing.T) {
	boom := errors.New("no space left on device")
	for _, tc := range []struct {
		name  string
		late  bool
		names []string
		err   error
	}{
		{"the log gets its name back", false, []string{"abc"}, boom},
		{"only the answer was lost", true, []string{"ab", "c"}, nil},
	} {
		w := newWriter()
		l := w.open(t, log(t, "pod", "c"))
		m := newManager(t, Config{Runtime: w})
		w.write(t, l.ID, "ab")
		w.fail, w.late = boom, tc.late
		_, err := m.rotate(t.Context(), l, 1)
		w.write(t, l.ID, "c")
		if _, err := os.Stat(l.Path); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if names, _ := contents(t, l); !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) || !slices.Equal(names, tc.names) {
			t.Errorf("%s: files %q, %v, want %q, %v", tc.name, names, err, tc.names, tc.err)
		}
	}
}

// On a full disk a rotation takes nothing but names: what is too much goes
// first, and what cannot be compressed stays as it is.
func TestFullDisk(t *testing.T) {
	w := newWriter()
	l := w.open(t, log(t, "pod", "c"))
	m := newManager(t, Config{Runtime: w, MaxFiles: 3})
	m.create = func(*safefile.Dir, string, os.FileMode) (*os.File, error) {
		return os.OpenFile("/dev/full", os.O_WRONLY, 0)
	}
	for i := range 6 {
		w.write(t, l.ID, fmt.Sprint(i))
		pack, err := m.rotate(t.Context(), l, 1)
		if err != nil {
			t.Fatal(err)
		}
		m.pack(t.Context(), pack)
	}
	if names, _ := contents(t, l); !slices.Equal(names, []string{"4", "5", ""}) {
		t.Errorf("files %q, want the newest two, uncompressed, and the log", names)
	}
	m.create = create // there is space again
	w.write(t, l.ID, "6")
	pack, err := m.rotate(t.Context(), l, 1)
	m.pack(t.Context(), pack)
	if names, _ := contents(t, l); err != nil || !slices.Equal(names, []string{"5.gz", "6", ""}) {
		t.Errorf("files %q, %v", names, err)
	}
}

func TestCompressionThatIsCutOff(t *testing.T) {
	w := newWriter()
	l := w.open(t, log(t, "pod", "c"))
	m := newManager(t, Config{Runtime: w})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.compress(ctx, l.Path); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if names, err := namesBeside(l.Path); err != nil || !slices.Equal(names, []string{"0.log"}) {
		t.Errorf("%q, %v, want the log alone", names, err)
	}
}

func TestPodBudget(t *testing.T) {
	w := newWriter()
	a := log(t, "pod", "a")
	b := Log{ID: "b", Pod: a.Pod, Path: filepath.Join(filepath.Dir(filepath.Dir(a.Path)), "b", "0.log")}
	w.open(t, a)
	w.open(t, b)
	m := newManager(t, Config{Runtime: w, PodBudget: 4 * leastLimit})
	m.Watch(a)
	if got := m.limit("uid"); got != 2*leastLimit {
		t.Errorf("limit of one log %d, want half of the budget", got)
	}
	m.Watch(b)
	if got := m.limit("uid"); got != leastLimit {
		t.Errorf("limit of two logs %d, want a quarter each", got)
	}
	chunk := strings.Repeat("x", leastLimit)
	for range 4 {
		for _, l := range []Log{a, b} {
			w.write(t, l.ID, chunk)
			if _, err := m.rotate(t.Context(), l, m.limit("uid")); err != nil {
				t.Fatal(err)
			}
			total := int64(0)
			for _, x := range []Log{a, b} {
				_, text := contents(t, x)
				total += int64(len(text))
			}
			if total > 4*leastLimit {
				t.Errorf("%d bytes, above the budget", total)
			}
		}
	}
	m.Forget("b")
	if got := m.limit("uid"); got != 2*leastLimit {
		t.Errorf("limit of the one that is left %d", got)
	}
}

// run runs a manager in a bubble, until the test ends.
func run(t *testing.T, m *Manager) {
	testrun.Start(t, m.Run)
	synctest.Wait()
}

// A log that floods is rotated near its limit; one that is idle is not looked
// at; the first write to it is told.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter()
		l := w.open(t, log(t, "pod", "c"))
		m := newManager(t, Config{Runtime: w, MaxSize: 1000})
		m.burst = 1000
		hand := &handIdle{armed: map[string]bool{}, ch: make(chan string)}
		m.idle = func() idle { return hand }
		run(t, m)
		m.Watch(l)
		time.Sleep(time.Minute)
		hand.mu.Lock()
		if !hand.armed["c"] {
			t.Error("an idle log is not left to the kernel")
		}
		before := hand.arms
		hand.mu.Unlock()
		time.Sleep(time.Hour)
		hand.mu.Lock()
		if n := hand.arms - before; n > 12 {
			t.Errorf("%v looks at an idle log in an hour", 2*n)
		}
		hand.mu.Unlock()
		hand.ch <- "c"
		most := 0
		for range 300 { // 1,000 bytes a second
			w.write(t, l.ID, strings.Repeat("x", 100))
			time.Sleep(100 * time.Millisecond)
			synctest.Wait() // a rotation in the middle of its renames has no log to list
			names, _ := contents(t, l)
			most = max(most, len(strings.TrimSuffix(names[len(names)-1], compressed)))
			if len(names) > 5 {
				t.Errorf("%d files", len(names))
			}
		}
		synctest.Wait()
		if most > 2000 || w.reopens < 25 {
			t.Errorf("the log came to %d bytes and was rotated %d times, want at most 2000 and about 30 times", most, w.reopens-1)
		}
	})
}

// A pod that writes as fast as Burst allows stays within its budget at every moment.
func TestRunKeepsTheBudgetOfAPodThatFloods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget, rate = 3 << 20, 1_000_000
		w := newWriter()
		l := w.open(t, log(t, "pod", "c"))
		m := newManager(t, Config{Runtime: w, MaxSize: 1 << 20, PodBudget: budget})
		m.burst = rate
		run(t, m)
		m.Watch(l)
		for range 400 { // 8 s
			w.write(t, l.ID, strings.Repeat("x", rate/50-1)+"\n")
			time.Sleep(20 * time.Millisecond)
			synctest.Wait() // a rotation is over
			entries, err := os.ReadDir(filepath.Dir(l.Path))
			if err != nil {
				t.Fatal(err)
			}
			size := int64(0)
			for _, e := range entries {
				info, err := e.Info()
				if err != nil {
					t.Fatal(err)
				}
				size += info.Size()
			}
			if size > budget+budget/10 {
				t.Fatalf("the logs took %d bytes, want at most %d", size, budget)
			}
		}
		if w.reopens < 6 {
			t.Errorf("rotated %d times, want at least 6", w.reopens)
		}
	})
}

// A log that nothing was written to is left to the kernel at the first look, one that was
// written to after it has been at rest for a while.
func TestEmptyLogIsNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter()
		empty, used := w.open(t, log(t, "pod", "empty")), w.open(t, log(t, "pod2", "used"))
		w.write(t, used.ID, "x")
		m := newManager(t, Config{Runtime: w})
		hand := &handIdle{armed: map[string]bool{}, ch: make(chan string)}
		m.idle = func() idle { return hand }
		run(t, m)
		m.Watch(empty)
		m.Watch(used)
		synctest.Wait()
		hand.mu.Lock()
		defer hand.mu.Unlock()
		if !hand.armed["empty"] || hand.armed["used"] {
			t.Errorf("left to the kernel: %v, want the empty one", hand.armed)
		}
	})
}

// A log that cannot be rotated is tried again, ever less often, and holds up
// no other.
func TestRunWithARuntimeThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter()
		l := w.open(t, log(t, "pod", "c"))
		m := newManager(t, Config{Runtime: w, MaxSize: 10})
		w.fail = errors.New("boom")
		w.write(t, l.ID, "more than ten bytes")
		run(t, m)
		m.Watch(l)
		time.Sleep(time.Minute)
		synctest.Wait()
		w.mu.Lock()
		if w.reopens < 5 || w.reopens > 10 {
			t.Errorf("%d tries in a minute", w.reopens-1)
		}
		w.fail = nil
		w.mu.Unlock()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if names, _ := contents(t, l); !slices.Equal(names, []string{"more than ten bytes", ""}) {
			t.Errorf("files %q", names)
		}
		m.Forget("c")
		m.Forget("c")
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.logs)+len(m.pods)+len(m.queue) != 0 {
			t.Error("something is left of a log that was forgotten")
		}
	})
}

// The net watches what was not told of, and forgets what ended.
func TestRunningIsTheNet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter()
		l := w.open(t, log(t, "pod", "c"))
		var mu sync.Mutex
		running := []Log{l, {ID: "no log"}}
		m := newManager(t, Config{Runtime: w, Running: func(context.Context) ([]Log, error) {
			mu.Lock()
			defer mu.Unlock()
			if running == nil {
				return nil, errors.New("boom")
			}
			return running, nil
		}})
		watches := func(after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			m.mu.Lock()
			defer m.mu.Unlock()
			if len(m.logs) != want {
				t.Errorf("%d logs are watched, want %d", len(m.logs), want)
			}
		}
		set := func(to []Log) {
			mu.Lock()
			defer mu.Unlock()
			running = to
		}
		run(t, m)
		watches(time.Second, 1)
		set(nil)
		watches(5*time.Minute, 1)
		set([]Log{})
		watches(5*time.Minute, 0)
	})
}

func TestNewTellsAllMistakes(t *testing.T) {
	_, err := New(Config{MaxSize: -1, MaxFiles: 1, PodBudget: 5, Workers: -1})
	for _, want := range []string{"Runtime", "MaxSize -1", "MaxFiles 1", "PodBudget 5", "Workers -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no word of %s", err, want)
		}
	}
}

// Whatever is written, rotated, refused and cut off in whatever order: what is
// left are the newest lines, whole and in order, in no more files than may be.
func FuzzNoLineIsLost(f *testing.F) {
	f.Add([]byte("wwrwrwwrrwwwrwrwr"), 3)
	f.Add([]byte("wrfwrlwrdwrdwrwrxwr"), 2)
	f.Add([]byte("wrdwrkwwrwkrwrwrwr"), 5)
	f.Fuzz(func(t *testing.T, ops []byte, keep int) {
		if keep < 2 || keep > 8 || len(ops) > 60 {
			return
		}
		w := newWriter()
		l := w.open(t, log(t, "pod", "c"))
		m := newManager(t, Config{Runtime: w, MaxFiles: keep})
		var all strings.Builder
		rotations := 0
		for i, op := range ops {
			w.fail, w.late = nil, false
			switch op {
			case 'd': // the disk is full
				m.create = func(*safefile.Dir, string, os.FileMode) (*os.File, error) {
					return os.OpenFile("/dev/full", os.O_WRONLY, 0)
				}
				continue
			case 'x': // and has space again
				m.create = create
				continue
			case 'k': // killed amid a compression
				_ = os.WriteFile(l.Path+".20260101-000000"+unfinished, []byte("half"), 0o600)
				continue
			case 'f':
				w.fail = errors.New("refused")
			case 'l':
				w.fail, w.late = errors.New("answer lost"), true
			case 'r':
			default:
				line := fmt.Sprintf("2026-01-02T15:04:05.%09dZ stdout F %q\n", i, op)
				all.WriteString(line)
				w.write(t, l.ID, line)
				continue
			}
			pack, err := m.rotate(t.Context(), l, 1)
			if err == nil {
				rotations++
			}
			m.pack(t.Context(), pack)
			names, err := namesBeside(l.Path)
			if err != nil || len(names) > keep {
				t.Fatalf("%d files of at most %d, %v", len(names), keep, err)
			}
		}
		for _, half := range []string{unfinished} {
			_ = os.Remove(l.Path + ".20260101-000000" + half)
		}
		_, text := contents(t, l)
		if !strings.HasSuffix(all.String(), text) || rotations < keep && text != all.String() {
			t.Errorf("%d rotations left\n%s\nof\n%s", rotations, text, all.String())
		}
		if rest := strings.TrimSuffix(all.String(), text); rest != "" && !strings.HasSuffix(rest, "\n") {
			t.Error("a line was cut")
		}
	})
}

func Example_log() {
	dir, err := os.MkdirTemp("", "logs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "ns_pod_uid", "app", "0.log")
	_ = os.MkdirAll(filepath.Dir(path), 0o755)
	_ = os.WriteFile(path, []byte("2026-01-02T15:04:05Z stdout F many lines\n"), 0o600)

	w := newWriter() // stands for a CRI client
	w.paths["c0ffee"] = path
	reopened := make(chan bool)
	m, err := New(Config{Runtime: runtimeFunc(func(ctx context.Context, id string) error {
		defer close(reopened)
		return w.ReopenContainerLog(ctx, id)
	}), MaxSize: 20, MaxFiles: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	m.Watch(Log{ID: "c0ffee", Pod: "uid", Path: path})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	<-reopened
	cancel()
	fmt.Println(<-done)
	files, _ := os.ReadDir(filepath.Dir(path))
	fmt.Println(len(files), "files, the first is", files[0].Name())
	// Output:
	// <nil>
	// 2 files, the first is 0.log
}

type runtimeFunc func(ctx context.Context, id string) error

func (f runtimeFunc) ReopenContainerLog(ctx context.Context, id string) error { return f(ctx, id) }
