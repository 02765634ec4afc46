package mount

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// However often a mount or unmount is tried whose server is dead, one goroutine
// waits for it.
func TestDeadServerHoldsOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k Kernel
		alive := make(chan struct{})
		var calls atomic.Int32
		hang := func() error { calls.Add(1); <-alive; return nil }
		for range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := k.await(ctx, "unmount 0 /dead", hang); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error %v", err)
			}
			cancel()
		}
		if n := k.calls.InFlight(); n != 1 || calls.Load() != 1 {
			t.Errorf("%d goroutines after %d calls", n, calls.Load())
		}
		for i := range 200 { // more than a node mounts at a time
			go func() { _ = k.await(t.Context(), fmt.Sprint("unmount 0 /", i), func() error { <-alive; return nil }) }()
		}
		synctest.Wait()
		if err := k.await(t.Context(), "unmount 0 /alive", func() error { return nil }); err != nil {
			t.Error(err)
		}
		close(alive)
		synctest.Wait()
		if n := k.calls.InFlight(); n != 0 {
			t.Errorf("%d goroutines are left", n)
		}
	})
}

// A mount program that leaves a daemon behind, which has its output still, has
// ended all the same.
func TestHelperThatLeavesADaemon(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pid")
	text, err := run(t.Context(), "sh", "-c", "sleep 60 & echo $! > "+pipe+"; echo done")
	if err != nil || text != "done" {
		t.Errorf("%q, %v", text, err)
	}
	pid, err := os.ReadFile(pipe)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(t.Context(), "sh", "-c", "kill "+string(pid)); err != nil { // the shell's own
		t.Error(err)
	}
}

func TestHelperThatTalksMuch(t *testing.T) {
	text, err := run(t.Context(), "sh", "-c", "head -c 10000000 /dev/zero | tr '\\0' x; exit 1")
	if err == nil || len(text) != maxOutput+3 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	var h head
	if _, ok := any(&h).(io.ReaderFrom); ok {
		t.Error("a copy goes past Write")
	}
	for range 1000 {
		if n, err := h.Write(make([]byte, 1000)); n != 1000 || err != nil {
			t.Fatal(n, err)
		}
	}
	if h.kept.Len() != maxKept {
		t.Errorf("%d bytes are kept, want %d", h.kept.Len(), maxKept)
	}
}
