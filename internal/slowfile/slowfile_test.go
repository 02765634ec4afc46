package slowfile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/internal/detached"
)

func TestAFileIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	want := bytes.Repeat([]byte("text"), 999)
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &System{Context: t.Context(), Calls: &detached.Queue{}, Key: path, Answer: time.Minute}
	f, err := s.Open(func() (*os.File, error) { return os.Open(path) })
	if err != nil || f.Info().Size() != int64(len(want)) {
		t.Fatal(err, f)
	}
	if err := iotest.TestReader(f, want); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Open(func() (*os.File, error) { return os.Open(path + "-none") }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want ErrNotExist", err)
	}
}

// Calls of a reader that hang are given up on one by one, and wait in one
// goroutine.
func TestAFileSystemThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		calls := &detached.Queue{}
		s := &System{Context: t.Context(), Calls: calls, Key: path, Answer: time.Second}
		f, err := s.Open(func() (*os.File, error) { return os.Open(path) })
		if err != nil {
			t.Fatal(err)
		}
		hang := make(chan struct{})
		began := time.Now()
		if _, err := s.Open(func() (*os.File, error) { <-hang; return os.Open(path) }); err == nil {
			t.Error("opened")
		}
		if _, err := f.Read(make([]byte, 9)); err == nil {
			t.Error("read")
		}
		if _, err := f.ReadAt(make([]byte, 9), 0); err == nil {
			t.Error("read")
		}
		if _, err := f.Seek(0, io.SeekStart); err == nil {
			t.Error("seeked")
		}
		if took := time.Since(began); took != 4*time.Second || calls.InFlight() != 1 {
			t.Errorf("%v, %d calls in flight", took, calls.InFlight())
		}
		close(hang)
		synctest.Wait()
		if b, err := io.ReadAll(f); string(b) != "text" {
			t.Errorf("afterwards: %q, %v", b, err)
		}
		_ = f.Close()
	})
}

// A file that was opened after its copy had given up is closed.
func TestAFileThatComesTooLateIsClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, late := range []bool{true, false} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		var h handover
		if late {
			h.leave()
			_ = h.give(f)
		} else {
			_ = h.give(f)
			h.leave()
		}
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("late %t: it was left open: %v", late, err)
		}
	}
}
