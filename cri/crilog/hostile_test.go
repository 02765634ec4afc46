package crilog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/internal/detached"
)

const said = "2026-01-02T03:04:05Z stdout F said\n"

// A pod makes its log a terabyte of nothing.
func TestTheEndOfAHugeLogWithoutLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	if err := errors.Join(os.WriteFile(path, []byte(said), 0o600), os.Truncate(path, 1<<40)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Copy(t.Context(), &out, path, Options{Tail: 10}); err != nil {
		t.Fatal(err)
	}
	if out.Len() != 10*maxLine {
		t.Errorf("%d bytes, want those of 10 lines, %d", out.Len(), 10*maxLine)
	}
}

// What is filtered out is written to nobody, who might hang up.
func TestACopyOfNothingEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	if err := errors.Join(os.WriteFile(path, []byte(said), 0o600), os.Truncate(path, 1<<40)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	if err := Copy(ctx, &out, path, Options{Tail: -1, Limit: 1 << 50, Stream: Stderr}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// However many names there are beside a log, so many are looked at.
func TestManyNamesBesideALog(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	if err := os.WriteFile(path, []byte(said), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range maxNames + 10 {
		if err := os.Symlink("x", filepath.Join(dir, fmt.Sprint("0.log.", i))); err != nil {
			t.Fatal(err)
		}
	}
	d := newDisk(t.Context(), "", path)
	if names, err := d.names(); err != nil || len(names) != maxNames {
		t.Errorf("%d names, %v", len(names), err)
	}
	var out bytes.Buffer
	if err := Copy(t.Context(), &out, path, Options{Tail: -1, Follow: true, Ended: func() bool { return true }}); err != nil || out.String() != "said\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// A file system does not answer: each copy ends after a while, sooner if its
// caller does, and all of them cost one goroutine.
func TestALogOnAFileSystemThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "0.log")
		if err := os.WriteFile(path, []byte(said), 0o600); err != nil {
			t.Fatal(err)
		}
		hang := make(chan struct{})
		go func() {
			_, _ = detached.Next(t.Context(), calls, path, func() (int, error) { <-hang; return 0, nil })
		}()
		synctest.Wait()
		for range 20 {
			began := time.Now()
			err := Copy(t.Context(), &bytes.Buffer{}, path, Options{Tail: -1})
			if err == nil || !strings.Contains(err.Error(), "did not answer") || time.Since(began) != answer {
				t.Fatalf("%v after %v", err, time.Since(began))
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := Copy(ctx, &bytes.Buffer{}, path, Options{Tail: -1}); err == nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if n := calls.InFlight(); n != 1 {
			t.Errorf("%d calls in flight, want 1", n)
		}
		close(hang)
		synctest.Wait()
		var out bytes.Buffer
		if err := Copy(t.Context(), &out, path, Options{Tail: -1}); err != nil || out.String() != "said\n" {
			t.Errorf("afterwards: %q, %v", out.String(), err)
		}
	})
}
