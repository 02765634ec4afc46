package mount

import (
	"slices"
	"strings"
	"testing"
)

// One text is one option, even if the mount program sees several in it.
func TestOptionsThatHideOthers(t *testing.T) {
	for o, ok := range map[string]bool{
		"ro": true, "size=4096": true, "nolock,hard": true, "context=\"a:b,c\"": true, "x-bind": true,
		"bind": false, "ro,bind": false, "bind,ro": false, "ro, rbind ,rw": false, "nolock,remount": false, "move": false, "": false, "a\x00b": false,
	} {
		if err := checkOptions([]string{"rw", o}); (err == nil) != ok {
			t.Errorf("%q: %v, want ok %t", o, err, ok)
		}
	}
}

// Options come from whoever writes a persistent volume.
func FuzzOptions(f *testing.F) {
	f.Add("ro,nolock", "hard", true)
	f.Add("", "ro,bind", false)
	f.Add("a,,b, c", "", true)
	f.Fuzz(func(t *testing.T, annotated, option string, has bool) {
		annotations := map[string]string{}
		if has {
			annotations[annotation] = annotated
		}
		list := Join(OptionsOf(annotations, []string{option}))
		if !slices.IsSorted(list) || slices.Contains(list, "") || len(slices.Compact(slices.Clone(list))) != len(list) {
			t.Fatalf("%q", list)
		}
		if checkOptions(list) != nil {
			return
		}
		for word := range strings.SplitSeq(strings.Join(list, ","), ",") {
			if word == "bind" || word == "rbind" || word == "remount" || word == "move" || strings.ContainsRune(word, 0) {
				t.Fatalf("%q is allowed in %q", word, list)
			}
		}
	})
}
