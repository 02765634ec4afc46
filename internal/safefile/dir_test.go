package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func held(t *testing.T, dir, name string) *Dir {
	t.Helper()
	d, err := OpenDir(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestNoLinkLeadsToAHeldDirectory(t *testing.T) {
	dir := tree(t)
	for _, c := range []struct {
		name string
		open bool // by OpenDir
		made bool // by MakeDir
	}{
		{".", true, true}, {"sub", true, true}, {"./sub", true, true}, {"new", false, true}, {"sub/new/er", false, true},
		{"inside", false, false}, {"up", false, false}, {"absolute", false, false}, {"loop", false, false}, {"file", false, false}, {"pipe", false, false},
		{"inside/new", false, false}, {"up/new", false, false}, {"../new", false, false}, {"/tmp", false, false}, {"", false, false}, {"file/new", false, false},
	} {
		d, err := OpenDir(dir, c.name)
		if (err == nil) != c.open {
			t.Errorf("open %q: %v", c.name, err)
		}
		if err == nil {
			_ = d.Close()
		}
		if d, err = MakeDir(dir, c.name, 0o777); (err == nil) != c.made {
			t.Errorf("make %q: %v", c.name, err)
		}
		if err != nil {
			continue
		}
		_ = d.Close()
		if info, err := os.Lstat(filepath.Join(dir, c.name)); !c.open && (err != nil || info.Mode().Perm() != 0o777) {
			t.Errorf("make %q: %v, %v", c.name, info, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(filepath.Dir(dir), "new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link was followed out of the directory: %v", err)
	}
}

// The path of a directory that is held comes to lead elsewhere.
func TestAHeldDirectoryStaysTheSame(t *testing.T) {
	top := t.TempDir()
	dir, other := filepath.Join(top, "dir"), filepath.Join(top, "other")
	for _, p := range []string{dir, other} {
		if err := os.Mkdir(p, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(p, "f"), []byte("f of "+filepath.Base(p)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := held(t, top, "dir")
	if err := errors.Join(os.Rename(dir, dir+"-moved"), os.Symlink(other, dir)); err != nil {
		t.Fatal(err)
	}
	f, err := d.Open("f")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := Read(f, 99); string(b) != "f of dir" {
		t.Errorf("%q, %v", b, err)
	}
	_ = f.Close()
	if err := errors.Join(d.Write("g", []byte("new"), 0o600), d.Rename("f", "h"), d.Remove("h")); err != nil {
		t.Error(err)
	}
	if entries, err := d.Entries(9); err != nil || len(entries) != 1 || entries[0].Name() != "g" {
		t.Errorf("%v, %v", entries, err)
	}
	if b, err := os.ReadFile(filepath.Join(other, "f")); string(b) != "f of other" {
		t.Errorf("the other directory's file is %q, %v", b, err)
	}
}

func TestEntries(t *testing.T) {
	d := held(t, tree(t), "sub")
	for range 2 {
		if entries, err := d.Entries(1); err != nil || len(entries) != 1 {
			t.Errorf("%v, %v", entries, err)
		}
		if entries, err := d.Entries(0); len(entries) != 0 || !errors.Is(err, ErrTooMany) {
			t.Errorf("%v, %v, want ErrTooMany", entries, err)
		}
	}
}

func TestOnlyNamesOfEntries(t *testing.T) {
	d := held(t, tree(t), ".")
	for _, name := range []string{"", ".", "..", "sub/file", "/etc/hosts", "../secret"} {
		_, lerr := d.Lstat(name)
		_, oerr := d.Open(name)
		_, cerr := d.Create(name, 0o600)
		for _, err := range []error{lerr, oerr, cerr, d.Remove(name), d.Rename(name, "x"), d.Rename("file", name), d.Write(name, nil, 0o600)} {
			if err == nil {
				t.Errorf("%q is taken for an entry", name)
			}
		}
	}
	for _, name := range []string{"linked", "out", "pipe", "sub", "none"} {
		if _, err := d.Open(name); err == nil {
			t.Errorf("%s was opened", name)
		}
	}
	for _, name := range []string{"file", "out", "loop", "pipe", "sub"} {
		if _, err := d.Create(name, 0o600); !errors.Is(err, fs.ErrExist) {
			t.Errorf("create %s: %v", name, err)
		}
	}
}

// Whatever is at a file's name, it has its content afterwards, and what a link
// leads to does not.
func TestWrite(t *testing.T) {
	same := func(before, after fs.FileInfo) bool { return os.SameFile(before, after) }
	other := func(before, after fs.FileInfo) bool { return !os.SameFile(before, after) }
	for _, c := range []struct {
		name string
		stay func(before, after fs.FileInfo) bool
	}{
		{"file", same}, {"sparse", same}, {"equal", func(b, a fs.FileInfo) bool { return same(b, a) && b.ModTime().Equal(a.ModTime()) }},
		{"private", same}, {"linked", other}, {"out", other}, {"loop", other}, {"pipe", other}, {"twice", other}, {"new", nil},
	} {
		dir := tree(t)
		secret := filepath.Join(filepath.Dir(dir), "secret")
		for _, err := range []error{
			os.Link(secret, filepath.Join(dir, "twice")),
			os.WriteFile(filepath.Join(dir, "private"), []byte("data"), 0o600),
			os.WriteFile(filepath.Join(dir, "equal"), []byte("data"), 0o600),
			os.Chmod(filepath.Join(dir, "equal"), 0o666),
			os.Symlink(secret, filepath.Join(dir, "."+c.name+".tmp")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(dir, c.name)
		before, _ := os.Lstat(path)
		if err := held(t, dir, ".").Write(c.name, []byte("data"), 0o666); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		after, err := os.Lstat(path)
		if err != nil || after.Mode() != 0o666 {
			t.Errorf("%s: %v, %v", c.name, after, err)
		}
		if b, _ := os.ReadFile(path); string(b) != "data" {
			t.Errorf("%s has %q", c.name, b)
		}
		if b, _ := os.ReadFile(secret); string(b) != "secret" {
			t.Errorf("%s: the secret has become %q", c.name, b)
		}
		if c.stay != nil && !c.stay(before, after) {
			t.Errorf("%s: %v became %v", c.name, before, after)
		}
	}
	if err := held(t, tree(t), ".").Write("sub", []byte("data"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
}

func TestRemoveFiles(t *testing.T) {
	dir := tree(t)
	if err := held(t, dir, ".").RemoveFiles(99, func(name string) bool { return name != "file" }); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != "file" || entries[1].Name() != "sub" {
		t.Errorf("%v, %v; want the file that does not match, and the directory", entries, err)
	}
	if b, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "secret")); string(b) != "secret" {
		t.Errorf("%q, %v", b, err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(dir, "sub", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := func(string) bool { return true }
	if err := held(t, dir, "sub").RemoveFiles(2, all); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "sub")); err != nil || len(entries) != 2 { // of four
		t.Errorf("%v, %v", entries, err)
	}
}

// What an entry is, is that of the directory that is held, whatever is at its path now.
func TestEntriesLookInTheHeldDirectory(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	write := func(size int) {
		if err := errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "f"), make([]byte, size), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(3)
	d, err := OpenDir(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	list, err := d.Entries(10)
	if err != nil || len(list) != 1 || list[0].Name() != "f" || !list[0].Type().IsRegular() {
		t.Fatalf("entries %v, %v", list, err)
	}
	if err := os.Rename(path, filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	write(9)
	if info, err := list[0].Info(); err != nil || info.Size() != 3 {
		t.Errorf("%v, %v, want the file of 3 bytes", info, err)
	}
}

// Names below a held directory are found there, and links on the way are not followed.
func TestExistsInAHeldDirectory(t *testing.T) {
	dir := tree(t)
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "x", "y"), 0o700), os.Symlink(filepath.Join(dir, "x"), filepath.Join(dir, "to-x"))); err != nil {
		t.Fatal(err)
	}
	d := held(t, dir, ".")
	for name, want := range map[string]bool{"x": true, "x/y": true, "x/z": false, "z/z": false, "to-x": true} {
		if there, err := d.Exists(name); err != nil || there != want {
			t.Errorf("%s: %t, %v, want %t", name, there, err, want)
		}
	}
	for _, name := range []string{"to-x/y", "../x", "/x"} {
		if there, err := d.Exists(name); err == nil || there {
			t.Errorf("%s: %t, want an error", name, there)
		}
	}
}
