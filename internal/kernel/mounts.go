package kernel

import (
	"fmt"
	"strconv"
	"strings"
)

// Mount is one mount: a line of /proc/PID/mountinfo (proc_pid_mountinfo(5)).
type Mount struct {
	ID, Parent int
	// Major and Minor are the device number.
	Major, Minor uint32
	// Root is the path of the mounted directory within its file system. Target is the mount point.
	Root, Target string
	// Options are the options of the mount, and Tags its propagation tags, such as "shared:1".
	Options, Tags []string
	// Type, Source and SuperOptions are the file system's type, device and options.
	Type, Source string
	SuperOptions []string
}

// ParseMount parses a line such as
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//
// with any number of tags before the dash. An error contains the wrong field.
func ParseMount(line string) (Mount, error) {
	line = strings.TrimSuffix(line, "\n")
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
		return Mount{}, fmt.Errorf("%q has too few fields for a mount", clip(line))
	}
	var m Mount
	var err error
	if m.ID, err = strconv.Atoi(fields[0]); err != nil {
		return Mount{}, fmt.Errorf("mount ID %q is not a number", clip(fields[0]))
	}
	if m.Parent, err = strconv.Atoi(fields[1]); err != nil {
		return Mount{}, fmt.Errorf("parent ID %q is not a number", clip(fields[1]))
	}
	major, minor, ok := strings.Cut(fields[2], ":")
	ma, err1 := strconv.ParseUint(major, 10, 32)
	mi, err2 := strconv.ParseUint(minor, 10, 32)
	if !ok || err1 != nil || err2 != nil {
		return Mount{}, fmt.Errorf("device %q is not MAJOR:MINOR", clip(fields[2]))
	}
	m.Major, m.Minor = uint32(ma), uint32(mi)
	m.Root, m.Target = unescape(fields[3]), unescape(fields[4])
	m.Options = list(fields[5])
	for _, tag := range fields[6:dash] {
		m.Tags = append(m.Tags, unescape(tag))
	}
	m.Type, m.Source = unescape(fields[dash+1]), unescape(fields[dash+2])
	m.SuperOptions = list(fields[dash+3])
	return m, nil
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

// unescape decodes escapes of a backslash and three octal digits, which the kernel writes for space,
// tab, newline, backslash and #. It keeps other backslashes.
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

// clip shortens a text to 80 bytes and "...", for an error.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}
