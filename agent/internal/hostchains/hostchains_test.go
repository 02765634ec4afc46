package hostchains_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/nodewright/nodewright/agent/internal/hostchains"
	"github.com/nodewright/nodewright/internal/testrun"
)

// tables are those of a machine, as two programs see them.
type tables struct {
	mu      sync.Mutex
	have    map[string]bool // "program table chain rule"
	changes []string
	fail    map[string]int // exit codes by command, such as "iptables -N"
	absent  []string       // programs
	hang    chan struct{}
}

func newTables() *tables {
	return &tables{have: map[string]bool{}, fail: map[string]int{}}
}

func (f *tables) find(name string) (string, error) {
	if slices.Contains(f.absent, name) {
		return "", fmt.Errorf("%s: not found", name)
	}
	return "/sbin/" + name, nil
}

func (f *tables) call(ctx context.Context, path string, args ...string) (int, string, error) {
	f.mu.Lock()
	hang := f.hang
	f.mu.Unlock()
	if hang != nil {
		<-hang
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return 0, "", ctx.Err()
	}
	program := filepath.Base(path)
	if len(args) < 6 || args[0] != "-w" || args[2] != "-t" {
		return 2, "bad arguments " + strings.Join(args, " "), nil
	}
	table, command, chain, rule := args[3], args[4], args[5], args[6:]
	if code := f.fail[program+" "+command]; code != 0 {
		return code, "no", nil
	}
	chainKey := program + " " + table + " " + chain
	key := strings.TrimSpace(chainKey + " " + strings.Join(rule, " "))
	there := f.have[key]
	switch command {
	case "-S", "-C":
		if !there {
			return 1, "not there", nil
		}
	case "-N":
		if there {
			return 1, "exists", nil
		}
		f.have[key], f.changes = true, append(f.changes, command+" "+key)
	case "-A", "-I":
		if builtin := chain == "INPUT" || chain == "OUTPUT"; !builtin && !f.have[chainKey] {
			return 1, "no chain", nil
		}
		f.have[key], f.changes = true, append(f.changes, command+" "+key)
	default:
		return 2, "command", nil
	}
	return 0, "", nil
}

func (f *tables) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.changes
	f.changes = nil
	return out
}

func (f *tables) forget(part string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.have {
		if strings.Contains(key, part) {
			delete(f.have, key)
		}
	}
}

func (f *tables) manager(t *testing.T, log *zap.Logger) *hostchains.Manager {
	t.Helper()
	m, err := hostchains.New(hostchains.Config{Find: f.find, Call: f.call, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var all = []string{
	"-N iptables mangle KUBE-IPTABLES-HINT",
	"-N iptables filter KUBE-FIREWALL",
	"-A iptables filter KUBE-FIREWALL -m comment --comment block incoming localnet connections --dst 127.0.0.0/8 ! --src 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
	"-I iptables filter OUTPUT -j KUBE-FIREWALL",
	"-I iptables filter INPUT -j KUBE-FIREWALL",
	"-N ip6tables mangle KUBE-IPTABLES-HINT",
}

// Both families get what they should have, once; what is there is left alone, and what
// is missing alone is put back.
func TestOnlyWhatIsMissingIsMade(t *testing.T) {
	f := newTables()
	m := f.manager(t, nil)
	for _, tc := range []struct {
		forget string
		want   []string
	}{
		{"nothing", all}, {"nothing", nil}, {"mangle", []string{all[0], all[5]}}, {"INPUT", all[4:5]}, {"filter", all[1:5]}, {"DROP", all[2:3]},
	} {
		f.forget(tc.forget)
		if err := m.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := f.take(); !slices.Equal(got, tc.want) {
			t.Errorf("without %s: made %q, want %q", tc.forget, got, tc.want)
		}
	}
}

// Run puts back what was flushed within a minute, reports a failure once, and goes on
// after it.
func TestFlushedChainsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTables()
		core, logs := observer.New(zap.InfoLevel)
		m := f.manager(t, zap.New(core))
		stop := testrun.Start(t, m.Run)
		synctest.Wait()
		if got := f.take(); !slices.Equal(got, all) {
			t.Errorf("made %q", got)
		}
		f.mu.Lock()
		f.fail["ip6tables -S"] = 3
		f.mu.Unlock()
		f.forget("filter")
		time.Sleep(5*time.Minute + time.Second)
		synctest.Wait()
		if got := f.take(); !slices.Equal(got, all[1:5]) {
			t.Errorf("put back %q", got)
		}
		if n := logs.FilterMessageSnippet("failed").Len(); n != 1 {
			t.Errorf("one failure was told %d times", n)
		}
		f.mu.Lock()
		delete(f.fail, "ip6tables -S")
		f.mu.Unlock()
		f.forget("ip6tables")
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := f.take(); !slices.Equal(got, all[5:]) {
			t.Errorf("after the failure: %q", got)
		}
		stop()
	})
}

// A machine without the programs, or without one of them, is left alone.
func TestWithoutPrograms(t *testing.T) {
	f := newTables()
	f.absent = []string{"iptables", "ip6tables"}
	if err := f.manager(t, nil).Run(t.Context()); err != nil || len(f.take()) > 0 {
		t.Errorf("%v, %q", err, f.take())
	}
	synctest.Test(t, func(t *testing.T) {
		f.absent = f.absent[1:]
		f.absent[0] = "iptables"
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.manager(t, nil).Run(ctx) }()
		synctest.Wait()
		if got := f.take(); !slices.Equal(got, all[5:]) {
			t.Errorf("made %q", got)
		}
		cancel()
		<-ended
	})
}

// A program that never returns holds up its own family alone, and no end of Run.
func TestProgramThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTables()
		f.hang = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.manager(t, nil).Run(ctx) }()
		time.Sleep(time.Hour)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		close(f.hang)
	})
}

// What cannot be made is an error that says what, and of a rule that somebody else
// makes meanwhile there is none.
func TestFailures(t *testing.T) {
	f := newTables()
	f.fail["iptables -N"] = 4
	err := f.manager(t, nil).Ensure(t.Context())
	if err == nil || !strings.Contains(err.Error(), "iptables: -N KUBE-IPTABLES-HINT in table mangle: exit code 4: no") {
		t.Errorf("%v", err)
	}
	if got := f.take(); !slices.Equal(got, all[5:]) {
		t.Errorf("the other family: %q", got)
	}
	if _, err := hostchains.New(hostchains.Config{Every: -1}); err == nil {
		t.Error("a negative time was taken")
	}
}

// Exec distinguishes exit codes from programs that cannot be run or take too long, and keeps
// little of what they write.
func TestExec(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return file
	}
	if code, out, err := hostchains.Exec(t.Context(), script("no", "echo what $1; exit 3"), "x"); code != 3 || out != "what x" || err != nil {
		t.Errorf("%d, %q, %v", code, out, err)
	}
	if code, out, err := hostchains.Exec(t.Context(), script("much", "yes | head -c 100000")); code != 0 || len(out) > 1024 || err != nil {
		t.Errorf("%d, %d bytes, %v", code, len(out), err)
	}
	if _, _, err := hostchains.Exec(t.Context(), filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, _, err := hostchains.Exec(ctx, script("slow", "exec sleep 600")); !errors.Is(err, context.Canceled) {
		t.Errorf("one that is killed: %v", err)
	}
}
