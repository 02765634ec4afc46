package numa_test

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/nodewright/nodewright/numa"
)

// unpack parses a file of testdata: first a machine's files, one in a line, and below "----" the
// expected result. A path with {0-3,8} stands for one file for each of these numbers, {0-14/2}
// for every second one. In the content, $ is the number, and $+4 and $-1 are relative to it.
// Lines of a file are separated by "\n". Paths are relative to sys/devices/system, unless they
// begin with a slash.
func unpack(t testing.TB, text string) fstest.MapFS {
	t.Helper()
	tree := fstest.MapFS{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, content, ok := strings.Cut(line, " = ")
		if !ok {
			name, ok = strings.CutSuffix(line, " =")
		}
		if !ok {
			t.Fatalf("%q; want path = content", line)
		}
		if rooted, ok := strings.CutPrefix(name, "/"); ok {
			name = rooted
		} else {
			name = "sys/devices/system/" + name
		}
		content = strings.ReplaceAll(content, `\n`, "\n") + "\n"
		before, rest, many := strings.Cut(name, "{")
		if !many {
			tree[name] = &fstest.MapFile{Data: []byte(content)}
			continue
		}
		list, after, _ := strings.Cut(rest, "}")
		for _, n := range numbers(t, list) {
			tree[before+strconv.Itoa(n)+after] = &fstest.MapFile{Data: []byte(relative.ReplaceAllStringFunc(content, func(s string) string {
				offset, _ := strconv.Atoi(s[1:])
				return strconv.Itoa(n + offset)
			}))}
		}
	}
	return tree
}

var relative = regexp.MustCompile(`\$([+-]\d+)?`)

func numbers(t testing.TB, list string) []int {
	t.Helper()
	list, step, _ := strings.Cut(list, "/")
	every := 1
	if step != "" {
		every, _ = strconv.Atoi(step)
	}
	s, err := numa.ParseCPUs(list)
	if err != nil {
		t.Fatal(err)
	}
	var ids []int
	for i, id := range s.IDs() {
		if i%every == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// listing is a MapFS that knows its directories: a MapFS looks at all its files
// to list one, and a large machine has thousands of both.
type listing struct {
	fstest.MapFS
	dirs map[string][]fs.DirEntry
}

type entry struct {
	fs.DirEntry
	name string
}

func (e entry) Name() string { return e.name }

func listed(files fstest.MapFS) listing {
	l := listing{files, map[string][]fs.DirEntry{}}
	for name := range files {
		for dir, base := path.Split(name); base != ""; dir, base = path.Split(name) {
			name = path.Clean(dir)
			if !slices.ContainsFunc(l.dirs[name], func(e fs.DirEntry) bool { return e.Name() == base }) {
				l.dirs[name] = append(l.dirs[name], entry{name: base})
			}
			if name == "." {
				break
			}
		}
	}
	return l
}

func (l listing) ReadDir(name string) ([]fs.DirEntry, error) {
	if entries, ok := l.dirs[name]; ok {
		return entries, nil
	}
	return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
}
