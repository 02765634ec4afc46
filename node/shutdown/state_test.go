package shutdown_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/checkpoint"
	"github.com/nodewright/nodewright/node/shutdown"
)

// newManager has restored a state.
func newManager(t *testing.T, store shutdown.Store) (*shutdown.Manager, error) {
	t.Helper()
	cfg := newNode(t).config()
	cfg.State = store
	m, err := shutdown.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m, m.Restore()
}

// A state that is not understood is set aside, and the agent starts as after a boot.
func TestForeignStateIsSetAside(t *testing.T) {
	dir := t.TempDir()
	store, err := checkpoint.Open(checkpoint.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	const key = "graceful_node_shutdown_state"
	if err := store.Write(key, []byte("garbage")); err != nil {
		t.Fatal(err)
	}
	for _, damaged := range []bool{true, false} {
		m, err := newManager(t, store)
		if (err != nil) != damaged || err != nil && !strings.Contains(err.Error(), key) || m.Err() != nil {
			t.Errorf("damaged %t: %v, %v", damaged, err, m.Err())
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, key+".corrupt-1")); err != nil {
		t.Error(err)
	}
}

// Whatever the state says, the manager starts, and pods are refused only as long as
// this boot of the machine goes down.
func FuzzStart(f *testing.F) {
	f.Add([]byte(`{"startTime":"2026-01-02T03:04:05Z","endTime":"0001-01-01T00:00:00Z","down":true,"boot":"this"}`))
	f.Add([]byte(`{"down":true,"boot":"other"}`))
	f.Add([]byte(`{"down":1}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		m, err := newManager(t, remembers(string(value)))
		if m.Err() != nil && (err != nil || !strings.Contains(string(value), "this") && !strings.Contains(string(value), `\u`)) {
			t.Errorf("%q: pods are refused, %v", value, err)
		}
	})
}
