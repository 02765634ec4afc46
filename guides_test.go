package nodewright_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/internal/testprogram"
	"github.com/nodewright/nodewright/podmgr"
)

// block is a fenced block of a guide.
type block struct{ kind, text string }

// blocks returns the fenced blocks of a guide, in order.
func blocks(t *testing.T, text string) (out []block) {
	t.Helper()
	for i, part := range strings.Split("\n"+text, "\n```") {
		if i%2 == 1 {
			kind, body, _ := strings.Cut(part, "\n")
			out = append(out, block{kind, body + "\n"})
		}
	}
	if strings.Count("\n"+text, "\n```")%2 != 0 {
		t.Error("a block has no end")
	}
	return out
}

var packageClause = regexp.MustCompile(`(?m)^package (\w+)$`)

// A guide that does not compile, or prints something else than it says, teaches
// wrong things. The programs are a module of their own with nothing but this one
// and what it requires.
func TestGuides(t *testing.T) {
	files, err := filepath.Glob("docs/guides/*.md")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d guides, %v", len(files), err)
	}
	dir := guideModule(t)
	outputs := map[string]string{} // of programs, by directory
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".md"), "-", "_")
		program := false
		for _, b := range blocks(t, string(text)) {
			switch b.kind {
			case "go":
				m := packageClause.FindStringSubmatch(b.text)
				if m == nil {
					t.Errorf("%s: a block of Go without a package clause", file)
					continue
				}
				program = m[1] == "main"
				as := "guide.go"
				if strings.HasSuffix(m[1], "_test") {
					as = "guide_test.go"
				}
				writeFile(t, filepath.Join(dir, name, as), b.text)
			case "text":
				if program {
					outputs[name] = b.text
				}
			case "yaml":
				if strings.Contains(b.text, "kind: Pod\n") {
					if pods, problems := podmgr.Decode(file, []byte(b.text)); len(problems) > 0 || len(pods) == 0 {
						t.Errorf("%s: %d pods, %v", file, len(pods), problems)
					}
				}
			case "sh":
			default:
				t.Errorf("%s: a block of kind %q", file, b.kind)
			}
		}
	}
	// Offline, and compiled as other tests have it.
	t.Setenv("GOFLAGS", "-mod=mod -buildvcs=false")
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOWORK", "off")
	testprogram.Go(t, dir, "vet", "./...")
	testprogram.Go(t, dir, "test", "-vet=off", "./write_a_part", "./test")
	programs := filepath.Join(dir, "bin")
	testprogram.Go(t, dir, "build", "-ldflags=-w", "-o", programs+"/", "./...")
	for name, want := range outputs {
		got, err := exec.CommandContext(t.Context(), filepath.Join(programs, name)).Output() //nolint:gosec // a guide's
		if err != nil || string(got) != want {
			t.Errorf("%s: %v, prints\n%s\nand says\n%s", name, err, got, want)
		}
	}
}

// guideModule makes a module that requires what this one does, at the same
// versions, and this one as it stands here.
func guideModule(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^module .*$`).ReplaceAllString(string(mod), "module example.com/guides")
	writeFile(t, filepath.Join(dir, "go.mod"), text+"\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+here+"\n")
	writeFile(t, filepath.Join(dir, "go.sum"), string(sum))
	return dir
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

// Links between our own documents lead somewhere.
func TestLinks(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s: link to %s: %v", file, m[1], err)
			}
		}
	}
}
