package mount

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/nodewright/nodewright/internal/kernel"
)

// Entry is one mount: a line of /proc/PID/mountinfo (proc(5)).
type Entry struct {
	ID, Parent int
	// Major and Minor are the device number.
	Major, Minor uint32
	// Root is the mounted path within the file system, and Target the mount point.
	Root, Target string
	// Options are the options of the mount, such as "ro" and "nosuid".
	Options []string
	// Tags are propagation tags, such as "shared:1", "master:2".
	Tags []string
	// Type, Source and SuperOptions belong to the file system.
	Type, Source string
	SuperOptions []string
}

// Table is a list of mounts.
type Table []Entry

// At returns the mounts at path, the topmost last.
func (t Table) At(path string) []Entry {
	var out []Entry
	for _, e := range t {
		if e.Target == path {
			out = append(out, e)
		}
	}
	return out
}

// Below returns the mounts below path, not those at it.
func (t Table) Below(path string) []Entry {
	var out []Entry
	for _, e := range t {
		if IsBelow(e.Target, path) {
			out = append(out, e)
		}
	}
	return out
}

// IsBelow reports whether a clean path is below another; equal paths are not.
func IsBelow(path, dir string) bool {
	if dir == "/" {
		return len(path) > 1
	}
	return len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// ParseTable parses the format of /proc/PID/mountinfo. An error names the line.
func ParseTable(data []byte) (Table, error) { return parse(data, func([]byte) bool { return true }) }

// parseUnder parses only the lines of mounts at and below path, in the order of the table.
func parseUnder(data []byte, path string) (Table, error) {
	at := func(target string) bool { return target == path || IsBelow(target, path) }
	out, err := parse(data, func(line []byte) bool {
		for range 4 { // the fifth field is the target
			_, rest, ok := bytes.Cut(line, []byte(" "))
			if !ok {
				return true // let ParseMount return the error
			}
			line = rest
		}
		field, _, _ := bytes.Cut(line, []byte(" "))
		// Without escapes, compare without a copy.
		return bytes.Contains(field, []byte("\\")) || bytes.HasPrefix(field, []byte(path)) && at(string(field))
	})
	return slices.DeleteFunc(out, func(e Entry) bool { return !at(e.Target) }), err
}

func parse(data []byte, wanted func(line []byte) bool) (Table, error) {
	var out Table
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if line = bytes.TrimSuffix(line, []byte("\n")); len(line) == 0 || !wanted(line) {
			continue
		}
		m, err := kernel.ParseMount(string(line))
		if err != nil {
			return nil, fmt.Errorf("mount table, line %d: %w", n, err)
		}
		out = append(out, Entry(m))
	}
	return out, nil
}
