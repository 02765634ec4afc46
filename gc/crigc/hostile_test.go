package crigc

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A pod that may write to its directory of logs has it lead elsewhere, or makes
// a directory with the name of a log.
func TestNoLogIsRemovedBehindALink(t *testing.T) {
	top := t.TempDir()
	logs, victim := filepath.Join(top, "logs"), filepath.Join(top, "victim", "0.log")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(logs, "pod", "c", "0.log.d", "full"), 0o700), os.Mkdir(filepath.Dir(victim), 0o700), os.WriteFile(victim, nil, 0o600),
		os.WriteFile(filepath.Join(logs, "pod", "c", "0.log"), nil, 0o600), os.Symlink(filepath.Dir(victim), filepath.Join(logs, "pod", "l")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := NewContainers(nobody{}, logs)
	if err := s.removeLogs(t.Context(), filepath.Join(logs, "pod", "c", "0.log")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(logs, "pod", "c", "0.log")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the log is there: %v", err)
	}
	if err := s.removeLogs(t.Context(), filepath.Join(logs, "pod", "l", "0.log")); err == nil {
		t.Error("removed behind a link")
	}
	for _, path := range []string{victim, logs + "/../victim/0.log", logs, "", "0.log"} {
		if err := s.removeLogs(t.Context(), path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	if _, err := os.Lstat(victim); err != nil {
		t.Error(err)
	}
}

// nobody is a runtime that is not asked.
type nobody struct{ ContainerService }
