//go:build linux

package monitor_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

var update = flag.Bool("update", false, "build the programs anew, with the Go of this machine")

const (
	programSource = "github.com/nodewright/nodewright/localcri/nodewright-monitor"
	madeOf        = "program/made-of.txt"
	stale         = "the programs in localcri/internal/monitor/program are not of the present sources: run \"make monitor\", and commit what it changes"
)

// What this package carries is what its sources give: the sources are those that made-of.txt has,
// and the Go that it names makes the same bytes of them.
func TestProgramsAreOfTheirSources(t *testing.T) {
	if *update {
		makePrograms(t)
	}
	was, err := os.ReadFile(madeOf)
	if err != nil {
		t.Fatal(err)
	}
	if string(was) != ingredients(t, toolchainOf(t, was)) {
		t.Fatal(stale)
	}
	if testing.Short() {
		t.Skip("builds programs")
	}
	toolchain := "GOTOOLCHAIN=" + toolchainOf(t, was)
	if out, err := goCommand(toolchain, "version"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%v: %s", err, out)
		}
		t.Skipf("needs the Go that the programs were built with: %v: %s", err, out)
	}
	for _, arch := range architectures {
		packed, err := os.ReadFile(packedFile(arch))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(unpack(t, packed), buildProgram(t, arch, toolchain)) {
			t.Errorf("%s: %s", arch, stale)
		}
	}
}

var architectures = []string{"amd64", "arm64"}

func packedFile(arch string) string { return "program/" + arch + ".gz" }

// makePrograms builds the programs with the Go that runs this test.
func makePrograms(t *testing.T) {
	t.Helper()
	out, err := goCommand("env", "GOVERSION")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	toolchain := strings.TrimSpace(string(out))
	if !regexp.MustCompile(`^go1\.\d+(\.\d+)?$`).MatchString(toolchain) {
		t.Fatalf("this is %s; want a release of Go, with which everybody can build the same", toolchain)
	}
	for _, arch := range architectures {
		content := buildProgram(t, arch, "GOTOOLCHAIN="+toolchain)
		if b, err := os.ReadFile(packedFile(arch)); err == nil && bytes.Equal(unpack(t, b), content) {
			continue
		}
		if err := os.WriteFile(packedFile(arch), pack(t, content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(madeOf, []byte(ingredients(t, toolchain)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// toolchainOf is the version of Go in made-of.txt.
func toolchainOf(t *testing.T, text []byte) string {
	t.Helper()
	line, _, _ := strings.Cut(string(text), "\n")
	version, ok := strings.CutPrefix(line, "go ")
	if !ok {
		t.Fatalf("%s begins with %q; want the version of Go", madeOf, line)
	}
	return version
}

// ingredients is what programs are made of: the version of Go, those of other modules, and the
// sum of the sources in this one.
func ingredients(t *testing.T, toolchain string) string {
	t.Helper()
	modules, files := map[string]bool{}, map[string]string{}
	for _, arch := range architectures {
		out, err := goCommand("GOARCH="+arch, "list", "-deps", "-json=ImportPath,Dir,Standard,Module,GoFiles,SFiles,HFiles,EmbedFiles", programSource)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for dec := json.NewDecoder(bytes.NewReader(out)); ; {
			var p struct {
				ImportPath, Dir                     string
				Standard                            bool
				GoFiles, SFiles, HFiles, EmbedFiles []string
				Module                              struct{ Path, Version, GoVersion string }
			}
			if err := dec.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			switch {
			case p.Standard:
			case p.Module.Version != "":
				modules[p.Module.Path+" "+p.Module.Version] = true
			default:
				files["go.mod"] = "go " + p.Module.GoVersion
				for _, f := range slices.Concat(p.GoFiles, p.SFiles, p.HFiles, p.EmbedFiles) {
					b, err := os.ReadFile(filepath.Join(p.Dir, f))
					if err != nil {
						t.Fatal(err)
					}
					files[p.ImportPath+"/"+f] = string(b)
				}
			}
		}
	}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(sum, "%q %q\n", name, files[name])
	}
	return fmt.Sprintf("go %s\n%s\nsources %x\n", toolchain, strings.Join(slices.Sorted(maps.Keys(modules)), "\n"), sum.Sum(nil))
}

// buildProgram builds the program as it is carried: the same bytes wherever it is built.
func buildProgram(t *testing.T, arch, toolchain string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	out, err := goCommand(toolchain, "GOARCH="+arch, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", path, programSource)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// goCommand runs the go command, in an environment to which leading NAME=value are added and in
// which nothing else changes what it builds.
func goCommand(args ...string) ([]byte, error) {
	env := append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off", "GOAMD64=v1", "GOARM64=v8.0")
	for len(args) > 0 && strings.Contains(args[0], "=") {
		env, args = append(env, args[0]), args[1:]
	}
	cmd := exec.Command("go", args...)
	cmd.Env = env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return stderr.Bytes(), fmt.Errorf("go %s: %w", args[0], err)
	}
	return out, nil
}

func pack(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(content)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func unpack(t *testing.T, packed []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// The program that this package carries is one, for this machine.
func TestCarriedProgram(t *testing.T) {
	if monitor.Carried() != nil {
		t.Skip(monitor.Carried())
	}
	path, err := monitor.Place(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path).CombinedOutput(); err == nil || !strings.HasPrefix(string(out), "usage: nodewright-monitor") {
		t.Errorf("%q, %v; want its usage", out, err)
	}
}
