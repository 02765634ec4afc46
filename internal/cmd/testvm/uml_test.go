package main

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

func TestUMLArgs(t *testing.T) {
	got := umlArgs(settings{memory: 3 << 30, parameters: "a=1 b"}, "/x/initramfs", "/x/disk")
	want := []string{"mem=3072M", "initrd=/x/initramfs", "con=null", "con0=fd:0,fd:1", "quiet", "seccomp=auto", "ubd0=/x/disk", "a=1", "b"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAllowMappings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "max_map_count")
	for has, want := range map[string]string{"65530\n": "786432", "786432\n": "786432\n", "1048576\n": "1048576\n"} {
		if err := os.WriteFile(file, []byte(has), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := allowMappings(file, 3<<30); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%q became %q (%v), want %q", has, got, err, want)
		}
	}
	if err := os.WriteFile(file, []byte("many"), 0o600); err != nil {
		t.Fatal(err)
	}
	if allowMappings(file, 3<<30) == nil || allowMappings(file+"x", 3<<30) == nil {
		t.Error("no error of a file that is none")
	}
}

func TestCheckSettings(t *testing.T) {
	foreign := architecture{name: "mips"}
	for _, c := range []struct {
		s        settings
		packages []string
		good     bool
	}{
		{settings{}, nil, true},
		{settings{systemd: true}, []string{"./cri"}, true},
		{settings{uml: true, run: "X"}, []string{"./cri"}, true},
		{settings{uml: true, command: "true"}, nil, true},
		{settings{uml: true, command: "true"}, []string{"./cri"}, false},
		{settings{uml: true, command: "true", run: "X"}, nil, false},
		{settings{command: "true"}, nil, false},
		{settings{uml: true, disk: 1 << 30}, nil, true},
		{settings{disk: 1 << 30}, nil, false},
		{settings{uml: true, systemd: true}, nil, false},
		{settings{arch: foreign}, []string{"./cri"}, true},
		{settings{arch: foreign, uml: true}, nil, false},
		{settings{arch: foreign, systemd: true}, nil, false},
	} {
		if c.s.arch.name == "" {
			c.s.arch.name = runtime.GOARCH
		}
		if err := c.s.check(c.packages); (err == nil) != c.good {
			t.Errorf("%+v, %v: %v", c.s, c.packages, err)
		}
	}
}
