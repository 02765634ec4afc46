//go:build linux

package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unpackTo unpacks an archive into a new directory. Beside it is a file that no
// archive may touch.
func unpackTo(t testing.TB, r io.Reader, lim unpackLimits) (root string, out *unpacked, err error) {
	t.Helper()
	needRoot(t)
	top := t.TempDir()
	root = filepath.Join(top, "tree")
	must(t, os.Mkdir(root, 0o755))
	must(t, os.WriteFile(filepath.Join(top, "secret"), []byte("secret"), 0o600))
	if lim.bytes == 0 {
		lim.bytes = 1 << 30
	}
	if lim.entries == 0 {
		lim.entries = 1000
	}
	lim.space = func() error { return nil }
	out, err = unpack(context.Background(), root, filepath.Join(top, "times"), r, lim)
	if b, rerr := os.ReadFile(filepath.Join(top, "secret")); rerr != nil || string(b) != "secret" {
		t.Errorf("the file outside is %q, %v", b, rerr)
	}
	names, rerr := os.ReadDir(top)
	must(t, rerr)
	if len(names) != 2 {
		t.Errorf("there are %v beside the tree", names)
	}
	return root, out, err
}

// look lists a tree: what each name is.
func look(t testing.TB, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		switch {
		case isWhiteout(&st):
			out[rel] = "whiteout"
		case d.IsDir():
			out[rel] = "dir"
			if b := make([]byte, 9); true {
				if n, err := unix.Lgetxattr(path, opaqueXattr(), b); err == nil && string(b[:n]) == "y" {
					out[rel] = "opaque"
				}
			}
		case d.Type()&os.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			out[rel] = "-> " + to
		case d.Type().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			out[rel] = string(b)
		default:
			out[rel] = d.Type().String()
		}
		return nil
	}))
	delete(out, ".")
	return out
}

// A layer that wants out of its directory, or to be what it is not, is refused,
// and nothing outside is touched.
func TestHostileLayersAreRefused(t *testing.T) {
	for name, entries := range map[string][]entry{
		"parent":                        {file("../secret", "x")},
		"parent inside":                 {dir("a"), file("a/../../secret", "x")},
		"parent of the root":            {file("/../secret", "x")},
		"empty name":                    {file("", "x")},
		"file at the root":              {file(".", "x")},
		"hard link to what is outside":  {hardlink("a", "../secret")},
		"hard link to an absolute name": {hardlink("a", "/etc/shadow")},
		"hard link through a link":      {symlink("a", ".."), hardlink("b", "a/secret")},
		"hard link to a directory":      {dir("a"), hardlink("b", "a")},
		"whiteout of the directory":     {file(".wh..", "")},
		"whiteout of its parent":        {file(".wh...", "")},
		"whiteout of nothing":           {file(".wh.", "")},
		"below a whiteout":              {file(".wh.a/b", "")},
		"below a file":                  {file("a", ""), file("a/b", "")},
		"below a link to a file":        {file("f", ""), symlink("a", "f"), file("a/b", "")},
		"below links in a circle":       {symlink("a", "b"), symlink("b", "a"), file("a/c", "")},
		"hard link through a circle":    {symlink("a", "a"), hardlink("b", "a/c")},
		"long name":                     {file(strings.Repeat("a", 256), "")},
		"deep":                          {file(strings.Repeat("a/", maxDepth)+"b", "")},
		"unknown type":                  {{Header: tar.Header{Name: "a", Typeflag: 'Z'}}},
		"device of a large number":      {{Header: tar.Header{Name: "a", Typeflag: tar.TypeChar, Devmajor: 1 << 13}}},
	} {
		t.Run(name, func(t *testing.T) {
			root, out, err := unpackTo(t, bytes.NewReader(archive(t, entries...)), unpackLimits{})
			if err == nil && out.alone() {
				t.Errorf("unpacked: %v", look(t, root))
			}
			if err == nil { // what it wants may be below: it is not
				err = complete(root, out, nil, unpackLimits{bytes: 1, space: func() error { return nil }})
			}
			if err == nil {
				t.Errorf("unpacked: %v", look(t, root))
			}
		})
	}
}

