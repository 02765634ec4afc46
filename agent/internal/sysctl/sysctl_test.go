package sysctl_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/agent/internal/sysctl"
)

// sys is a directory with parameters; one of value "-" is not there.
func sys(t *testing.T, values map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, tunable := range sysctl.Tunables() {
		value, ok := values[tunable.Name]
		if !ok {
			value = map[string]string{
				"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
				"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
			}[tunable.Name]
		}
		if value == "-" {
			continue
		}
		file := filepath.Join(dir, tunable.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(value+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Check names every parameter that differs and changes none; Set changes these alone.
func TestTunables(t *testing.T) {
	for _, tc := range []struct {
		name   string
		values map[string]string
		check  []string // in the error of Check
		set    []string // in that of Set
	}{
		{"as they should be", nil, nil, nil},
		{"the kernel's own", map[string]string{"vm/overcommit_memory": "0", "kernel/panic": "0"}, []string{`vm.overcommit_memory is "0", want 1`, `kernel.panic is "0", want 10`}, nil},
		{"no number", map[string]string{"kernel/panic": strings.Repeat("x", 100)}, []string{`kernel.panic is "` + strings.Repeat("x", 40) + `", want 10`}, nil},
		{"one is not there", map[string]string{"kernel/keys/root_maxkeys": "-", "kernel/panic": "3"}, []string{"kernel.keys.root_maxkeys, want 1000000", "kernel.panic"}, []string{"kernel.keys.root_maxkeys"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := sys(t, tc.values)
			wantError(t, sysctl.Check(dir, sysctl.Tunables()), tc.check)
			wantError(t, sysctl.Check(dir, sysctl.Tunables()), tc.check) // it has changed nothing
			wantError(t, sysctl.Set(dir, sysctl.Tunables()), tc.set)
			wantError(t, sysctl.Check(dir, sysctl.Tunables()), tc.set)
		})
	}
}

func wantError(t *testing.T, err error, want []string) {
	t.Helper()
	if (err == nil) != (len(want) == 0) {
		t.Fatalf("error %v, want %q", err, want)
	}
	if err == nil {
		return
	}
	var one *sysctl.TunableError
	if lines := strings.Split(err.Error(), "\n"); len(lines) != len(want) || len(err.Error()) > 400 || !errors.As(err, &one) {
		t.Errorf("error %q, want one line for each of %q", err, want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("no %q in %q", w, err)
		}
	}
}

// A parameter that cannot be written is named with what it is.
func TestTunableThatCannotBeWritten(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write any file")
	}
	dir := sys(t, map[string]string{"kernel/panic": "3"})
	if err := os.Chmod(filepath.Join(dir, "kernel/panic"), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := sysctl.Set(dir, sysctl.Tunables()); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), `kernel.panic is "3", want 10`) {
		t.Errorf("error %v", err)
	}
}

func TestSetOOMScore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "oom_score_adj")
	if err := sysctl.SetOOMScore(file, -999); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that is gone: %v", err)
	}
	for _, tc := range []struct {
		was   string
		score int
		want  string
	}{{"0\n", -999, "-999"}, {"-999\n", -999, "-999\n"}, {"junk", 1000, "1000"}, {"5", 1001, ""}, {"5", -1001, ""}} {
		if err := os.WriteFile(file, []byte(tc.was), 0o600); err != nil {
			t.Fatal(err)
		}
		err := sysctl.SetOOMScore(file, tc.score)
		got, _ := os.ReadFile(file)
		if (err != nil) != (tc.want == "") || err == nil && string(got) != tc.want {
			t.Errorf("%q to %d: %q, %v", tc.was, tc.score, got, err)
		}
	}
}
