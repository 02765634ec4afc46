package mount

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
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
	return parse(data, func(line []byte) bool {
		for range 4 { // the fifth field is the target
			_, rest, ok := bytes.Cut(line, []byte(" "))
			if !ok {
				return true // let parseEntry return the error
			}
			line = rest
		}
		field, _, _ := bytes.Cut(line, []byte(" "))
		if !bytes.Contains(field, []byte("\\")) { // no escapes: compare without a copy
			return string(field) == path || bytes.HasPrefix(field, []byte(path)) && IsBelow(string(field), path)
		}
		target := unescape(string(field))
		return target == path || IsBelow(target, path)
	})
}

func parse(data []byte, wanted func(line []byte) bool) (Table, error) {
	var out Table
	n := 0
	for line := range bytes.Lines(data) {
		n++
		line = bytes.TrimSuffix(line, []byte("\n"))
		if len(line) == 0 || !wanted(line) {
			continue
		}
		e, err := parseEntry(string(line))
		if err != nil {
			return nil, fmt.Errorf("mount table, line %d: %w", n, err)
		}
		out = append(out, e)
	}
	return out, nil
}

// parseEntry reads a line such as
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//
// with any number of tags before the dash.
func parseEntry(line string) (Entry, error) {
	fields := strings.Split(line, " ")
	dash := -1
	for i := 6; i < len(fields); i++ {
		if fields[i] == "-" {
			dash = i
			break
		}
	}
	// Three fields follow the dash; the second, the source, may be empty.
	if dash < 0 || len(fields) != dash+4 {
		return Entry{}, fmt.Errorf("%q lacks fields of a mount", clip(line))
	}
	var e Entry
	var err error
	if e.ID, err = strconv.Atoi(fields[0]); err != nil {
		return Entry{}, fmt.Errorf("mount ID %q is not a number", clip(fields[0]))
	}
	if e.Parent, err = strconv.Atoi(fields[1]); err != nil {
		return Entry{}, fmt.Errorf("parent ID %q is not a number", clip(fields[1]))
	}
	major, minor, ok := strings.Cut(fields[2], ":")
	ma, err1 := strconv.ParseUint(major, 10, 32)
	mi, err2 := strconv.ParseUint(minor, 10, 32)
	if !ok || err1 != nil || err2 != nil {
		return Entry{}, fmt.Errorf("device %q is not MAJOR:MINOR", clip(fields[2]))
	}
	e.Major, e.Minor = uint32(ma), uint32(mi)
	e.Root, e.Target = unescape(fields[3]), unescape(fields[4])
	e.Options = list(fields[5])
	for _, tag := range fields[6:dash] {
		e.Tags = append(e.Tags, unescape(tag))
	}
	e.Type, e.Source = unescape(fields[dash+1]), unescape(fields[dash+2])
	e.SuperOptions = list(fields[dash+3])
	return e, nil
}

func list(field string) []string {
	if field == "" {
		return nil
	}
	out := strings.Split(field, ",")
	for i := range out {
		out[i] = unescape(out[i])
	}
	return out
}

// unescape decodes the kernel's escapes of space, tab, newline, backslash and #: a backslash and
// three octal digits. Other escapes are kept.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out = append(out, byte(v))
				i += 3
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

// clip shortens a text for an error.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}
