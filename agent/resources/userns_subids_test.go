package resources

import (
	"context"
	"errors"
	"testing"
)

func TestParseSubIDs(t *testing.T) {
	for text, want := range map[string]UserIDs{
		"0: kubelet 65536 7208960\n": {65536, 7208960}, "0: kubelet 65536 7208960": {65536, 7208960},
		"": {}, "0: kubelet 65536": {}, "0: kubelet -1 5": {}, "0: kubelet 1 4294967296": {}, "0: kubelet 1 2\n1: kubelet 5 6\n": {}, "0: kubelet a b": {},
	} {
		got, err := parseSubIDs(text)
		if (err == nil) != (want != UserIDs{}) || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// The IDs of users and groups are the same, or an error.
func TestSubIDs(t *testing.T) {
	for _, tc := range []struct {
		users, groups string
		err           error
		ok            bool
	}{
		{"0: k 65536 65536\n", "0: k 65536 65536\n", nil, true},
		{"0: k 65536 65536\n", "0: k 65536 131072\n", nil, false},
		{"junk", "junk", nil, false},
		{"", "", errors.New("exit status 1"), false},
	} {
		_, ok, err := subIDs(t.Context(), "k", func(_ context.Context, args ...string) ([]byte, error) {
			if args[0] == "-g" {
				return []byte(tc.groups), tc.err
			}
			return []byte(tc.users), tc.err
		})
		if ok != tc.ok || (err == nil) != tc.ok {
			t.Errorf("%q and %q: %v, %v", tc.users, tc.groups, ok, err)
		}
	}
	if _, ok, err := SubIDs(t.Context(), "nobody-of-this-name"); ok || err != nil {
		t.Errorf("a user that is not there: %v, %v", ok, err)
	}
}

func FuzzParseSubIDs(f *testing.F) {
	f.Add("0: kubelet 65536 7208960\n")
	f.Fuzz(func(t *testing.T, text string) {
		if ids, err := parseSubIDs(text); err != nil && ids != (UserIDs{}) {
			t.Errorf("%q: %+v beside %v", text, ids, err)
		}
	})
}
