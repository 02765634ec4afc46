package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPick(t *testing.T) {
	ours := func(path string) string { return modulePath + "/" + path }
	all := []pkg{
		{ImportPath: modulePath},
		{ImportPath: ours("agent/local")},
		{ImportPath: ours("critical")},
		{ImportPath: ours("cri")},
		{ImportPath: ours("network/bridge")},
		{ImportPath: ours("volumemgr/plugins")},
		{ImportPath: ours("volumemgr/mount")},
		{ImportPath: ours("podspec"), TestImports: []string{"testing"}},
		{ImportPath: ours("podruntime"), XTestImports: []string{"testing", containerdtest}},
		{ImportPath: ours("internal/cmd/run"), Imports: []string{containerdtest}}, // its tests do not
		{ImportPath: ours("cgroups"), Imports: []string{"github.com/opencontainers/cgroups/fs2"}},
		{ImportPath: ours("other"), Imports: []string{"github.com/opencontainers/cgroupsish"}},
	}
	var got []string
	for _, p := range pick(all) {
		got = append(got, p.within())
	}
	if want := []string{"cri", "network/bridge", "volumemgr/plugins", "podruntime", "cgroups"}; !slices.Equal(got, want) {
		t.Errorf("picked %v, want %v", got, want)
	}
}

// The plan's tests are run here as in the machine, with programs of a few lines.
func TestRunOne(t *testing.T) {
	for _, c := range []struct {
		name, script string
		left         time.Duration
		good         bool
		says         string // in the error
	}{
		{"passes", `echo "--- PASS: TestA (0.00s)"; exit 0`, time.Minute, true, ""},
		{"fails", `echo "--- FAIL: TestA (0.00s)"; exit 1`, time.Minute, false, "exit status 1"},
		{"dies", `kill -9 $$`, time.Minute, false, "killed"},
		{"fails and exits well", `echo "--- FAIL: TestA (0.00s)"; exit 0`, time.Minute, false, ""},
		{"is told the environment and the directory", `[ "$CI $(pwd)" = "true $PWD" ] && [ "$1 $3" = "-test.v -test.run=TestA" ]`, time.Minute, true, ""},
		{"is told the time left", `[ "$2" = -test.timeout=1m0s ]`, time.Minute, true, ""},
		{"comes too late", `exit 0`, 0, false, "no time left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "x.test")
			if err := os.WriteFile(file, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			p := plan{Env: []string{"CI=true", "PATH=" + os.Getenv("PATH")}, Run: "TestA"}
			r := p.test(testBinary{Package: "x", Dir: dir, File: file}, time.Now().Add(c.left), &out)
			if r.good() != c.good || !strings.Contains(r.Error, c.says) || r.Package != "x" {
				t.Errorf("%+v, want good = %v and %q; output:\n%s", r, c.good, c.says, out.String())
			}
		})
	}
}

func TestClaim(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "lock")
	release, err := claim(lock)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := claim(lock); err == nil {
		t.Error("two have it")
	}
	release()
	release, err = claim(lock)
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// A command's output, its directory and its end are the machine's to report.
func TestCommand(t *testing.T) {
	for _, c := range []struct {
		name, command string
		good          bool
	}{
		{"in its directory", `[ "$(pwd)" = "$PWD" ] && echo done`, true},
		{"fails", "exit 3", false},
		{"ends itself when time is up", "exec sleep 1000", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := plan{Command: c.command, Dir: t.TempDir(), Env: []string{"PATH=" + os.Getenv("PATH")}}
			deadline := time.Now().Add(time.Minute)
			if !c.good {
				deadline = time.Now().Add(200 * time.Millisecond)
			}
			var out bytes.Buffer
			r := p.command(deadline, &out)
			if r.good() != c.good || c.good && out.String() != "done\n" {
				t.Errorf("%+v, output %q; want good %v", r, &out, c.good)
			}
			all := results{of: map[string]result{r.Package: r}, ended: true}
			if all.good(p) != c.good {
				t.Errorf("good %v; want %v", all.good(p), c.good)
			}
		})
	}
}
