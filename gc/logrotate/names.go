package logrotate

import (
	"slices"
	"strings"
	"time"
)

// The names of rotated files, and the decisions that depend on names and sizes only. The format
// is the kubelet's: log collectors know it, and the kubelet's files are found too.

// Names of rotated files: the name of the log, the time of the rotation, and a suffix (the
// kubelet's).
const (
	// stampLayout is the layout of a stamp, in local time. Sorted as text, stamps are in order of
	// time.
	stampLayout = "20060102-150405"
	compressed  = ".gz"
	unfinished  = ".tmp"
)

// rotated is a rotated file of a log.
type rotated struct {
	name   string
	stamp  string // time of the rotation in the format stampLayout
	packed bool   // compressed
	half   bool   // the file is the result of an unfinished compression
}

// parseRotated parses the name of a rotated file of the log base. ok is false for other files.
func parseRotated(base, name string) (r rotated, ok bool) {
	rest, ok := strings.CutPrefix(name, base+".")
	if !ok {
		return r, false
	}
	r.name = name
	rest, r.half = strings.CutSuffix(rest, unfinished)
	r.stamp, r.packed = strings.CutSuffix(rest, compressed)
	// Another file may have the same prefix. The length is checked, since time.Parse accepts a
	// fraction of a second after the layout.
	if _, err := time.Parse(stampLayout, r.stamp); err != nil || len(r.stamp) != len(stampLayout) {
		return rotated{}, false
	}
	return r, true
}

// nextStamp returns the stamp of a rotation at the time now. It sorts after newest, the stamp of
// the last rotation, even if the clock was set back, so that no name is used twice.
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

// tidy is the plan for the rotated files of a log before its next rotation.
type tidy struct {
	drop []string // the oldest first
	// pack has the files to compress. It does not have the file that this rotation creates, which is
	// compressed at the next rotation, as in the kubelet: the container writes to it until the
	// runtime has reopened the log.
	pack   []string // files to compress
	newest string   // the stamp of the newest rotated file, or ""
}

// plan decides which rotated files of the log base are removed, so that keep files are left
// after the rotation, including the log itself. If a file exists compressed and uncompressed,
// the compressed one stays: it is complete. Other files in names are ignored.
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
	// keep includes the file to which the log is renamed, and the new log.
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

// podFile is one log file of a pod.
type podFile struct {
	// path is absolute, in the form of filepath.Join.
	path  string
	size  int64  // size in bytes
	stamp string // "" for a log that was not rotated
}

// trim returns the rotated files to remove, oldest first, so that a pod's logs fit into a budget
// in bytes, and the remaining bytes. Current logs are never removed.
func trim(files []podFile, budget int64) (drop []string, left int64) {
	var old []podFile
	for _, f := range files {
		left += f.size
		if f.stamp != "" {
			old = append(old, f)
		}
	}
	// Oldest first over all containers; equal stamps by path, for a deterministic result.
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
