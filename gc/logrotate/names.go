package logrotate

import (
	"slices"
	"strings"
	"time"
)

// Files beside a log bear its name, the time of the rotation, and what became
// of them, as the kubelet names them.
const (
	stampLayout = "20060102-150405"
	compressed  = ".gz"
	unfinished  = ".tmp"
)

// rotated is a file that was made of a log.
type rotated struct {
	name   string
	stamp  string
	packed bool
	half   bool // left by a compression that did not end
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
	t, err := time.Parse(stampLayout, newest)
	if err != nil {
		return stamp
	}
	return t.Add(time.Second).Format(stampLayout)
}

// tidy is what is to be done about the files that were made of a log, before it
// is rotated again.
type tidy struct {
	drop   []string // the oldest first
	pack   []string // those not compressed yet
	newest string   // the stamp of the newest, or ""
}

// plan says which of the files named stay, so that with the log itself and the
// file that the rotation makes of it there are keep in all. Of what is there
// twice the compressed one stays. It does not touch files that were not made of
// the log base.
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
	path  string
	size  int64
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
