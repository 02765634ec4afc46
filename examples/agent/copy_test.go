package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// archiveOf has files as they are written: a name that ends with / is a directory, -> leads a
// link.
func archiveOf(t testing.TB, entries ...string) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e, Mode: 0o4755, Typeflag: tar.TypeReg}
		content := "text"
		switch name, to, link := strings.Cut(e, "->"); {
		case link && strings.HasPrefix(to, "="):
			h.Name, h.Linkname, h.Typeflag, content = name, to[1:], tar.TypeLink, ""
		case link:
			h.Name, h.Linkname, h.Typeflag, content = name, to, tar.TypeSymlink, ""
		case strings.HasSuffix(e, "/"):
			h.Typeflag, content = tar.TypeDir, ""
		case strings.HasSuffix(e, "|"):
			h.Typeflag, content = tar.TypeFifo, ""
		}
		h.Size = int64(len(content))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// tree lists what is below a directory.
func tree(t testing.TB, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rest, err := filepath.Rel(dir, p)
		if e.IsDir() {
			rest += "/"
		}
		out = append(out, rest)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// An archive of a container is unpacked below the target and nowhere else, whatever it says.
func TestUntar(t *testing.T) {
	for name, c := range map[string]struct {
		entries []string
		before  func(dir string) error // makes what is there
		target  string
		want    []string // below the directory of the test, beside "outside/"
		err     string
	}{
		"file":                         {[]string{"./f"}, nil, "new", []string{"new"}, ""},
		"file into a directory":        {[]string{"./f"}, func(d string) error { return os.Mkdir(d+"/to", 0o755) }, "to", []string{"to/", "to/f"}, ""},
		"file into none":               {[]string{"./f"}, nil, "to/", nil, "no such directory"},
		"directory":                    {[]string{"./f/", "./f/a", "./f/sub/", "./f/sub/b"}, nil, "to", []string{"to/", "to/a", "to/sub/", "to/sub/b"}, ""},
		"without its directories":      {[]string{"./f/", "./f/x/y/z"}, nil, "to", []string{"to/", "to/x/", "to/x/y/", "to/x/y/z"}, ""},
		"nothing":                      {nil, nil, "to", nil, "sent no file"},
		"above":                        {[]string{"./f/", "./f/../../outside/x"}, nil, "to", []string{"to/"}, "not below"},
		"absolute":                     {[]string{"/outside/x"}, nil, "to", nil, "not below"},
		"beside":                       {[]string{"./f/", "./g"}, nil, "to", []string{"to/"}, "not below"},
		"beside with the same letters": {[]string{"./f/", "./fg"}, nil, "to", []string{"to/"}, "not below"},
		"below a file":                 {[]string{"./f", "./f/x"}, nil, "to", []string{"to"}, "below a file"},
		"deep":                         {[]string{"./f/", "./f/" + strings.Repeat("a/", 3000) + "b"}, nil, "to", []string{"to/"}, "name of 6005 bytes"},
		"links":                        {[]string{"./f/", "./f/l->../outside", "./f/h->=f/l", "./f/p|", "./f/a"}, nil, "to", []string{"to/", "to/a"}, ""},
		"through a link of its own":    {[]string{"./f/", "./f/l->../outside", "./f/l/x"}, nil, "to", []string{"to/", "to/l/", "to/l/x"}, ""},
		"through a link that is there": {[]string{"./f/", "./f/l/x"}, func(d string) error {
			return errorOf(os.Mkdir(d+"/to", 0o755), os.Symlink(d+"/outside", d+"/to/l"))
		}, "to", []string{"to/", "to/l"}, "is not a directory"},
		"through a link within": {[]string{"./f/", "./f/l/x"}, func(d string) error {
			return errorOf(os.MkdirAll(d+"/to/in", 0o755), os.Symlink("in", d+"/to/l"))
		}, "to", []string{"to/", "to/in/", "to/l"}, "is not a directory"},
		"onto a link that is there": {[]string{"./f/", "./f/l"}, func(d string) error {
			return errorOf(os.Mkdir(d+"/to", 0o755), os.Symlink(d+"/outside/x", d+"/to/l"))
		}, "to", []string{"to/", "to/l"}, "is not a regular file"},
		"onto a directory": {[]string{"./f/", "./f/l"}, func(d string) error { return os.MkdirAll(d+"/to/l", 0o755) }, "to", []string{"to/", "to/l/"}, "is not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "outside"), 0o755); err != nil {
				t.Fatal(err)
			}
			if c.before != nil {
				if err := c.before(dir); err != nil {
					t.Fatal(err)
				}
			}
			target := dir + "/" + c.target
			err := untar(archiveOf(t, c.entries...), "f", target, func(string, ...any) {})
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if got, want := tree(t, dir), append([]string{"outside/"}, c.want...); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
				t.Errorf("there is %q, want %q", got, want)
			}
			for _, f := range c.want {
				if fi, err := os.Lstat(filepath.Join(dir, f)); err == nil && fi.Mode().IsRegular() && fi.Mode()&^0o755 != 0 {
					t.Errorf("%s has the mode %v", f, fi.Mode())
				}
			}
		})
	}
}

