package podmgr

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
)

// A disk that hangs does not keep the removal of a manifest from being seen, nor its return,
// and in the end has what is there.
func TestFilesAreSeenWhileTheMemoryHangs(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	replace(t, file, podYAML("a", ""))
	synctest.Test(t, func(t *testing.T) {
		h, let := &checkpointtest.Disk{}, make(chan struct{})
		h.Fault(checkpointtest.Hang(let, "write", "delete"))
		s, err := Directory(DirectoryConfig{Path: dir, NodeName: "n1", Rescan: time.Second, Poll: true, Memory: h})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended, pods := make(chan error, 1), -1
		var mu sync.Mutex
		go func() {
			ended <- s.Run(ctx, func(snap Snapshot) {
				mu.Lock()
				defer mu.Unlock()
				pods = len(snap.Pods)
			})
		}()
		want := func(n int) {
			t.Helper()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if pods != n {
				t.Errorf("%d pods, want %d", pods, n)
			}
		}
		want(1)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		want(0)
		replace(t, file, podYAML("a", ""))
		want(1)
		close(let)
		synctest.Wait()
		if len(h.Values()) != 1 {
			t.Errorf("%d records, want that of the file", len(h.Values()))
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// What is about to be written or deleted is read as if it were, and a write that failed is
// tried again with the next.
func TestNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, let := &checkpointtest.Disk{}, make(chan struct{})
		h.Put("old", "o")
		h.Fault(func(call, _ string) error {
			if call == "write" || call == "delete" {
				<-let
			}
			if call == "write" {
				return errors.New("no space left on device")
			}
			return nil
		})
		n := newNotes(DirectoryConfig{Memory: h, Log: zap.NewNop()})
		end := n.begin(t.Context())
		n.put(note{key: "new", value: []byte("n")})
		n.put(note{key: "old"})
		if b, err := n.read("new"); string(b) != "n" || err != nil {
			t.Errorf("new is read as %q, %v", b, err)
		}
		if b, err := n.read("old"); err == nil {
			t.Errorf("old is read as %q", b)
		}
		close(let)
		synctest.Wait()
		if len(h.Values()) != 0 {
			t.Errorf("the memory has %v", h.Values())
		}
		h.Fault(nil)
		n.put(note{key: "third", value: []byte("t")})
		end()
		if h.Value("new") != "n" || h.Value("third") != "t" || len(n.pending) > 0 {
			t.Errorf("the memory has %v", h.Values())
		}
	})
}
