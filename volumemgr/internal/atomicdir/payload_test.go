package atomicdir

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

func TestCheckPath(t *testing.T) {
	long := strings.Repeat("a/", 2047) + "aa" // 4096 bytes
	for _, tc := range []struct {
		name, path string
		ok         bool
	}{
		{"a name", "foo", true},
		{"nested", "foo/bar/baz", true},
		{"dots at the end", "foo..", true},
		{"dots below", "foo/..bar", true},
		{"hidden", ".foo", true},
		{"to be cleaned", "a/./b//c", true},
		{"4096 bytes", long, true},
		{"4097 bytes", long + "a", false},
		{"255 bytes of a name", strings.Repeat("a", 255), true},
		{"256 bytes of a name", "d/" + strings.Repeat("a", 256), false},
		{"empty", "", false},
		{"no file", ".", false},
		{"no file either", "./", false},
		{"absolute", "/abs", false},
		{"ours", "..foo", false},
		{"ours when cleaned", "./..foo", false},
		{"the link", "..data", false},
		{"parent", "..", false},
		{"parent first", "../foo", false},
		{"parent within", "foo/../bar", false},
		{"parent last", "foo/..", false},
		{"NUL", "foo\x00bar", false},
		{"not UTF-8", "foo\xff", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := CheckPath(tc.path)
			if (err == nil) != tc.ok {
				t.Fatalf("error %v, want ok %t", err, tc.ok)
			}
			if err != nil && !errors.Is(err, ErrPath) {
				t.Errorf("%v is no ErrPath", err)
			}
			if err != nil && len(err.Error()) > 400 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestClean(t *testing.T) {
	files := func(names ...string) Payload {
		p := Payload{}
		for _, n := range names {
			p[n] = File{Data: []byte(n)}
		}
		return p
	}
	for _, tc := range []struct {
		name string
		in   Payload
		want []string // nil: an error
	}{
		{"nothing", nil, []string{}},
		{"as they are", files("a", "b/c"), []string{"a", "b/c"}},
		{"cleaned", files("a/./b//c"), []string{"a/b/c"}},
		{"one is bad", files("a", "../b"), nil},
		{"two are one", files("a/b", "a//b"), nil},
		{"file and directory", files("a", "a/b"), nil},
		{"file and deep directory", files("a/b/c/d", "a/b"), nil},
		{"neighbours in order", files("a", "a-b", "ab"), []string{"a", "a-b", "ab"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := tc.in.Clean()
			if (err == nil) != (tc.want != nil) {
				t.Fatalf("error %v", err)
			}
			if err != nil {
				if !errors.Is(err, ErrPath) {
					t.Errorf("%v is no ErrPath", err)
				}
				return
			}
			if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, tc.want) && len(names)+len(tc.want) > 0 {
				t.Errorf("paths %q, want %q", names, tc.want)
			}
		})
	}
}

// A path that is accepted stays below the directory, and no link of ours is in
// its way.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"foo", "foo/../bar", "..data/x", "/x", "a//b/./c", "", ".", "a/.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Payload{s: {}}.Clean()
		if err != nil {
			return
		}
		for name := range p {
			if name != path.Clean(name) || path.IsAbs(name) || strings.HasPrefix(name, "..") || name == "." || name == "" {
				t.Errorf("%q became %q", s, name)
			}
			if !strings.HasPrefix(path.Join("/volume", name), "/volume/") {
				t.Errorf("%q leads out of the volume", s)
			}
			again, err := p.Clean()
			if err != nil || len(again) != 1 {
				t.Errorf("%q is not clean: %v", name, err)
			}
		}
	})
}

// Names in a volume come from whoever may write there.
func FuzzStamp(f *testing.F) {
	for _, n := range []string{"..2020_01_01_00_00_00.7", "..data", "", "..2020_13_01_00_00_00.7", "..2020_01_01_00_00_00.", "..2020_01_01_00_00_00.7/x"} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if isStamp(name) && (strings.ContainsAny(name, "/\x00") || !strings.HasPrefix(name, "..2") && !strings.HasPrefix(name, "..1") && !strings.HasPrefix(name, "..0") && len(name) < 20 || len(name) > 255) {
			t.Fatalf("%q is that of a set", name)
		}
	})
}
