package main

import (
	"slices"
	"strings"
	"testing"
)

func TestArchitectures(t *testing.T) {
	for _, name := range []string{"amd64", "arm64"} {
		s := settings{cpus: 1, memory: 3 << 30, accel: "tcg"}
		if err := s.arch.Set(name); err != nil {
			t.Fatal(err)
		}
		args := qemuArgs(s, "/x/vmlinuz", "/x/initramfs", "/x/results", map[string]string{hostTag: "/"})
		want := map[string][2]string{
			"amd64": {"-serial chardev:results", "console=ttyS0 "}, "arm64": {"-device pci-serial,chardev=results", "console=ttyAMA0 "},
		}[name]
		line := strings.Join(args, " ")
		for _, w := range append(want[:], "-chardev file,id=results,path=/x/results", "path=/,mount_tag=host,") {
			if !strings.Contains(line, w) {
				t.Errorf("%s: %q lacks %q", name, line, w)
			}
		}
	}
	var a architecture
	if err := a.Set("mips"); err == nil || err.Error() != "want one of amd64, arm64" {
		t.Errorf("an unknown architecture: %v", err)
	}
}

// Each foreign architecture's go command and files are apart from this system's.
func TestForeign(t *testing.T) {
	foreign := architecture{name: "mips"}
	if !foreign.foreign() || !slices.Contains(foreign.build(), "GOARCH=mips") || foreign.dir("/vm") != "/vm/mips" {
		t.Errorf("foreign %v, %q, %s", foreign.foreign(), foreign.build(), foreign.dir("/vm"))
	}
	d, err := newArchive(foreign, t.TempDir())
	if err != nil || !slices.Contains(d.options, "APT::Architecture=mips") {
		t.Errorf("%q, %v", d.options, err)
	}
}

func TestNarrow(t *testing.T) {
	p := plan{Tests: []testBinary{{Package: "cgroups"}, {Package: "examples/edge"}, {Package: "cri"}}}
	p.narrow()
	for i, want := range []string{"Real", "^TestNodeAlone$", ""} {
		if p.Tests[i].Run != want {
			t.Errorf("%s: -run %q, want %q", p.Tests[i].Package, p.Tests[i].Run, want)
		}
	}
}
