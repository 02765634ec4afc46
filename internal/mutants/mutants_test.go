package mutants

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/nodewright/nodewright/internal/testprogram"
)

var mutate = flag.Bool("mutants", false, "run every mutant of the list: make mutants")

// mutant is a mistake in a file.
type mutant struct {
	behaviour string // what the code does without the mistake; a sentence
	file      string
	text      string // occurs exactly once in the file
	mistake   string // replaces the text
	pkg       string // directory of the tests that have to fail
	tests     string // one of them suffices: TestA|TestB
}

// The limits of one mutant.
const (
	compileWithin = 15 * time.Minute // on a machine that compiles everything for the first time
	// Tests take slower times as long as without the mutant, and testWithin, before they have failed:
	// a mistake may be a loop without an end.
	testWithin = time.Minute
	slower     = 10
)

// verdict is what became of a mutant.
type verdict string

const (
	killed      verdict = "killed"
	killedLate  verdict = "killed by time"
	survived    verdict = "SURVIVED"
	doesntBuild verdict = "DOES NOT BUILD"
	failsBefore verdict = "FAILS WITHOUT A MUTANT"
)

func root(t testing.TB) string {
	t.Helper()
	dir, err := testprogram.Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The list is about the sources as they are.
func TestMutantsAreOfTheSources(t *testing.T) {
	dir := root(t)
	functions := map[string]string{} // sources of tests by directory
	testsOf := func(pkg string) string {
		if _, read := functions[pkg]; !read {
			files, err := filepath.Glob(filepath.Join(dir, pkg, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			var all strings.Builder
			for _, f := range files {
				source, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				all.Write(source)
			}
			functions[pkg] = all.String()
		}
		return functions[pkg]
	}
	seen := map[string]bool{}
	for area, list := range mutants {
		for _, m := range list {
			source, err := os.ReadFile(filepath.Join(dir, m.file))
			if err != nil {
				t.Error(err)
				continue
			}
			if n := strings.Count(string(source), m.text); n != 1 {
				t.Errorf("%s: %s: the text of %q occurs %d times; want once: %s", area, m.file, m.behaviour, n, m.text)
			}
			if m.text == m.mistake || seen[m.behaviour] || !strings.HasSuffix(m.behaviour, ".") {
				t.Errorf("%s: %q has no mistake, is no sentence, or is there twice", area, m.behaviour)
			}
			seen[m.behaviour] = true
			for _, name := range strings.Split(m.tests, "|") {
				if !strings.Contains(testsOf(m.pkg), "func "+name+"(t *testing.T)") {
					t.Errorf("%s: %q: package %s has no test %s", area, m.behaviour, m.pkg, name)
				}
			}
		}
	}
}

func TestMutants(t *testing.T) {
	if !*mutate {
		t.Skip("takes some seconds for each mutant: runs with -mutants (make mutants)")
	}
	r := &runner{root: root(t), dir: t.TempDir(), unchanged: map[string]func() (time.Duration, error){}}
	for _, list := range mutants {
		for _, m := range list {
			if r.unchanged[m.pkg] == nil {
				r.unchanged[m.pkg] = sync.OnceValues(func() (time.Duration, error) { return r.passes(context.Background(), m.pkg) })
			}
		}
	}
	t.Run("of", func(t *testing.T) {
		for _, area := range slices.Sorted(maps.Keys(mutants)) {
			t.Run(area, func(t *testing.T) {
				t.Parallel()
				for _, m := range mutants[area] {
					t.Run(m.behaviour, func(t *testing.T) {
						t.Parallel()
						begin := time.Now()
						v, why := r.try(t.Context(), m)
						took := time.Since(begin).Round(time.Second)
						r.note(area, m, v, took)
						t.Logf("%s in %v", v, took)
						if v != killed && v != killedLate {
							t.Errorf("%s: %s: %s", m.file, v, why)
						}
					})
				}
			})
		}
	})
	t.Log("\n" + r.table())
}

// runner tries mutants, and keeps what became of them.
type runner struct {
	root, dir string
	unchanged map[string]func() (took time.Duration, err error) // the tests of each package without a mutant

	mu   sync.Mutex
	rows []row
}

type row struct {
	area string
	mutant
	verdict
	took time.Duration
}

func (r *runner) note(area string, m mutant, v verdict, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, row{area, m, v, took})
}

// passes runs the tests of a package that mutants name, as they are, and returns how long they took.
func (r *runner) passes(ctx context.Context, pkg string) (time.Duration, error) {
	var tests []string
	for _, list := range mutants {
		for _, m := range list {
			if m.pkg == pkg {
				tests = append(tests, m.tests)
			}
		}
	}
	program, err := r.compile(ctx, mutant{pkg: pkg})
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	err = r.run(ctx, program, mutant{pkg: pkg, tests: strings.Join(tests, "|")}, compileWithin)
	return time.Since(begin), err
}

// try returns what becomes of a mutant, with what the tests or the compiler said.
func (r *runner) try(ctx context.Context, m mutant) (verdict, string) {
	took, err := r.unchanged[m.pkg]()
	if err != nil {
		return failsBefore, err.Error()
	}
	program, err := r.compile(ctx, m)
	if err != nil {
		return doesntBuild, err.Error()
	}
	switch err := r.run(ctx, program, m, testWithin+slower*took); {
	case err == nil:
		return survived, fmt.Sprintf("%s of package %s passes without %q", m.tests, m.pkg, m.behaviour)
	case strings.Contains(err.Error(), "panic: test timed out"):
		return killedLate, ""
	}
	return killed, ""
}

// compile returns the test program of a mutant, or of the package as it is if m has no file.
func (r *runner) compile(ctx context.Context, m mutant) (program string, err error) {
	dir, err := os.MkdirTemp(r.dir, "")
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "test")
	args := []string{"test", "-c", "-vet=off", "-ldflags=-w", "-o", program}
	if m.file != "" {
		overlay, err := r.overlay(dir, m)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	ctx, cancel := context.WithTimeout(ctx, compileWithin)
	defer cancel()
	return program, command(ctx, r.root, "go", append(args, "./"+m.pkg)...)
}

// run runs the tests of a mutant, and removes their program.
func (r *runner) run(ctx context.Context, program string, m mutant, within time.Duration) error {
	defer func() { _ = os.RemoveAll(filepath.Dir(program)) }()
	ctx, cancel := context.WithTimeout(ctx, within+testWithin)
	defer cancel()
	return command(ctx, filepath.Join(r.root, m.pkg), program, "-test.run", "^("+m.tests+")$", "-test.failfast", "-test.timeout", within.String())
}

// overlay writes the file with the mistake, and the list of overlaid files for the go command.
func (r *runner) overlay(dir string, m mutant) (string, error) {
	path := filepath.Join(r.root, m.file)
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed, list := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, bytes.Replace(source, []byte(m.text), []byte(m.mistake), 1), 0o600); err != nil {
		return "", err
	}
	raw, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	return list, errors.Join(err, os.WriteFile(list, raw, 0o600))
}

// said is how many bytes of a program's words an error has.
const said = 2000

// command runs a program. Its error has what the program said.
func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out[:min(said, len(out))])
	}
	return nil
}

// table shows what became of the mutants, and how many each package has killed.
func (r *runner) table() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.rows, func(x, y row) int {
		return cmp.Or(cmp.Compare(x.area, y.area), cmp.Compare(x.pkg, y.pkg), cmp.Compare(x.behaviour, y.behaviour))
	})
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	by := map[string]int{}
	for _, x := range r.rows {
		if x.verdict == killed || x.verdict == killedLate {
			by[x.pkg]++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s %s\t%s\n", x.verdict, x.area, x.behaviour, x.pkg, x.tests, x.took)
	}
	_ = w.Flush()
	for _, pkg := range slices.Sorted(maps.Keys(by)) {
		fmt.Fprintf(&out, "%d killed by %s\n", by[pkg], pkg)
	}
	return out.String()
}
