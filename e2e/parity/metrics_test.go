package parity_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// metricNames are the names of the metrics in the packages that the kubelet is made
// of, but for those of other programs, read from the options and descriptions that they are declared with. The list
// that Kubernetes has of them is in no module.
func metricNames(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}} {{.Dir}}{{end}}", "k8s.io/kubernetes/cmd/kubelet").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	s := source{constants: map[string]map[string]ast.Expr{}, dirs: map[string]string{}}
	type file struct {
		dir string
		*ast.File
	}
	var files []file
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 2 || !strings.HasPrefix(f[0], "k8s.io/") || slices.ContainsFunc(notTheKubelets, func(p string) bool { return strings.Contains(f[0]+"/", p) }) {
			continue
		}
		dir := f[1]
		s.dirs[f[0]] = dir
		s.constants[dir] = map[string]ast.Expr{}
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			name := e.Name()
			if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "zz_generated") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			s.keep(dir, f)
			files = append(files, file{dir, f})
		}
	}
	names := map[string]bool{}
	for _, f := range files {
		s.imports = imports(f.File)
		ast.Inspect(f.File, func(n ast.Node) bool {
			if name := s.metric(f.dir, n); name != "" {
				names[name] = true
			}
			return true
		})
	}
	return slices.Sorted(maps.Keys(names))
}

// notTheKubelets are parts of the paths of packages that the kubelet is linked with and whose
// metrics are those of other programs.
var notTheKubelets = []string{"k8s.io/apiserver/", "k8s.io/apiextensions-apiserver/", "/scheduler/", "/pkg/controller/", "k8s.io/kube-scheduler/"}

// source are the constants of packages.
type source struct {
	constants map[string]map[string]ast.Expr // by directory and name
	dirs      map[string]string              // by the package's path
	imports   map[string]string              // of the file that is read: paths by name
}

func imports(f *ast.File) map[string]string {
	out := map[string]string{}
	for _, i := range f.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		name := filepath.Base(path)
		if i.Name != nil {
			name = i.Name.Name
		}
		out[name] = path
	}
	return out
}

func (s source) keep(dir string, file *ast.File) {
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, sp := range g.Specs {
			v := sp.(*ast.ValueSpec)
			for i, name := range v.Names {
				if i < len(v.Values) {
					s.constants[dir][name.Name] = v.Values[i]
				}
			}
		}
	}
}

// text is the string that an expression is; "" if it is none that can be read.
func (s source) text(dir string, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		v, _ := strconv.Unquote(e.Value)
		return v
	case *ast.Ident:
		if c := s.constants[dir][e.Name]; c != nil && c != e {
			return s.text(dir, c)
		}
	case *ast.BinaryExpr:
		return s.text(dir, e.X) + s.text(dir, e.Y)
	case *ast.CallExpr:
		if len(e.Args) == 1 { // a conversion
			return s.text(dir, e.Args[0])
		}
	case *ast.SelectorExpr:
		pkg, ok := e.X.(*ast.Ident)
		if !ok {
			return ""
		}
		other := s.dirs[s.imports[pkg.Name]]
		if c := s.constants[other][e.Sel.Name]; c != nil {
			return s.text(other, c)
		}
	}
	return ""
}

func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "_")
}

// metric is the name of the metric that a node declares.
func (s source) metric(dir string, n ast.Node) string {
	switch n := n.(type) {
	case *ast.CompositeLit:
		if !strings.HasSuffix(last(n.Type), "Opts") {
			return ""
		}
		parts := map[string]string{}
		for _, e := range n.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				parts[last(kv.Key)] = s.text(dir, kv.Value)
			}
		}
		if parts["Name"] != "" {
			return joined(parts["Namespace"], parts["Subsystem"], parts["Name"])
		}
	case *ast.CallExpr:
		if last(n.Fun) != "NewDesc" || len(n.Args) == 0 {
			return ""
		}
		if name, ok := n.Args[0].(*ast.CallExpr); ok && last(name.Fun) == "BuildFQName" && len(name.Args) == 3 {
			return joined(s.text(dir, name.Args[0]), s.text(dir, name.Args[1]), s.text(dir, name.Args[2]))
		}
		return s.text(dir, n.Args[0])
	}
	return ""
}

// last is the last name of an expression.
func last(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
