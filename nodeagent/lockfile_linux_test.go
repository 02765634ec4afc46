package nodeagent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nodewright/nodewright/node"
)

// A node ends in order when the next one opens its lock file, and that one begins then.
func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	o := options(t, "", "--lock-file", path, "--exit-on-lock-contention")
	o.Parts = StandardWithout("hostsetup")
	first, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- first.Run(t.Context()) }()
	<-first.Up()
	second, err := New(t.Context(), o)
	if err != nil {
		t.Fatalf("the next one: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}

	late, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(late, o); !errors.Is(err, context.Canceled) {
		t.Errorf("beside a node at rest: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}

	// What a directory's lock refuses gives the file back.
	held, err := node.LockRoot(o.Config.RootDir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), o); !errors.Is(err, node.ErrLocked) {
		t.Errorf("in a directory of another: %v", err)
	}
	held.Release()
	third, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Close(); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the lock file: %v, %v", info, err)
	}
}
