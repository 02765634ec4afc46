package wirecount_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/internal/wirecount"
)

// shape is of a message whose field 1 has messages whose field 2 has such.
var shape = wirecount.Shape{1: {2: {}}}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		name    string
		message string
		fields  int
	}{
		{"nothing", "", 0},
		{"a number", "\x08\x01", 1},
		{"a long number", "\x08\xff\xff\x01", 1},
		{"two fixed numbers", "\x0912345678\x0d1234", 2},
		{"a string that is not entered", "\x1a\x02\x0a\x00", 1},
		{"an empty message", "\x0a\x00", 1},
		{"two of them", "\x0a\x00\x0a\x00", 2},
		{"one with one within", "\x0a\x02\x12\x00", 2},
		{"deeper than the shape", "\x0a\x04\x12\x02\x0a\x00", 3},
		{"a group", "\x0b\x08\x01\x0c", 3},
		{"many", strings.Repeat("\x0a\x00", 1000), 1000},
		{"cut off within a tag", "\x08\x01\x80", 1},
		{"cut off within a number", "\x08\x80", 1},
		{"cut off within a string", "\x0a\x05abc", 1},
		{"a length beyond all", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 1},
		{"no such type", "\x08\x01\x0f\x08\x01", 2},
	} {
		if err := wirecount.Check([]byte(tc.message), shape, tc.fields); err != nil {
			t.Errorf("%s: %v with a limit of %d", tc.name, err, tc.fields)
		}
		if err := wirecount.Check([]byte(tc.message), shape, tc.fields-1); tc.fields > 0 && !errors.Is(err, wirecount.ErrTooMany) {
			t.Errorf("%s: %v with a limit of %d, want ErrTooMany", tc.name, err, tc.fields-1)
		}
	}
}

// There are no more fields than bytes, and a limit that holds for a message holds
// for what it begins with.
func FuzzCheck(f *testing.F) {
	f.Add([]byte("\x0a\x02\x12\x00\x0d1234"), 2)
	f.Add([]byte("\x0b\x08\x01\x0c\x09"), 1)
	f.Fuzz(func(t *testing.T, message []byte, limit int) {
		if wirecount.Check(message, shape, len(message)) != nil {
			t.Fatalf("%q has more fields than bytes", message)
		}
		if limit < 0 || wirecount.Check(message, shape, limit) != nil {
			return
		}
		if err := wirecount.Check(message, shape, limit+1); err != nil {
			t.Fatalf("%d fields are few enough, and %d are not: %v", limit, limit+1, err)
		}
		if err := wirecount.Check(message, nil, limit); err != nil {
			t.Fatalf("fewer fields if none is entered: %v", err)
		}
	})
}
