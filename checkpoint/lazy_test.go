package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestLazy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "crashloops")
	s := NewLazy(Config{Dir: dir})
	if _, err := s.Read("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read of nothing: %v", err)
	}
	if keys, err := s.Keys(); len(keys) > 0 || err != nil {
		t.Errorf("keys of nothing: %v, %v", keys, err)
	}
	if err := s.Delete("a"); err != nil {
		t.Errorf("delete of nothing: %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a directory was made for nothing: %v", err)
	}
	for _, key := range []string{"a", "b", "c"} {
		if err := s.Write(key, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "b"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}

	s = NewLazy(Config{Dir: dir}) // the next life of the agent
	if b, err := s.Read("a"); string(b) != "a" || err != nil {
		t.Errorf("read: %q, %v", b, err)
	}
	if _, err := s.Read("b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read of a damaged value: %v", err)
	}
	if err := s.Delete("a"); err != nil {
		t.Error(err)
	}
	if keys, err := s.Keys(); !slices.Equal(keys, []string{"c"}) || err != nil {
		t.Errorf("keys: %v, %v; want c", keys, err)
	}
}

// A directory that cannot be made is an error of each call, and of nothing
// else.
func TestLazyWithoutADirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := NewLazy(Config{Dir: file})
	_, read := s.Read("a")
	_, keys := s.Keys()
	for what, err := range map[string]error{"read": read, "write": s.Write("a", nil), "delete": s.Delete("a"), "keys": keys} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
