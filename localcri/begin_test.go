//go:build linux

package localcri

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

// slowMonitor takes a while to begin a command.
type slowMonitor struct {
	monitorConn
	takes time.Duration
	err   error
	begun execProcess
}

func (m slowMonitor) Exec(ctx context.Context, _ monitor.Exec) (execProcess, error) {
	select {
	case <-time.After(m.takes):
		return m.begun, m.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type killedProcess struct {
	execProcess
	killed chan struct{}
}

func (killedProcess) Master() *os.File { return nil }

func (p killedProcess) Kill() error {
	close(p.killed)
	return nil
}

// prepared is a command with a file, and with its end of a stream.
func prepared(t *testing.T) *execution {
	t.Helper()
	r, w, err := pipe(true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	e := &execution{Exec: monitor.Exec{Stdout: w}, files: []string{filepath.Join(t.TempDir(), "x")}}
	if err := os.WriteFile(e.files[0], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *execution) isThere() bool {
	_, err := os.Lstat(e.files[0])
	return err == nil
}

// A caller that goes is let go at once. What its command is made of stays until the
// monitor has answered, and the command is killed.
func TestCallerOfACommandGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, killed := prepared(t), make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := begin(ctx, slowMonitor{takes: 30 * time.Second, begun: killedProcess{killed: killed}}, e)
		if after := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || after != time.Second {
			t.Errorf("%v after %v, want the caller's end after 1s", err, after)
		}
		time.Sleep(28 * time.Second)
		synctest.Wait()
		if !e.isThere() {
			t.Error("a file went before the monitor had answered")
		}
		if _, err := e.Stdout.Write([]byte("x")); err != nil {
			t.Errorf("a stream was closed before the monitor had answered: %v", err)
		}
		<-killed
		synctest.Wait()
		if e.isThere() {
			t.Error("a file is left")
		}
		if _, err := e.Stdout.Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a stream is left open: %v", err)
		}
	})
}

func TestFilesOfACommand(t *testing.T) {
	for name, c := range map[string]struct {
		m    slowMonitor
		stay bool
	}{
		"begun":                {slowMonitor{begun: killedProcess{}}, false},
		"refused":              {slowMonitor{err: &monitor.StartError{}}, false},
		"monitor out of sight": {slowMonitor{err: monitor.ErrGone}, true},
		"no answer":            {slowMonitor{takes: time.Hour}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := prepared(t)
				began := time.Now()
				_, err := begin(t.Context(), c.m, e)
				if (err == nil) != (c.m.err == nil && !c.stay) {
					t.Errorf("got %v", err)
				}
				if time.Since(began) > beginTimeout {
					t.Errorf("took %v", time.Since(began))
				}
				if e.isThere() != c.stay {
					t.Errorf("file is there: %t, want %t", e.isThere(), c.stay)
				}
			})
		})
	}
}

// The socket of a command's terminal has an address, 107 bytes by unix(7), also
// below the longest StateDir.
func TestNamesOfCommands(t *testing.T) {
	r := &Runtime{}
	r.execs.Store(1<<32 - 1)
	seen := map[string]bool{}
	for range 100 {
		name := r.execName()
		if seen[name] {
			t.Fatalf("%s is there twice", name)
		}
		seen[name] = true
		if n := maxStateDir + len("/c/") + idLength + len("/"+name+"c"); n > 107 {
			t.Fatalf("%s: an address of %d bytes", name, n)
		}
	}
	r.execs.Store(0)
	if name := r.execName(); name != "x"+strings.Repeat("0", 5)+"1" {
		t.Errorf("got %s", name)
	}
}
