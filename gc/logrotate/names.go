package logrotate

import (
	"slices"
	"strings"
	"time"
)

// The names of rotated files, and the decisions that depend on names and sizes alone. The
// format is the kubelet's: log collectors know it, and files that a kubelet left on the node
// are found by it.

// Files beside a log bear its name, the time of the rotation, and what became
// of them, as the kubelet names them.
const (
	// stampLayout has no time zone: it is the node's. Stamps are ordered as texts.
	stampLayout = "20060102-150405"
	compressed  = ".gz"
	unfinished  = ".tmp"
)

// rotated is a file that was made of a log.
type rotated struct {
	name   string
	stamp  string // in stampLayout
	packed bool   // compressed
	half   bool   // left by a compression that did not end
}

// parseRotated reads the name of a file beside the log base. ok is false if it
// was not made of that log.
func parseRotated(base, name string) (r rotated, ok bool) {
	rest, ok := strings.CutPrefix(name, base+".")
	if !ok {
		return r, false
	}
	r.name = name
	rest, r.half = strings.CutSuffix(rest, unfinished)
	r.stamp, r.packed = strings.CutSuffix(rest, compressed)
	// A file of somebody else may begin like the log. time.Parse takes a fraction of a
	// second behind the layout, hence the length.
	if _, err := time.Parse(stampLayout, r.stamp); err != nil || len(r.stamp) != len(stampLayout) {
		return rotated{}, false
	}
	return r, true
}

// nextStamp is the time for the name of a rotation now. It sorts after newest,
// the last one's, whatever became of the clock since, and so never names a file
// that is there.
func nextStamp(newest string, now time.Time) string {
	stamp := now.Format(stampLayout)
	if stamp > newest {
		return stamp
	}
	// Two rotations within a second, a clock that was set back, or the end of summer time.
	t, err := time.Parse(stampLayout, newest)
	if err != nil {
		return stamp
	}
	return t.Add(time.Second).Format(stampLayout)
}

// tidy is what is to be done about the files that were made of a log, before it
// is rotated again.
type tidy struct {
	drop []string // the oldest first
	// The file that the rotation itself makes is compressed at the next one, as the kubelet
	// does it: its container writes to it until the runtime has reopened the log.
	pack   []string // those not compressed yet
	newest string   // the stamp of the newest, or ""
}

// plan returns which of the files named stay, so that with the log itself and the file that the
// rotation makes of it there are keep in all. Of what is there twice the compressed one
// stays: it got its name only when it was whole. It does not touch files that were not made
// of the log base.
func plan(base string, names []string, keep int) (t tidy) {
	var there []rotated
	packed := map[string]bool{}
	for _, n := range names {
		r, ok := parseRotated(base, n)
		switch {
		case !ok:
		case r.half:
			t.drop = append(t.drop, n)
		default:
			there = append(there, r)
			packed[r.stamp] = packed[r.stamp] || r.packed
		}
	}
	there = slices.DeleteFunc(there, func(r rotated) bool {
		twice := !r.packed && packed[r.stamp]
		if twice {
			t.drop = append(t.drop, r.name)
		}
		return twice
	})
	slices.SortFunc(there, func(a, b rotated) int { return strings.Compare(a.stamp, b.stamp) })
	if n := len(there); n > 0 {
		t.newest = there[n-1].stamp
	}
	// Two of keep are the log and the file that it becomes.
	surplus := max(0, len(there)-max(0, keep-2))
	for _, r := range there[:surplus] {
		t.drop = append(t.drop, r.name)
	}
	for _, r := range there[surplus:] {
		if !r.packed {
			t.pack = append(t.pack, r.name)
		}
	}
	return t
}

// podFile is one file of a pod's logs.
type podFile struct {
	// path is absolute, in the form of filepath.Join.
	path  string
	size  int64  // in bytes
	stamp string // "" of a log that was not rotated
}

// trim returns the rotated files that have to go for a pod's logs to fit into a
// budget in bytes, the oldest first, and what is left then. Logs themselves stay:
// containers have them open, or had them last.
func trim(files []podFile, budget int64) (drop []string, left int64) {
	var old []podFile
	for _, f := range files {
		left += f.size
		if f.stamp != "" {
			old = append(old, f)
		}
	}
	// Stamps are those of one clock, so the oldest go first whichever container they are of.
	// Equal ones go by path: the result must not depend on the order of a directory.
	slices.SortFunc(old, func(a, b podFile) int {
		if c := strings.Compare(a.stamp, b.stamp); c != 0 {
			return c
		}
		return strings.Compare(a.path, b.path)
	})
	for _, f := range old {
		if left <= budget {
			break
		}
		drop = append(drop, f.path)
		left -= f.size
	}
	return drop, left
}
