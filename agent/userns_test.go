package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func apart(uid string) *v1.Pod {
	no := false
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: v1.PodSpec{HostUsers: &no}}
}

func TestIDRanges(t *testing.T) {
	root := t.TempDir()
	r := newIDRanges(root, zap.NewNop())
	first := func(uid string) uint32 {
		t.Helper()
		got, err := r.forPod(apart(uid))
		if err != nil || got.Length != 65536 {
			t.Fatalf("%s: %+v, %v", uid, got, err)
		}
		return got.First
	}
	if got, err := r.forPod(&v1.Pod{}); got != nil || err != nil {
		t.Errorf("a pod that shares the node's IDs got %v, %v", got, err)
	}
	if len(r.held()) != 0 {
		t.Error("a range is held before one was asked for")
	}
	if _, err := os.Stat(filepath.Join(root, "userns")); !os.IsNotExist(err) {
		t.Errorf("a directory was made for nothing: %v", err)
	}
	for i, uid := range []string{"a", "b", "c", "a"} {
		if got, want := first(uid), uint32(i%3+1)*65536; got != want {
			t.Errorf("%s: %d, want %d", uid, got, want)
		}
	}
	if err := r.release("b"); err != nil {
		t.Fatal(err)
	}
	if err := r.release("never seen"); err != nil {
		t.Errorf("release of a pod without a range: %v", err)
	}

	r = newIDRanges(root, zap.NewNop()) // the next life of the agent
	held := r.held()
	slices.Sort(held)
	if !slices.Equal(held, []types.UID{"a", "c"}) {
		t.Errorf("held by %v, want a and c", held)
	}
	for uid, want := range map[string]uint32{"c": 3 * 65536, "a": 65536, "d": 2 * 65536} {
		if got := first(uid); got != want {
			t.Errorf("%s: %d, want %d", uid, got, want)
		}
	}
}

// A damaged file costs its pod the range, and nobody else anything.
func TestIDRangesDamaged(t *testing.T) {
	root := t.TempDir()
	r := newIDRanges(root, zap.NewNop())
	for _, uid := range []string{"a", "b"} {
		if _, err := r.forPod(apart(uid)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "userns", "a"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Write("odd", []byte(`{"first":7,"length":65536}`)); err != nil {
		t.Fatal(err)
	}
	r = newIDRanges(root, zap.NewNop())
	if got := r.held(); !slices.Equal(got, []types.UID{"b"}) {
		t.Errorf("held by %v, want b", got)
	}
	if got, err := r.forPod(apart("b")); err != nil || got.First != 2*65536 {
		t.Errorf("b: %+v, %v", got, err)
	}
}

func TestIDRangesRunOut(t *testing.T) {
	r := newIDRanges(t.TempDir(), zap.NewNop())
	if _, err := r.forPod(apart("a")); err != nil {
		t.Fatal(err)
	}
	for first := uint64(65536); first < 1<<32; first += 65536 {
		r.taken[uint32(first)] = "x"
	}
	if _, err := r.forPod(apart("b")); err == nil || err.Error() != "all 65535 ranges of user IDs are taken" {
		t.Errorf("error %v", err)
	}
	delete(r.taken, 1<<32-65536)
	if got, err := r.forPod(apart("b")); err != nil || got.First != 1<<32-65536 {
		t.Errorf("the last range: %+v, %v", got, err)
	}
}