// Layers that are larger than allowed end at the limit.
func TestLargeLayersEndAtTheLimit(t *testing.T) {
	many := make([]entry, 20)
	for i := range many {
		many[i] = file(fmt.Sprint("f", i), "")
	}
	var implied []entry
	for i := range 1000 {
		implied = append(implied, file(strings.Repeat(fmt.Sprintf("%05d%0240d/", i, 0), 12)+"f", ""))
	}
	for name, c := range map[string]struct {
		entries []entry
		lim     unpackLimits
	}{
		"entries":             {many, unpackLimits{entries: 19}},
		"bytes of a file":     {[]entry{file("a", strings.Repeat("x", 100))}, unpackLimits{bytes: 99}},
		"bytes of all files":  {[]entry{file("a", strings.Repeat("x", 60)), file("b", strings.Repeat("x", 60))}, unpackLimits{bytes: 100}},
		"one name many times": {[]entry{file("a", strings.Repeat("x", 60)), file("a", strings.Repeat("x", 60))}, unpackLimits{bytes: 100}},
		"names in the layer":  {implied, unpackLimits{entries: 10000}},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "names in the layer" {
				t.Skip("makes many directories; left out with -short")
			}
			if _, _, err := unpackTo(t, bytes.NewReader(archive(t, c.entries...)), c.lim); !errors.Is(err, errLimit) {
				t.Errorf("%v, want errLimit", err)
			}
		})
	}
}