func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Whatever an archive has, nothing is written outside of the target.
func FuzzUntar(f *testing.F) {
	for _, e := range []string{"./f\n./f/a", "./f/\n./f/../x", "/x", "./f/\n./f/l->/tmp\n./f/l/x", "..", "./f//a"} {
		f.Add(e)
	}
	f.Fuzz(func(t *testing.T, entries string) {
		for e := range strings.SplitSeq(entries, "\n") {
			if name, _, _ := strings.Cut(e, "->"); name == "" || strings.ContainsAny(e, "\x00") {
				return
			}
		}
		dir := t.TempDir()
		_ = untar(archiveOf(t, strings.Split(entries, "\n")...), "f", filepath.Join(dir, "to"), func(string, ...any) {})
		for _, p := range tree(t, dir) {
			if p != "to" && !strings.HasPrefix(p, "to/") {
				t.Errorf("%q is there", p)
			}
		}
	})
}

// What is packed is unpacked as it was, without its links.
func TestPackAndUntar(t *testing.T) {
	dir := files(t, map[string]string{"src/a": "one", "src/sub/b": "two"})
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "src", "l")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := pack(&b, filepath.Join(dir, "src"), "f"); err != nil {
		t.Fatal(err)
	}
	var said []string
	to := filepath.Join(dir, "to")
	if err := untar(&b, "f", to, func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, to); !slices.Equal(got, []string{"a", "sub/", "sub/b"}) || !slices.Equal(said, []string{"left out: f/l, a link to /etc/passwd"}) {
		t.Errorf("there is %q; said %q", got, said)
	}
	if text, err := os.ReadFile(filepath.Join(to, "sub", "b")); string(text) != "two" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

func TestCopyArgumentsWrong(t *testing.T) {
	for line, want := range map[string]string{
		"cp a":              "cp needs a source and a target, and one of them must be NAME:PATH",
		"cp a b":            `cp "a" "b": want one of them to be NAME:PATH`,
		"cp web:/a web:/b":  `cp "web:/a" "web:/b": want one of them to be NAME:PATH`,
		"cp web: b":         `"web:": want NAME:PATH`,
		"cp ./we:b :/a":     `":/a": want NAME:PATH`,
		"cp /nosuch web:/a": "lstat /nosuch: no such file or directory",
		"port-forward web":  "which ports of web? Give PORT or LOCAL:PORT",
		"port-forward":      "which pod? Give one name", "port-forward web x": `"x": want PORT, LOCAL:PORT, or :PORT for any local port`,
		"attach": "which pod? Give one name",
	} {
		if stdout, stderr, code := invoke(t, strings.Fields(line)...); code != 1 || stdout != "" || stderr != "agent: "+want+"\n" {
			t.Errorf("agent %s: exit %d, %q, %q; want %q", line, code, stdout, stderr, want)
		}
	}
}
