package mount

import (
	"fmt"
	"slices"
	"strings"
)

// Join adds lists of options: each once, sorted, as the kubelet hands them to
// the mount program.
func Join(lists ...[]string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(lists...))))
}

// checkOptions refuses what would make another mount of it.
func checkOptions(options []string) error {
	for _, o := range options {
		switch o {
		case "bind", "rbind", "remount", "move":
			return fmt.Errorf("mount option %q is not allowed: it says what is done, not how", o)
		}
		if o == "" || strings.ContainsAny(o, "\x00") {
			return fmt.Errorf("mount option %q is not allowed", o)
		}
	}
	return nil
}