// A sparse file of an archive of a few bytes can have as many as it says.
func TestSparseBombIsRefused(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: "GNUSparseFile.0/a", Typeflag: tar.TypeReg, Format: tar.FormatPAX, Size: 6, PAXRecords: map[string]string{"X.Y": "z"}}))
	_, err := w.Write([]byte("0\n0\n0\n"))
	must(t, err)
	must(t, w.Close())
	// The writer does not write sparse files: put the records of one in place.
	raw := bytes.Replace(b.Bytes(), []byte("9 X.Y=z\n"), []byte("9 X.Y=z\n"), 1)
	if _, _, err := unpackTo(t, bytes.NewReader(raw), unpackLimits{bytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	old := make([]byte, 512+512)
	copy(old, "a")
	copy(old[100:], "0000644\x00")
	copy(old[108:], "0000000\x00")
	copy(old[116:], "0000000\x00")
	copy(old[124:], "00000000001\x00") // stored
	copy(old[136:], "00000000000\x00")
	old[156] = 'S'
	copy(old[257:], "ustar  \x00")
	copy(old[386:], "77777777776\x00")    // where the one stored byte is
	copy(old[386+12:], "00000000001\x00") //
	copy(old[483:], "77777777777\x00")    // the size that it has
	sum := 8 * 32                         //
	for i, c := range old[:512] {         //
		if i < 148 || i >= 156 {
			sum += int(c)
		}
	}
	copy(old[148:], fmt.Sprintf("%06o\x00 ", sum))
	raw = append(old, make([]byte, 1024)...)
	if _, _, err := unpackTo(t, bytes.NewReader(raw), unpackLimits{bytes: 1 << 20}); !errors.Is(err, errLimit) {
		t.Errorf("%v, want errLimit", err)
	}
}

// What a layer says in whatever order becomes what overlayfs understands.
func TestUnpack(t *testing.T) {
	for name, c := range map[string]struct {
		entries []entry
		want    map[string]string
		depends bool // on the layers below
	}{
		"plain": {[]entry{dir("."), dir("a"), file("./a/f", "x"), symlink("a/l", "/etc/passwd"), hardlink("h", "a/f")},
			map[string]string{"a": "dir", "a/f": "x", "a/l": "-> /etc/passwd", "h": "x"}, false},
		"empty":                               {nil, map[string]string{}, false},
		"whiteout":                            {[]entry{file(".wh.f", "")}, map[string]string{"f": "whiteout"}, false},
		"whiteout below":                      {[]entry{dir("a"), file("a/.wh.f", "")}, map[string]string{"a": "dir", "a/f": "whiteout"}, false},
		"whiteout, then file":                 {[]entry{file(".wh.f", ""), file("f", "x")}, map[string]string{"f": "x"}, false},
		"file, then whiteout":                 {[]entry{file("f", "x"), file(".wh.f", "")}, map[string]string{"f": "x"}, false},
		"whiteout, then directory":            {[]entry{file(".wh.d", ""), dir("d"), file("d/f", "x")}, map[string]string{"d": "opaque", "d/f": "x"}, false},
		"directory, then whiteout":            {[]entry{dir("d"), file("d/f", "x"), file(".wh.d", "")}, map[string]string{"d": "opaque", "d/f": "x"}, false},
		"whiteout, then implied directory":    {[]entry{file(".wh.d", ""), file("d/f", "x")}, map[string]string{"d": "opaque", "d/f": "x"}, false},
		"opaque first":                        {[]entry{dir("d"), file("d/.wh..wh..opq", ""), file("d/f", "x")}, map[string]string{"d": "opaque", "d/f": "x"}, false},
		"opaque last":                         {[]entry{dir("d"), file("d/f", "x"), file("d/.wh..wh..opq", "")}, map[string]string{"d": "opaque", "d/f": "x"}, false},
		"opaque before its directory":         {[]entry{file("d/.wh..wh..opq", ""), dir("d"), file("d/f", "x")}, map[string]string{"d": "opaque", "d/f": "x"}, false},
		"bookkeeping of aufs":                 {[]entry{file(".wh..wh.plnk/a", "x"), file(".wh..wh.aufs", "x")}, map[string]string{}, false},
		"directory replaced by file":          {[]entry{dir("d"), file("d/f", "x"), file("d", "y")}, map[string]string{"d": "y"}, false},
		"and back":                            {[]entry{dir("d"), file("d/f", "x"), file("d", "y"), dir("d"), file("d/g", "z")}, map[string]string{"d": "dir", "d/g": "z"}, false},
		"link replaced by directory":          {[]entry{symlink("d", "/etc"), dir("d"), file("d/passwd", "x")}, map[string]string{"d": "dir", "d/passwd": "x"}, false},
		"file twice":                          {[]entry{file("f", "x"), file("f", "y")}, map[string]string{"f": "y"}, false},
		"file through its own hard link":      {[]entry{file("f", "x"), hardlink("h", "f"), file("f", "y")}, map[string]string{"f": "y", "h": "x"}, false},
		"hard link before its target":         {[]entry{hardlink("h", "f"), file("f", "x")}, map[string]string{"f": "x", "h": "x"}, false},
		"hard link to itself":                 {[]entry{file("f", "x"), hardlink("f", "f")}, map[string]string{"f": "x"}, false},
		"hard link to a link, not through":    {[]entry{symlink("l", "/etc/shadow"), hardlink("h", "l")}, map[string]string{"l": "-> /etc/shadow", "h": "-> /etc/shadow"}, false},
		"implied directories":                 {[]entry{file("a/b/f", "x")}, map[string]string{"a": "dir", "a/b": "dir", "a/b/f": "x"}, true},
		"implied, then said":                  {[]entry{file("a/b/f", "x"), dir("a"), dir("a/b")}, map[string]string{"a": "dir", "a/b": "dir", "a/b/f": "x"}, false},
		"hard link to what is below":          {[]entry{hardlink("h", "f")}, map[string]string{}, true},
		"hard link that a file takes":         {[]entry{hardlink("h", "f"), file("h", "x")}, map[string]string{"h": "x"}, false},
		"pipe":                                {[]entry{{Header: tar.Header{Name: "p", Typeflag: tar.TypeFifo, Mode: 0o600}}}, map[string]string{"p": "p---------"}, false},
		"device":                              {[]entry{{Header: tar.Header{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}}}, map[string]string{"d": "Dc---------"}, false},
		"whiteout made by a device of 0 to 0": {[]entry{{Header: tar.Header{Name: "d", Typeflag: tar.TypeChar}}}, map[string]string{"d": "whiteout"}, false},
		"absolute names":                      {[]entry{dir("/a"), file("/a/f", "x"), file("//a/.wh.g", ""), hardlink("/h", "/a/f")}, map[string]string{"a": "dir", "a/f": "x", "a/g": "whiteout", "h": "x"}, false},
		"parents in names":                    {[]entry{dir("a"), dir("a/b"), file("a/b/../f", "x"), hardlink("a/../h", "b/../a/f"), file("a/../.wh.g", "")}, map[string]string{"a": "dir", "a/b": "dir", "a/f": "x", "g": "whiteout", "h": "x"}, false},
		"file through a link":                 {[]entry{dir("usr"), dir("usr/lib"), symlink("lib", "usr/lib"), file("lib/f", "x"), hardlink("h", "lib/f"), file("lib/.wh.g", ""), file("lib/.wh..wh..opq", "")}, map[string]string{"usr": "dir", "usr/lib": "opaque", "lib": "-> usr/lib", "usr/lib/f": "x", "usr/lib/g": "whiteout", "h": "x"}, false},
		"link out of the root":                {[]entry{dir("d"), symlink("d/a", "../../.."), file("d/a/secret", "x")}, map[string]string{"d": "dir", "d/a": "-> ../../..", "secret": "x"}, false},
		"absolute link":                       {[]entry{dir("etc"), symlink("a", "/etc"), file("a/f", "x")}, map[string]string{"etc": "dir", "a": "-> /etc", "etc/f": "x"}, false},
		"links behind links":                  {[]entry{dir("c"), symlink("b", "./c/"), symlink("c/up", ".."), symlink("a", "c/up/b"), dir("a/d"), file("a/d/f", "x")}, map[string]string{"a": "-> c/up/b", "b": "-> ./c/", "c": "dir", "c/up": "-> ..", "c/d": "dir", "c/d/f": "x"}, false},
		"link to what is below":               {[]entry{symlink("a", "etc/b"), file("a/f", "x")}, map[string]string{"a": "-> etc/b", "etc": "dir", "etc/b": "dir", "etc/b/f": "x"}, true},
		"hard link to itself through a link":  {[]entry{dir("d"), symlink("l", "d"), file("d/f", "x"), hardlink("l/f", "d/f"), hardlink("d/f", "l/f")}, map[string]string{"d": "dir", "l": "-> d", "d/f": "x"}, false},
		"hard link before its target's link":  {[]entry{hardlink("h", "l/f"), dir("d"), file("d/f", "x"), symlink("l", "d")}, map[string]string{"d": "dir", "l": "-> d", "d/f": "x", "h": "x"}, false},
		"root called /":                       {[]entry{{Header: tar.Header{Name: "/", Typeflag: tar.TypeDir, Mode: 0o700}}}, map[string]string{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			root, out, err := unpackTo(t, bytes.NewReader(archive(t, c.entries...)), unpackLimits{})
			must(t, err)
			if got := look(t, root); !equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
			if out.alone() == c.depends {
				t.Errorf("depends on the layers below: %t (%v, %v)", c.depends, out.implied, out.links)
			}
		})
	}
}

func equal(a, b map[string]string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(sortedKeys(a), func(k string) bool { return a[k] != b[k] })
}

// Following links costs no more than its budget, however many entries go through them.
func TestUnpackBoundsLinks(t *testing.T) {
	far := strings.Repeat("x/../", maxPath/5-1)
	entries := []entry{dir("d"), symlink("l0", far+"d")}
	for i := range 39 {
		entries = append(entries, symlink(fmt.Sprint("l", i+1), far+fmt.Sprint("l", i)))
	}
	for i := range 100 {
		entries = append(entries, file(fmt.Sprint("l39/", i), ""))
	}
	_, _, err := unpackTo(t, bytes.NewReader(archive(t, entries...)), unpackLimits{})
	if !errors.Is(err, errLimit) {
		t.Errorf("%v, want errLimit", err)
	}
}

// Builders write the same files in different ways: each of these is pulled as it is meant.
// What each writes was read in its source.
func TestUnpackLayersOfBuilders(t *testing.T) {
	special := func(e entry, mode int64, records map[string]string) entry {
		e.Mode, e.PAXRecords = mode, records
		return e
	}
	for name, c := range map[string]struct {
		entries []entry
		want    map[string]string
	}{
		// pkg/build/gobuild.go, tarBinary and tarKoData: absolute, with parents.
		"ko": {[]entry{special(entry{Header: tar.Header{Name: "/ko-app", Typeflag: tar.TypeDir}}, 0o555, nil), special(file("/ko-app/app", "elf"), 0o555, nil),
			dir("/var/run/ko"), file("/var/run/ko/data", "x")},
			map[string]string{"ko-app": "dir", "ko-app/app": "elf", "var": "dir", "var/run": "dir", "var/run/ko": "dir", "var/run/ko/data": "x"}},
		// pkg/util/tar_util.go: "/" as the root, hard links to absolute names.
		"kaniko": {[]entry{{Header: tar.Header{Name: "/", Typeflag: tar.TypeDir, Mode: 0o755}}, dir("usr/"), dir("usr/bin/"), file("usr/bin/git", "elf"), hardlink("usr/bin/git-shell", "/usr/bin/git"), file("/.wh.gone", "")},
			map[string]string{"usr": "dir", "usr/bin": "dir", "usr/bin/git": "elf", "usr/bin/git-shell": "elf", "gone": "whiteout"}},
		// containerd's diff: relative, each parent, whiteouts, an opaque directory as a whiteout and a directory.
		"BuildKit": {[]entry{dir("etc"), file("etc/.wh.gone", ""), dir("usr"), special(file("usr/ping", "elf"), 0o755, map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"}), hardlink("usr/ping6", "usr/ping"), file(".wh.opt", ""), dir("opt"), file("opt/f", "x")},
			map[string]string{"etc": "dir", "etc/gone": "whiteout", "usr": "dir", "usr/ping": "elf", "usr/ping6": "elf", "opt": "opaque", "opt/f": "x"}},
		// containers/storage: overlay's marks as attributes are not written; the root is "./".
		"Buildah": {[]entry{dir("."), dir("./etc"), file("./etc/.wh..wh..opq", ""), file("./etc/f", "x"), symlink("./bin", "usr/bin")},
			map[string]string{"etc": "opaque", "etc/f": "x", "bin": "-> usr/bin"}},
		// ReproducibleLayerBuilder: relative by commons-compress, each parent once, epoch + 1 s.
		"Jib": {[]entry{dir("app"), dir("app/classes"), file("app/classes/A.class", "x"), dir("app/libs"), file("app/libs/a.jar", "y")},
			map[string]string{"app": "dir", "app/classes": "dir", "app/classes/A.class": "x", "app/libs": "dir", "app/libs/a.jar": "y"}},
		// stream_layered_image.py: the parents are absolute, the files relative; no write permission.
		"Nix": {[]entry{special(dir("/nix"), 0o555, nil), special(dir("/nix/store"), 0o555, nil), special(dir("nix/store/h-app"), 0o555, nil), special(file("nix/store/h-app/run", "elf"), 0o555, nil), symlink("./bin", "/nix/store/h-app")},
			map[string]string{"nix": "dir", "nix/store": "dir", "nix/store/h-app": "dir", "nix/store/h-app/run": "elf", "bin": "-> /nix/store/h-app"}},
		// rules_docker and rules_pkg: "./", files without their parents, runfiles through links.
		"Bazel": {[]entry{dir("./"), file("./app/bin.runfiles/main/a", "x"), symlink("./app/ext", "bin.runfiles/main"), file("./app/ext/b", "y")},
			map[string]string{"app": "dir", "app/bin.runfiles": "dir", "app/bin.runfiles/main": "dir", "app/bin.runfiles/main/a": "x", "app/bin.runfiles/main/b": "y", "app/ext": "-> bin.runfiles/main"}},
	} {
		t.Run(name, func(t *testing.T) {
			root, out, err := unpackTo(t, bytes.NewReader(archive(t, c.entries...)), unpackLimits{})
			must(t, err)
			must(t, complete(root, out, nil, unpackLimits{bytes: 1, space: func() error { return nil }}))
			if got := look(t, root); !equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// Owners, modes, times and attributes are kept, directories' times though entries
// come after them; attributes that overlayfs would obey are not.
func TestUnpackKeepsWhatFilesAre(t *testing.T) {
	f := file("d/f", "x")
	f.Mode, f.Uid, f.Gid = 0o6755, 12, 34
	f.PAXRecords = map[string]string{
		"SCHILY.xattr.user.a": "b", "SCHILY.xattr.trusted.overlay.redirect": "/etc", "SCHILY.xattr.user.overlay.opaque": "y",
		"SCHILY.xattr.trusted.overlay.metacopy": "", "SCHILY.xattr.security.selinux": "x", "SCHILY.xattr.trusted.x": "y",
	}
	d := dir("d")
	d.Mode, d.Uid = 0o1777, 7
	d.PAXRecords = map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y", "SCHILY.xattr.trusted.overlay.redirect": "/etc"}
	l := symlink("d/l", "f")
	l.Uid = 9
	rootEntry := dir(".")
	rootEntry.Mode, rootEntry.Uid = 0o711, 5
	root, out, err := unpackTo(t, bytes.NewReader(archive(t, rootEntry, d, f, l)), unpackLimits{})
	must(t, err)
	var st unix.Stat_t
	for path, want := range map[string][4]int64{
		"d": {0o1777, 7, 0, 2000}, "d/f": {0o6755, 12, 34, 1000}, "d/l": {0o777, 9, 0, 0}, ".": {0o711, 5, 0, 2000},
	} {
		must(t, unix.Lstat(filepath.Join(root, path), &st))
		if got := [4]int64{int64(st.Mode & 0o7777), int64(st.Uid), int64(st.Gid), st.Mtim.Sec}; got != want && path != "d/l" || got[1] != want[1] {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	if out.root == nil || *out.root != (rootAttr{0o711, 5, 0}) {
		t.Errorf("root %v", out.root)
	}
	for path, want := range map[string]string{"d": "", "d/f": "user.a\x00"} {
		b := make([]byte, 1000)
		n, err := unix.Llistxattr(filepath.Join(root, path), b)
		must(t, err)
		if string(b[:n]) != want {
			t.Errorf("%s has the attributes %q, want %q", path, b[:n], want)
		}
	}
}

// A layer gets from those below what its archive leaves open.
func TestCompleteTakesFromBelow(t *testing.T) {
	a := dir("a")
	a.Mode, a.Uid = 0o700, 5
	bottom := archive(t, a, dir("a/b"), file("a/f", "below"), symlink("l", "a"), dir("gone"), file("gone/f", "x"))
	middle := archive(t, file(".wh.gone", ""))
	top := archive(t, file("a/new", "x"), hardlink("h", "a/f"), file("gone/new", "x"), file("l/new", "x"))
	var trees []int
	for _, b := range [][]byte{bottom, middle} {
		root, _, err := unpackTo(t, bytes.NewReader(b), unpackLimits{})
		must(t, err)
		open, err := openTree(root)
		must(t, err)
		defer open.Close()
		trees = append([]int{open.fd}, trees...)
		must(t, os.Rename(root, root+".moved")) // by another pull's commit
	}
	root, out, err := unpackTo(t, bytes.NewReader(top), unpackLimits{})
	must(t, err)
	must(t, complete(root, out, trees, unpackLimits{bytes: 1 << 20, space: func() error { return nil }}))
	want := map[string]string{"a": "dir", "a/new": "x", "a/f": "below", "h": "below", "gone": "dir", "gone/new": "x", "l": "dir", "l/new": "x"}
	if got := look(t, root); !equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	var st unix.Stat_t
	must(t, unix.Lstat(filepath.Join(root, "a"), &st))
	if st.Mode&0o7777 != 0o700 || st.Uid != 5 {
		t.Errorf("a is of %d with mode %o, want 5 and 700 from below", st.Uid, st.Mode)
	}
	must(t, unix.Lstat(filepath.Join(root, "gone"), &st))
	if st.Mode&0o7777 != 0o755 {
		t.Errorf("gone has mode %o: a whiteout hides the one below", st.Mode)
	}
	_, out, err = unpackTo(t, bytes.NewReader(archive(t, hardlink("h", "gone/f"))), unpackLimits{})
	must(t, err)
	if err := complete(t.TempDir(), out, trees, unpackLimits{bytes: 1, space: func() error { return nil }}); err == nil {
		t.Error("a link to what a layer between removes was made")
	}
}

// zeros are an archive of one file of n bytes, in pieces of a megabyte.
type zeros struct {
	head []byte
	left int64
}

func (z *zeros) Read(p []byte) (int, error) {
	if len(z.head) > 0 {
		n := copy(p, z.head)
		z.head = z.head[n:]
		return n, nil
	}
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	clear(p[:n])
	z.left -= n
	return int(n), nil
}

// A million entries and files of zeros cost time, and no memory.
func TestLargeLayersCostLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes much; left out with -short")
	}
	// The heap is about what lives, and not what waits to be collected.
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	peak := func(f func()) uint64 {
		runtime.GC()
		var before, now runtime.MemStats
		runtime.ReadMemStats(&before)
		stop, done := make(chan struct{}), make(chan uint64)
		go func() {
			most := uint64(0)
			for {
				select {
				case <-stop:
					done <- most
					return
				case <-time.After(20 * time.Millisecond):
					runtime.ReadMemStats(&now)
					most = max(most, now.HeapAlloc)
				}
			}
		}()
		f()
		close(stop)
		return (<-done) - min(before.HeapAlloc, 1<<40)
	}
	grown := peak(func() {
		var head bytes.Buffer
		w := tar.NewWriter(&head)
		must(t, w.WriteHeader(&tar.Header{Name: "z", Typeflag: tar.TypeReg, Size: 10 << 30}))
		_, _, err := unpackTo(t, &zeros{head.Bytes(), 10 << 30}, unpackLimits{bytes: 1 << 28})
		if !errors.Is(err, errLimit) {
			t.Errorf("%v, want errLimit", err)
		}
	})
	if int64(grown) > 16<<20 {
		t.Errorf("zeros: the heap grew by %d bytes", grown)
	}
	pr, pw := io.Pipe()
	go func() {
		w := tar.NewWriter(pw)
		for i := range 20_000 {
			if w.WriteHeader(&tar.Header{Name: fmt.Sprintf("d%d/", i), Typeflag: tar.TypeDir, Mode: 0o755}) != nil {
				break
			}
		}
		_ = w.Close()
		_ = pw.Close()
	}()
	grown = peak(func() {
		_, out, err := unpackTo(t, pr, unpackLimits{entries: 1_000_000})
		if err != nil || out.entries != 20_000 {
			t.Errorf("%v, %v", out, err)
		}
	})
	if int64(grown) > 16<<20 {
		t.Errorf("entries: the heap grew by %d bytes", grown)
	}
}

// Holes of a sparse file cost no disk, wherever they are, and the content and its sum are
// those of the whole.
func TestUnpackKeepsHoles(t *testing.T) {
	needRoot(t)
	const block = 4 << 10
	data, hole := strings.Repeat("d", block), strings.Repeat("\x00", block)
	for name, c := range map[string]struct {
		text   string
		blocks int // of 4 KiB that are written
	}{
		"empty":            {"", 0},
		"hole":             {strings.Repeat(hole, 1000), 0},
		"short hole":       {hole[:100], 1},
		"hole at the end":  {data + strings.Repeat(hole, 100), 1},
		"hole at the head": {strings.Repeat(hole, 100) + data + "x", 2},
		"hole within":      {data + strings.Repeat(hole, 100) + data, 2},
		"not aligned":      {"x" + hole + "x", 2},
		"odd end":          {data + hole + "\x00", 2},
		"no hole":          {strings.Repeat(data, 100), 100},
	} {
		t.Run(name, func(t *testing.T) {
			root, out, err := unpackTo(t, bytes.NewReader(archive(t, file("f", c.text))), unpackLimits{bytes: 1 << 30})
			must(t, err)
			got, err := os.ReadFile(filepath.Join(root, "f"))
			must(t, err)
			if string(got) != c.text || out.size != int64(len(c.text)) {
				t.Errorf("%d bytes, size %d; want %d, and the same", len(got), out.size, len(c.text))
			}
			var st unix.Stat_t
			must(t, unix.Stat(filepath.Join(root, "f"), &st))
			if used := st.Blocks * 512; used > int64(c.blocks)*block {
				t.Errorf("%d bytes of the disk, want at most %d", used, c.blocks*block)
			}
		})
	}
}

// What the file system says to an attribute that it cannot keep is the archive's fault as
// long as the disk has space.
func TestLargeAttributeIsTheArchivesFault(t *testing.T) {
	full := fmt.Errorf("%w: test", errFull)
	h := &tar.Header{PAXRecords: map[string]string{xattrRecord + "user.big": "x"}}
	for name, c := range map[string]struct{ says, space, want error }{
		"ext4":           {unix.ENOSPC, nil, errLimit},
		"too long":       {unix.E2BIG, nil, errLimit},
		"full":           {unix.ENOSPC, full, errFull},
		"not for a link": {unix.EPERM, full, nil},
		"not there":      {unix.ENOTSUP, full, nil},
		"disk":           {unix.EIO, nil, unix.EIO},
	} {
		u := &unpacker{lim: unpackLimits{space: func() error { return c.space }}}
		err := u.eachXattr(h, func(string, []byte) error { return c.says })
		if !errors.Is(err, c.want) || errors.Is(c.want, errLimit) && isErrno(err) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// What an entry may take of the disk is counted before the disk is looked at: attributes
// and names as much as content.
func TestCostCountsAttributesAndNames(t *testing.T) {
	plain := cost(&tar.Header{Name: "a"})
	long := cost(&tar.Header{Name: strings.Repeat("a", maxPath), Linkname: strings.Repeat("b", maxPath)})
	attrs := cost(&tar.Header{Name: "a", PAXRecords: map[string]string{xattrRecord + "user.a": strings.Repeat("x", 60_000), "comment": strings.Repeat("x", 60_000)}})
	if plain < 4<<10 || long < plain+3*maxPath-3 || attrs != plain+60_000 {
		t.Errorf("%d, %d, %d", plain, long, attrs)
	}
}
