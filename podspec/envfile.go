package podspec

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxEnvFile limits the size of a file of variables, in bytes (KEP-3721).
const maxEnvFile = 64 << 10

// parseEnvFile parses a file of variables (KEP-3721): lines of the form
//
//	KEY='value'
//
// White space around a line is ignored, and so are blank lines and lines that begin with #. A
// comment may follow the value after a blank. As in a shell, there is no blank before or after
// the equals sign; a blank after it makes the value empty. The text between the quotes is
// literal and may contain line ends, but no quote. A mistake anywhere makes the whole file
// invalid. Errors show only the names of quoted values, since the rest may be secret.
func parseEnvFile(data []byte) (map[string]string, error) {
	// ReadFile may have its own limit; this limit is part of the format.
	if len(data) > maxEnvFile {
		return nil, fmt.Errorf("has %d bytes; want at most %d", len(data), maxEnvFile)
	}
	content := string(data)
	const blanks = " \t\r"
	vars, at := map[string]string{}, map[string]int{}
	// A value may span several lines, so the content cannot be split into lines first.
	for line, rest := 1, content; rest != ""; {
		here := line
		fail := func(format string, args ...any) (map[string]string, error) {
			return nil, fmt.Errorf("line %d: %s", here, fmt.Sprintf(format, args...))
		}
		text, after, _ := strings.Cut(rest, "\n")
		text = strings.Trim(text, blanks)
		if text == "" || text[0] == '#' {
			rest, line = after, line+1
			continue
		}
		name, _, found := strings.Cut(text, "=")
		if !found {
			return fail("want KEY='value', but there is no =")
		}
		// A shell would run the name as a command.
		if strings.TrimRight(name, blanks) != name {
			return fail("there is a blank before the =")
		}
		if msgs := validation.IsRelaxedEnvVarName(name); len(msgs) > 0 {
			return fail("the name before the = is invalid: %s", msgs[0])
		}
		rest = rest[strings.IndexByte(rest, '=')+1:]
		value, tail := "", ""
		switch {
		case strings.HasPrefix(rest, "'"):
			var closed bool
			if value, after, closed = strings.Cut(rest[1:], "'"); !closed {
				return fail("the quote of the value of %s is not closed", name)
			}
			// After the value, its last line may contain only a comment.
			tail, after, _ = strings.Cut(after, "\n")
		case emptyValue(rest, blanks):
		default:
			return fail("the value is not in single quotes")
		}
		switch {
		case strings.Trim(tail, blanks) != "" && !comment(tail, blanks):
			return fail("there is more after the value of %s", name)
		case strings.ContainsRune(value, 0):
			return fail("the value of %s has a zero byte, which no variable can have", name)
		case !utf8.ValidString(value):
			return fail("the value of %s is not UTF-8", name)
		// Rejected, since readers differ in which of the two they use.
		case at[name] > 0:
			return fail("%s is set in line %d already", name, at[name])
		}
		vars[name], at[name] = value, here
		rest, line = after, line+strings.Count(value, "\n")+1
	}
	return vars, nil
}

// emptyValue reports whether a variable has the empty value. rest is the text after its equals
// sign. It has to begin with a space or a tab; after the blanks, the line has to end or go on with
// a single quote or a #. A single quote after blanks does not begin a value.
func emptyValue(rest, blanks string) bool {
	line, _, _ := strings.Cut(rest, "\n")
	after := strings.Trim(line, blanks)
	return line != "" && strings.ContainsRune(" \t", rune(line[0])) && (after == "" || after[0] == '\'' || after[0] == '#')
}

// comment reports whether tail, the rest of a line after a value, is white space and a comment.
func comment(tail, blanks string) bool {
	text := strings.TrimLeft(tail, blanks)
	return len(text) < len(tail) && strings.HasPrefix(text, "#")
}

// envFiles reads each file once, so that all variables of a container come from the same state
// of the file.
type envFiles struct {
	// volumes are the paths of volumes on the node, by name.
	volumes map[string]string
	open    func(dir, path string) ([]byte, error)
	read    map[string]envFile
	size    int // bytes read so far
}

// envFile has the variables of a file, or the error of reading it.
type envFile struct {
	vars map[string]string
	err  error
}

// file returns the variables of a file, or the error of reading it. Each file is read once.
func (f *envFiles) file(dir, path string) envFile {
	key := filepath.Join(dir, path)
	if have, ok := f.read[key]; ok {
		return have
	}
	var out envFile
	// Each variable may name a different file of up to 64 KiB, so their sum is limited.
	if f.size > maxStrings {
		out.err = fmt.Errorf("was not read: the env files of a container have more than %d bytes together", maxStrings)
		return out
	}
	content, err := f.open(dir, path)
	f.size += len(content)
	if err == nil {
		out.vars, err = parseEnvFile(content)
	}
	out.err = err
	if f.read == nil {
		f.read = map[string]envFile{}
	}
	f.read[key] = out
	return out
}

// value returns the value of a key in a file. ok is false if the value is missing and optional,
// or if a problem was recorded.
func (f *envFiles) value(ref *v1.FileKeySelector, path *field.Path, col *collector) (value string, ok bool) {
	// All mistakes of the reference are reported before the file is read.
	before := len(col.problems)
	dir, there := f.volumes[ref.VolumeName]
	if !there {
		col.add(path.Child("volumeName"), "volume %q is not ready", ref.VolumeName)
	}
	if ref.Path == "" || filepath.IsAbs(ref.Path) || strings.Contains("/"+ref.Path+"/", "/../") {
		col.add(path.Child("path"), "%q must be a relative path without '..'", ref.Path)
	}
	if msgs := validation.IsRelaxedEnvVarName(ref.Key); len(msgs) > 0 {
		col.add(path.Child("key"), "%q: %s", ref.Key, msgs[0])
	}
	if f.open == nil {
		col.add(path, "no reader of files in volumes is configured")
	}
	if len(col.problems) > before {
		return "", false
	}
	file := f.file(dir, ref.Path)
	switch value, ok = file.vars[ref.Key]; {
	case ok:
		return value, true
	// optional covers a missing file or key, but not an invalid file.
	case errors.Is(file.err, fs.ErrNotExist):
		if !isOptional(ref.Optional) {
			col.add(path.Child("path"), "file %q not found in volume %q", ref.Path, ref.VolumeName)
		}
	case file.err != nil:
		col.add(path.Child("path"), "file %q of volume %q: %v", ref.Path, ref.VolumeName, file.err)
	case !isOptional(ref.Optional):
		col.add(path.Child("key"), "couldn't find key %s in file %q of volume %q", ref.Key, ref.Path, ref.VolumeName)
	}
	return "", false
}
