package nodewright_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/nodewright/nodewright"

// floors is the house: a room may import the rooms of lower floors, and none
// of its own. Packages below a room belong to it.
var floors = [][]string{
	0: {"cri", "checkpoint", "podmeta", "numa"},
	1: {"podspec", "podstatus", "topology", "cpumgr", "memmgr"},
	2: {"podworker", "pleg", "podmgr", "podruntime", "images", "statusmgr", "probe", "volumemgr", "cgroups", "eviction", "node", "gc", "pluginmgr", "devicemgr", "dra"},
	3: {"kubeapi", "server"},
	4: {"agent"},
	5: {"examples"},
}

// support holds what only tests and make run need; it may import anything,
// and only tests may import it.
const support = "internal"

// banned says which packages nobody may bring in, and who may nevertheless.
var banned = []struct {
	prefix string
	except []string
	why    string
}{
	{"k8s.io/kubernetes", nil, "it cannot be imported by those who import us"},
	{"k8s.io/client-go/kubernetes", nil, "the clientset and its scheme weigh 17 MB"},
	{"k8s.io/client-go", []string{"kubeapi"}, "only the room that talks to an API server needs it"},
}

// light lists what a room must do without, to be worth taking alone.
var light = map[string][]string{
	"checkpoint":   {"k8s.io/", "go.uber.org/", "github.com/prometheus/", "google.golang.org/"},
	"numa":         {"k8s.io/", "go.uber.org/", "github.com/prometheus/", "google.golang.org/"},
	"cpumgr":       {"k8s.io/", "go.uber.org/", "github.com/prometheus/", "google.golang.org/"},
	"memmgr":       {"k8s.io/", "go.uber.org/", "github.com/prometheus/", "google.golang.org/"},
	"topology":     {"k8s.io/", "go.uber.org/", "github.com/prometheus/", "google.golang.org/"},
	"cri/observed": {"k8s.io/api/", "k8s.io/cri-api", "google.golang.org/"},
	"podmeta":      {"k8s.io/cri-api", "google.golang.org/grpc", "go.uber.org/", "github.com/prometheus/"},
	"podstatus":    {"k8s.io/cri-api", "google.golang.org/grpc", "go.uber.org/", "github.com/prometheus/"},
	"podworker":    {"k8s.io/cri-api", "google.golang.org/grpc"},
	"pleg":         {"k8s.io/cri-api", "google.golang.org/grpc"},
	"podmgr":       {"k8s.io/cri-api", "google.golang.org/grpc"},
	"statusmgr":    {"k8s.io/cri-api", "google.golang.org/grpc"},
	"eviction":     {"k8s.io/cri-api", "google.golang.org/grpc"},
	"cgroups":      {"k8s.io/cri-api", "google.golang.org/grpc"},
	"volumemgr":    {"k8s.io/cri-api", "google.golang.org/grpc"},
	"probe":        {"k8s.io/cri-api", "google.golang.org/grpc"},
}

// pure rooms have no business with the outside world.
var pure = map[string][]string{
	"podspec":   {"os", "net/http", "time.Now", "time.Sleep"},
	"podstatus": {"os", "net/http", "time.Now", "time.Sleep"},
	"podmeta":   {"os", "net/http", "time.Now", "time.Sleep"},
	"numa":      {"os", "net/http", "time.Now", "time.Sleep"},
	"cpumgr":    {"os", "net/http", "time.Now", "time.Sleep"},
	"memmgr":    {"os", "net/http", "time.Now", "time.Sleep"},
	"topology":  {"os", "net/http", "time.Now", "time.Sleep"},
}

// pkg is what go list tells of a package.
type pkg struct {
	ImportPath string
	Name       string
	Dir        string
	Standard   bool
	GoFiles    []string
	Imports    []string
	Deps       []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Name,Dir,Standard,GoFiles,Imports,Deps", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	return pkgs
}

// room is the first part of a package's path within the module.
func room(path string) (name string, ours bool) {
	rest, ok := strings.CutPrefix(path, module)
	if !ok {
		return "", false
	}
	name, _, _ = strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	return name, true
}

func floorOf(name string) int {
	return slices.IndexFunc(floors, func(rooms []string) bool { return slices.Contains(rooms, name) })
}

func TestFloors(t *testing.T) {
	for _, p := range list(t) {
		from, _ := room(p.ImportPath)
		if from == "" || from == support {
			continue
		}
		floor := floorOf(from)
		if floor < 0 {
			t.Errorf("%s is in no room of the table", p.ImportPath)
			continue
		}
		for _, dep := range p.Imports {
			to, ours := room(dep)
			switch {
			case !ours || to == from:
			case to == support && floor == 5:
			case to == support:
				t.Errorf("%s imports %s, which is for tests", p.ImportPath, dep)
			case floorOf(to) == floor:
				t.Errorf("%s imports %s of the same floor", p.ImportPath, dep)
			case floorOf(to) > floor:
				t.Errorf("%s on floor %d imports %s on floor %d", p.ImportPath, floor, dep, floorOf(to))
			}
		}
	}
}

func TestBannedImports(t *testing.T) {
	for _, p := range list(t) {
		name, _ := room(p.ImportPath)
		within := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, dep := range p.Deps {
			for _, b := range banned {
				if floorOf(name) == 5 && len(b.except) > 0 && !slices.Contains(p.Imports, dep) {
					continue // an example has it by a room that may
				}
				if (dep == b.prefix || strings.HasPrefix(dep, b.prefix+"/")) && !slices.Contains(b.except, name) {
					t.Errorf("%s depends on %s: %s", p.ImportPath, dep, b.why)
				}
			}
			for _, prefix := range light[within] {
				if strings.HasPrefix(dep, prefix) {
					t.Errorf("%s depends on %s, which is too heavy for it", p.ImportPath, dep)
				}
			}
		}
	}
}

// No package is named for nothing, none runs code at its import, and the pure
// ones are.
func TestHabits(t *testing.T) {
	for _, p := range list(t) {
		if slices.Contains([]string{"util", "utils", "common", "helpers", "misc"}, p.Name) {
			t.Errorf("%s: the name %q says nothing", p.ImportPath, p.Name)
		}
		within := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
					t.Errorf("%s has an init function", path)
				}
			}
			for _, i := range f.Imports {
				if slices.Contains(pure[within], strings.Trim(i.Path.Value, `"`)) {
					t.Errorf("%s imports %s, and %s is pure", path, i.Path.Value, within)
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					if pure[within] != nil {
						t.Errorf("%s starts a goroutine, and %s is pure", path, within)
					}
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && slices.Contains(pure[within], x.Name+"."+n.Sel.Name) {
						t.Errorf("%s calls %s.%s, and %s is pure", path, x.Name, n.Sel.Name, within)
					}
				}
				return true
			})
		}
	}
}
