package mount

import (
	"fmt"
	"slices"
	"strings"
)

// Join merges lists of options into one, sorted and without duplicates, as the kubelet passes
// them to the mount program.
func Join(lists ...[]string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(lists...))))
}

// checkOptions rejects options that would change the kind of mount.
func checkOptions(options []string) error {
	for _, o := range options {
		for word := range strings.SplitSeq(o, ",") { // the mount program splits them too
			switch strings.TrimSpace(word) {
			case "bind", "rbind", "remount", "move":
				return fmt.Errorf("mount option %q is not allowed: it would change the kind of mount", o)
			}
		}
		if o == "" || strings.ContainsAny(o, "\x00") {
			return fmt.Errorf("mount option %q is not allowed", o)
		}
	}
	return nil
}

// annotation is the older place of a persistent volume's mount options. As in the kubelet, it
// takes precedence over the field.
const annotation = "volume.beta.kubernetes.io/mount-options"

// OptionsOf returns a persistent volume's mount options in a new list. They are those of the
// volume's annotation or, if it has none, those of its field.
func OptionsOf(annotations map[string]string, options []string) []string {
	if text, ok := annotations[annotation]; ok {
		options = strings.Split(text, ",")
	}
	var out []string
	for _, o := range options {
		if o = strings.TrimSpace(o); o != "" {
			out = append(out, o)
		}
	}
	return out
}
