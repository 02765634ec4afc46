package rootless

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nodewright/nodewright/node"
)

// The record counts only in the boot and for the process for which it was written.
func TestRecordOfProcesses(t *testing.T) {
	ctx := t.Context()
	h, unlock, err := openHome(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if r := h.read(); r != (record{Boot: h.boot}) {
		t.Errorf("without a record: %+v", r)
	}
	cmd := exec.CommandContext(ctx, "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Skip("needs sleep:", err)
	}
	go func() { _ = cmd.Wait() }()
	p, err := processOf(ctx, cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	want := record{Boot: h.boot, Holder: p}
	if err := h.write(want); err != nil {
		t.Fatal(err)
	}
	if got := h.read(); got != want || !got.Holder.lives(ctx) || h.pasta(ctx) != (process{}) {
		t.Errorf("record %+v, want %+v, of a living holder", got, want)
	}
	// Another process has the ID now.
	other := process{PID: p.PID, Start: p.Start + 1}
	if other.lives(ctx) {
		t.Error("a process with another start time counts as the holder")
	}
	if err := other.kill(ctx); err != nil || !p.lives(ctx) {
		t.Errorf("kill of a process that has ended: %v", err)
	}
	for range 2 { // the second time it is gone
		if err := p.kill(ctx); err != nil || p.lives(ctx) {
			t.Errorf("kill: %v, lives %t", err, p.lives(ctx))
		}
	}
	earlier := h
	earlier.boot = "earlier"
	if err := earlier.write(record{Boot: "earlier", Holder: p}); err != nil {
		t.Fatal(err)
	}
	if r := h.read(); r != (record{Boot: h.boot}) {
		t.Errorf("record of an earlier boot: %+v", r)
	}
	if err := os.WriteFile(filepath.Join(h.Path, recordName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := h.read(); r != (record{Boot: h.boot}) {
		t.Errorf("damaged record: %+v", r)
	}
}

func TestLockNameIsThatOfAgents(t *testing.T) {
	if lockName != node.RootLockName {
		t.Errorf("lockName = %q, want %q", lockName, node.RootLockName)
	}
}

func TestRemoveWithoutNamespaces(t *testing.T) {
	dir, stopped := t.TempDir(), errors.New("stopped")
	if err := Remove(t.Context(), dir, func() error { return stopped }); err != stopped { //nolint:errorlint // this error
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}
