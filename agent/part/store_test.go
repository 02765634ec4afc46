package part_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
)

// Calls go by their context where a store can, and otherwise are the store's plain
// ones.
func TestStoreCalls(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	lazy := part.OpenStore(t.TempDir(), nil)
	disk := &checkpointtest.Disk{}
	for _, tc := range []struct {
		store part.Store
		err   error
	}{{lazy, context.Canceled}, {disk, nil}} {
		if err := part.Write(ended, tc.store, "k", nil); !errors.Is(err, tc.err) {
			t.Errorf("%T: write: %v", tc.store, err)
		}
		if err := part.Write(t.Context(), tc.store, "k", []byte("v")); err != nil {
			t.Errorf("%T: write: %v", tc.store, err)
		}
		if b, err := tc.store.Read("k"); string(b) != "v" || err != nil {
			t.Errorf("%T: %q, %v", tc.store, b, err)
		}
		if err := part.Delete(ended, tc.store, "k"); !errors.Is(err, tc.err) {
			t.Errorf("%T: delete: %v", tc.store, err)
		}
		if err := part.Delete(t.Context(), tc.store, "k"); err != nil {
			t.Errorf("%T: delete: %v", tc.store, err)
		}
	}
	if err := errors.Join(part.Write(t.Context(), lazy, "k", nil), part.SetAside(lazy, "k", errors.New("x")), part.SetAside(disk, "k", nil)); err != nil {
		t.Error(err)
	}
	if keys, err := lazy.Keys(); len(keys) > 0 || err != nil {
		t.Errorf("keys %v, %v", keys, err)
	}
}
