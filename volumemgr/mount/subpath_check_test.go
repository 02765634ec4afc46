package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		path string
		ok   bool
	}{
		{"a", true}, {"a/b", true}, {"a/./b//c/", true}, {"..a", true}, {"a..", true}, {".", true},
		{strings.Repeat("a/", 2047) + "a", true}, {strings.Repeat("a/", 2047) + "aa", false},
		{strings.Repeat("a", 255), true}, {strings.Repeat("a", 256), false}, {strings.Repeat("a", 4096), false},
		{"..", false}, {"../a", false}, {"a/../b", false}, {"a/..", false}, {"/a", false}, {"a\x00b", false}, {"a\xffb", false},
	} {
		err := checkSubPath(tc.path)
		if (err == nil) != tc.ok {
			t.Errorf("%.40q: error %v, want ok %t", tc.path, err, tc.ok)
		}
		if err != nil && len(err.Error()) > 200 {
			t.Errorf("%.40q: the message has %d bytes", tc.path, len(err.Error()))
		}
	}
}

// Errors shown to a pod's owner contain no path of the node.
func TestErrorHidesPaths(t *testing.T) {
	for _, cause := range []error{
		fmt.Errorf("/var/lib/agent/x: %w", ErrOutside), fmt.Errorf("/var/lib/agent/x: %w", ErrSymlink),
		&os.PathError{Op: "open", Path: "/var/lib/agent/x", Err: os.ErrPermission}, errors.New("/var/lib/agent"),
		fmt.Errorf("open /var/lib: %w", os.ErrNotExist),
	} {
		err := &SubPathError{Volume: "data", SubPath: "a/b", Err: cause}
		if text := err.Error(); strings.Contains(text, "/var") || !strings.Contains(text, `"a/b"`) || !strings.Contains(text, `"data"`) {
			t.Errorf("text %q", text)
		}
		if !errors.Is(err, cause) {
			t.Error("the cause is lost")
		}
	}
}

// A path that is accepted is below its base, taken by its words.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{"a/b", "../a", "/a", "a/../../b", ".", "a\x00", "a//b/."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if checkSubPath(s) != nil {
			return
		}
		full := filepath.Join("/base", s)
		if full != "/base" && !strings.HasPrefix(full, "/base/") {
			t.Errorf("%q leads to %q", s, full)
		}
		if elements, err := subPathSplit(s); err != nil || filepath.Join(append([]string{"/base"}, elements...)...) != full {
			t.Errorf("%q has the elements %q (%v)", s, elements, err)
		}
	})
}
