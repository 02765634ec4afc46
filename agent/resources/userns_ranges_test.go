package resources

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestRangesRunOut(t *testing.T) {
	r := newRanges(defaultSpace(block))
	for first := uint64(block); first < 1<<32; first += block {
		r.taken[uint32(first)] = "x"
	}
	if _, err := r.take("b"); err == nil || err.Error() != "all 65535 ranges of user IDs are taken" {
		t.Errorf("error %v", err)
	}
	delete(r.taken, 1<<32-block)
	if got, err := r.take("b"); err != nil || got.first != 1<<32-block {
		t.Errorf("the last range: %+v, %v", got, err)
	}
}

// A range that two values name is free when both pods are gone.
func TestRangeOfTwo(t *testing.T) {
	r := newRanges(defaultSpace(block))
	for _, uid := range []types.UID{"a", "b"} {
		r.add(uid, block, block, keyOf(uid, block, block), true)
	}
	r.drop("a")
	if got, err := r.take("c"); err != nil || got.first != 2*block {
		t.Errorf("range %+v, %v", got, err)
	}
	r.drop("b")
	if got, err := r.take("d"); err != nil || got.first != block {
		t.Errorf("range %+v, %v", got, err)
	}
}

func TestDecode(t *testing.T) {
	for _, tc := range []struct {
		value string
		first uint32
		ok    bool
	}{
		{`{"first":65536,"length":65536}`, 65536, true},
		{`{"first":65536,"length":131072}`, 65536, true},
		{`{"first":4294901760,"length":131072}`, 0, false},
		{`{"first":0,"length":65536}`, 0, false},
		{`{"first":7,"length":65536}`, 0, false},
		{`{"first":65536,"length":1}`, 0, false},
		{`{"first":-1}`, 0, false},
		{"garbage", 0, false},
	} {
		if first, _, err := decodeUserIDs([]byte(tc.value)); (err == nil) != tc.ok || first != tc.first {
			t.Errorf("%s: %d, %v", tc.value, first, err)
		}
	}
}

// A pod that has no range gives none back, and takes none of another.
func TestDropOfNothing(t *testing.T) {
	r := newRanges(defaultSpace(block))
	r.drop("a")
	r.add("b", block, block, "b", true)
	r.drop("a")
	if len(r.of) != 1 || len(r.taken) != 1 {
		t.Errorf("%+v", r)
	}
}

// Whatever a record says, it is a whole range other than the node's, or an error.
func FuzzUsernsDecode(f *testing.F) {
	f.Add([]byte(`{"first":65536,"length":65536}`))
	f.Add([]byte(`{"first":4294967295,"length":65536}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, value []byte) {
		first, length, err := decodeUserIDs(value)
		if err != nil {
			return
		}
		if first == 0 || first%block != 0 || length == 0 || length%block != 0 || uint64(first)+uint64(length) > 1<<32 {
			t.Errorf("%q: %d from %d on", value, length, first)
		}
		back := encode(first, length)
		if again, as, err := decodeUserIDs(back); again != first || as != length || err != nil {
			t.Errorf("%q is %d again (%v)", value, again, err)
		}
	})
}

func TestKeys(t *testing.T) {
	for key, want := range map[string]idRange{
		"a.ids-1": {first: 1 << 16, key: "a"}, "a.ids-65535": {first: 1<<32 - block, key: "a"}, "a.ids-4-2": {first: 4 << 16, length: 2 << 16, key: "a"}, "a.ids-4-1": {key: "a.ids-4-1"}, "a.ids-65535-2": {key: "a.ids-65535-2"}, "a.ids-2.ids-3": {first: 3 << 16, key: "a.ids-2"},
		"a": {key: "a"}, "a.ids-0": {key: "a.ids-0"}, "a.ids-65536": {key: "a.ids-65536"}, "a.ids-01": {key: "a.ids-01"}, "a.ids-": {key: "a.ids-"}, "a.ids--1": {key: "a.ids--1"},
	} {
		if want.first != 0 && want.length == 0 {
			want.length = block
		}
		if uid, first, length := parseKey(key); uid != types.UID(want.key) || first != want.first || length != want.length {
			t.Errorf("%s is of %s, %d from %d on", key, uid, length, first)
		}
	}
}

// Ranges of another length do not overlap those that pods have already, and stay where
// they may be.
func TestRangesOfAnotherLength(t *testing.T) {
	s, err := UserNamespacesConfig{IDsPerPod: 4 * block, First: 8 * block, Count: 12 * block, MaxPods: 3}.space()
	if err != nil {
		t.Fatal(err)
	}
	r := newRanges(s)
	r.add("old", 9*block, block, "old", true)
	for uid, want := range map[types.UID]uint32{"a": 12 * block} {
		if got, err := r.take(uid); err != nil || got.first != want || got.length != 4*block || got.key != "a.ids-12-4" {
			t.Errorf("%s has %+v, %v", uid, got, err)
		}
	}
	if got, err := r.take("b"); err != nil || got.first != 16*block {
		t.Errorf("b has %+v, %v", got, err)
	}
	if _, err := r.take("c"); err == nil || err.Error() != "all 3 ranges of user IDs are taken" {
		t.Errorf("error %v", err)
	}
	r.drop("old")
	r.lost["x"] = true
	if got, err := r.take("c"); err != nil || got.first != 8*block {
		t.Errorf("c has %+v, %v", got, err)
	}
}

func TestSpaces(t *testing.T) {
	for _, tc := range []struct {
		cfg   UserNamespacesConfig
		count uint64 // 0: there is an error
	}{
		{UserNamespacesConfig{}, 65535},
		{UserNamespacesConfig{MaxPods: 65535}, 65535},
		{UserNamespacesConfig{MaxPods: 65536}, 0},
		{UserNamespacesConfig{IDsPerPod: 100}, 0},
		{UserNamespacesConfig{IDsPerPod: 1 << 31}, 1},
		{UserNamespacesConfig{IDsPerPod: 1 << 17}, 32767},
		{UserNamespacesConfig{First: block, Count: 10 * block, MaxPods: 10}, 10},
		{UserNamespacesConfig{First: block, Count: 10 * block, MaxPods: 110}, 0},
		{UserNamespacesConfig{First: 65537, Count: block}, 0},
		{UserNamespacesConfig{First: 0, Count: block}, 0},
		{UserNamespacesConfig{First: block, Count: block + 1}, 0},
		{UserNamespacesConfig{IDsPerPod: 2 * block, First: block, Count: 2 * block}, 0},
		{UserNamespacesConfig{First: 1<<32 - block, Count: 2 * block}, 0},
	} {
		s, err := tc.cfg.space()
		if (err != nil) != (tc.count == 0) || err == nil && s.count() != tc.count {
			t.Errorf("%+v: %d ranges, %v", tc.cfg, s.count(), err)
		}
	}
}
