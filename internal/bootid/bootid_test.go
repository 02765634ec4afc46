package bootid

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestRead(t *testing.T) {
	for _, tc := range []struct{ text, id, err string }{
		{"d2a1\n", "d2a1", ""},
		{" \n", "", "is empty"},
		{strings.Repeat("x", maxID), strings.Repeat("x", maxID), ""},
		{strings.Repeat("x", 1<<20), "", "more than 128 bytes"},
	} {
		id, err := Read(fstest.MapFS{path: &fstest.MapFile{Data: []byte(tc.text)}})
		if id != tc.id || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%.20q: %q, %v", tc.text, id, err)
		}
	}
	if _, err := Read(fstest.MapFS{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := os.Stat("/" + path); err != nil {
		t.Skip("this machine has none")
	}
	if one, err := Read(os.DirFS("/")); len(one) != 36 || err != nil {
		t.Errorf("%q, %v", one, err)
	}
}
