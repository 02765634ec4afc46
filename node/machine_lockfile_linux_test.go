package node

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubelet.lock")
	first, err := LockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := first.Wanted(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("wanted by nobody until the end: %v", err)
	}

	first.Release()
	if first, err = LockFile(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if _, err := LockFile(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("one that was called off has it: %v", err)
	}
	next := make(chan error, 1)
	go func() {
		second, err := LockFile(t.Context(), path)
		if err == nil {
			second.Release()
			second.Release()
		}
		next <- err
	}()
	if err := first.Wanted(t.Context()); err != nil { // by the one that was called off, at the latest
		t.Error(err)
	}
	first.Release()
	if err := <-next; err != nil {
		t.Errorf("the next one: %v", err)
	}
	if _, err := LockFile(t.Context(), filepath.Join(path, "below")); err == nil || !strings.Contains(err.Error(), "lock file") {
		t.Errorf("below a file: %v", err)
	}
}
