package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestModuleName(t *testing.T) {
	for file, want := range map[string]string{
		"kernel/fs/9p/9p.ko":                  "9p",
		"/lib/modules/6/nf-tables.ko.xz":      "nf_tables",
		"kernel/crypto/crc32c_generic.ko.zst": "crc32c_generic",
		"libcrc32c":                           "libcrc32c",
	} {
		if got := moduleName(file); got != want {
			t.Errorf("%s is called %s, want %s", file, got, want)
		}
	}
}

func TestInOrder(t *testing.T) {
	needs := map[string][]string{
		"9p": {"9pnet", "netfs"}, "9pnet_virtio": {"9pnet", "virtio"}, "virtio_pci": {"virtio"}, "bridge": {"stp", "llc"}, "stp": {"llc"},
	}
	got, err := inOrder([]string{"9p", "9pnet_virtio", "virtio_pci", "bridge", "9p"}, func(n string) ([]string, error) { return needs[n], nil })
	if err != nil {
		t.Fatal(err)
	}
	if want := "9pnet netfs 9p virtio 9pnet_virtio virtio_pci llc stp bridge"; strings.Join(got, " ") != want {
		t.Errorf("order %v, want %s", got, want)
	}
	broken := errors.New("broken")
	_, err = inOrder([]string{"9p"}, func(n string) ([]string, error) {
		if n == "netfs" {
			return nil, broken
		}
		return needs[n], nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want that of netfs", err)
	}
}

func TestParseModinfo(t *testing.T) {
	for info, want := range map[string][]string{
		"license=GPL\x00\x00depends=9pnet,net-fs\x00name=9p\x00": {"9pnet", "net_fs"},
		"depends=\x00name=virtio\x00":                            nil,
		"name=alone":                                             nil,
		"":                                                       nil,
	} {
		if got := parseModinfo([]byte(info)); !slices.Equal(got, want) {
			t.Errorf("%q needs %q, want %q", info, got, want)
		}
	}
}

func FuzzParseModinfo(f *testing.F) {
	f.Add([]byte("depends=9pnet,netfs\x00name=9p\x00"))
	f.Fuzz(func(t *testing.T, info []byte) {
		for _, name := range parseModinfo(info) {
			if name == "" || strings.ContainsAny(name, ",\x00-") {
				t.Errorf("%q is no name", name)
			}
		}
	})
}

// TestModules has everything built in but for one module that is missing.
func TestModules(t *testing.T) {
	tree := t.TempDir()
	builtin := func(names ...string) {
		t.Helper()
		var b strings.Builder
		for _, n := range names {
			b.WriteString("kernel/" + n + ".ko\n")
		}
		if err := os.WriteFile(filepath.Join(tree, "modules.builtin"), []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := kernel{version: "6.1", tree: tree, boot: []string{"virtio_pci", "overlay"}}
	builtin(k.boot...)
	if got, err := k.modules(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("%d modules of a kernel that has all built in, %v", len(got), err)
	}
	builtin(k.boot[1:]...)
	if _, err := k.modules(t.Context()); err == nil || !strings.Contains(err.Error(), "missing: module virtio_pci of Linux 6.1") {
		t.Errorf("error %v, want one that names virtio_pci", err)
	}
	if err := os.WriteFile(filepath.Join(tree, "virtio_pci.ko"), []byte("not ELF"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := k.modules(t.Context()); err == nil || !strings.Contains(err.Error(), "virtio_pci") {
		t.Errorf("error %v, want one that names virtio_pci", err)
	}
}

func TestFindKernel(t *testing.T) {
	dir := t.TempDir()
	if _, err := findKernel(dir); err == nil {
		t.Error("a kernel in an empty directory")
	}
	for _, d := range []string{"boot", "usr/lib/modules/6.12-amd64"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	image := filepath.Join(dir, "boot", "vmlinuz-6.12-amd64")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := kernel{version: "6.12-amd64", image: image, tree: filepath.Join(dir, "usr/lib/modules/6.12-amd64")}
	if got, err := findKernel(dir); err != nil || got.version != want.version || got.image != want.image || got.tree != want.tree {
		t.Errorf("found %v, %v; want %v", got, err, want)
	}
}

func TestFindUML(t *testing.T) {
	dir := t.TempDir()
	if _, err := findUML(dir); err == nil {
		t.Error("a kernel in an empty directory")
	}
	for _, d := range []string{"usr/bin", "usr/lib/uml/modules/6.1.176"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := findUML(dir); err == nil {
		t.Error("a kernel without its program")
	}
	image := filepath.Join(dir, "usr/bin/linux.uml")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := findUML(dir); err != nil || got.version != "6.1.176" || got.image != image {
		t.Errorf("found %v, %v", got, err)
	}
}

func TestDependency(t *testing.T) {
	got, err := dependency("linux-image-amd64\n  Depends: linux-image-6.1.0-48-amd64\n  Suggests: linux-doc\n")
	if err != nil || got != "linux-image-6.1.0-48-amd64" {
		t.Errorf("package %q, %v", got, err)
	}
	if _, err := dependency("linux-image-amd64\n"); err == nil {
		t.Error("a package out of nothing")
	}
}
