package logrotate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/internal/detached"
)

const secret = "client-key-data"

// home makes a directory of logs with a file of the node beside it.
func home(t *testing.T) (l Log, node string) {
	t.Helper()
	top := t.TempDir()
	l = Log{ID: "c", Pod: "uid", Path: filepath.Join(top, "pods", "ns_pod_uid", "c", "0.log")}
	node = filepath.Join(top, "node")
	for _, err := range []error{
		os.MkdirAll(filepath.Dir(l.Path), 0o700), os.Mkdir(node, 0o700),
		os.WriteFile(l.Path, []byte(strings.Repeat("x", 100)), 0o600),
		os.WriteFile(filepath.Join(node, "0.log"), []byte(secret), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return l, node
}

func small(t *testing.T, budget int64) *Manager {
	t.Helper()
	m, err := New(Config{Runtime: newWriter(), MaxSize: 10, PodBudget: budget})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A pod that may write to its directory of logs wants a copy of a file of the
// node, or one of the node's files written over.
func TestNothingIsCompressedThroughALink(t *testing.T) {
	l, node := home(t)
	m := small(t, 0)
	old := l.Path + ".20260102-150405"
	for name, do := range map[string]func() error{
		"a link":     func() error { return os.Symlink(filepath.Join(node, "0.log"), old) },
		"a pipe":     func() error { return syscall.Mkfifo(old, 0o600) },
		"a terabyte": func() error { return errors.Join(os.WriteFile(old, nil, 0o600), os.Truncate(old, 1<<40)) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if err := m.compress(t.Context(), old); err == nil {
			t.Errorf("%s was compressed", name)
		}
		if _, err := os.Lstat(old + compressed); err == nil {
			t.Errorf("%s: there is a copy", name)
		}
		if err := os.Remove(old); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(old, []byte("old"), 0o600), os.Symlink(filepath.Join(node, "0.log"), old+unfinished)); err != nil {
		t.Fatal(err)
	}
	if err := m.compress(t.Context(), old); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(filepath.Join(node, "0.log")); string(b) != secret {
		t.Errorf("the node's file has %q", b)
	}
	if fi, err := os.Lstat(old + compressed); err != nil || !fi.Mode().IsRegular() {
		t.Errorf("%v, %v", fi, err)
	}
}

// A link in the way of a log leads to no rotation of other files.
func TestNothingIsRotatedBehindALink(t *testing.T) {
	for name, do := range map[string]func(l Log, node string) error{
		"the log": func(l Log, node string) error {
			return errors.Join(os.Remove(l.Path), os.Symlink(filepath.Join(node, "0.log"), l.Path))
		},
		"its directory": func(l Log, node string) error {
			return errors.Join(os.RemoveAll(filepath.Dir(l.Path)), os.Symlink(node, filepath.Dir(l.Path)))
		},
		"the pod's": func(l Log, node string) error {
			dir := filepath.Dir(filepath.Dir(l.Path))
			return errors.Join(os.RemoveAll(dir), os.Mkdir(filepath.Join(node, "c"), 0o700),
				os.WriteFile(filepath.Join(node, "c", "0.log"), []byte(secret), 0o600), os.Symlink(node, dir))
		},
	} {
		l, node := home(t)
		if err := do(l, node); err != nil {
			t.Fatal(err)
		}
		if _, err := small(t, 2*leastLimit).rotate(t.Context(), l, 10); err == nil {
			t.Errorf("%s: rotated", name)
		}
		if b, _ := os.ReadFile(filepath.Join(node, "0.log")); string(b) != secret {
			t.Errorf("%s: the node's file has %q", name, b)
		}
	}
}

// A budget takes away files of the pod alone, however many names there are.
func TestABudgetLooksAtSoManyNames(t *testing.T) {
	l, node := home(t)
	old := filepath.Join(node, "0.log.20260102-150405")
	if err := os.WriteFile(old, make([]byte, 3*leastLimit), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(node, filepath.Join(filepath.Dir(filepath.Dir(l.Path)), "other")); err != nil {
		t.Fatal(err)
	}
	for i := range maxNames + 10 {
		if err := os.Symlink("x", filepath.Join(filepath.Dir(l.Path), fmt.Sprint("0.log.", i))); err != nil {
			t.Fatal(err)
		}
	}
	podDir := filepath.Dir(filepath.Dir(l.Path))
	small(t, 2*leastLimit).fit(l.Pod, podDir)
	if _, err := os.Lstat(old); err != nil {
		t.Errorf("a file behind a link was removed: %v", err)
	}
	if _, looked := containerFiles(podDir, "c", maxNames); looked != maxNames {
		t.Errorf("looked at %d names, want %d", looked, maxNames)
	}
}

// One log's file system does not answer: others are rotated, and the end of Run
// is not held up for long.
func TestALogOnAFileSystemThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter()
		m, err := New(Config{Runtime: w, MaxSize: 10, Poll: true})
		if err != nil {
			t.Fatal(err)
		}
		bad, _ := home(t)
		good, _ := home(t)
		bad.ID, good.ID = "bad", "good"
		w.open(t, good)
		hang := make(chan struct{})
		defer close(hang)
		go func() {
			_, _ = detached.Next(context.Background(), &m.disk, bad.Path, func() (int, error) { <-hang; return 0, nil })
		}()
		synctest.Wait()
		m.Watch(bad)
		m.Watch(good)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		m.Forget("none") // waits for no disk
		if names, err := namesBeside(good.Path); err != nil || len(names) != 2 {
			t.Errorf("%v, %v: the other log was not rotated", names, err)
		}
		if n := m.disk.InFlight(); n != 1 {
			t.Errorf("%d calls in flight, want 1", n)
		}
		began := time.Now()
		cancel()
		if err := <-ended; err != nil || time.Since(began) > ending {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
