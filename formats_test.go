package nodewright_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// formatRow is a row of docs/reference/formats.md.
type formatRow struct{ section, files, by, envelope, version, lost, remove string }

// formatRows are the rows of the tables in docs/reference/formats.md.
func formatRows(t *testing.T) (rows []formatRow) {
	t.Helper()
	b, err := os.ReadFile("docs/reference/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	section := ""
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(name)
		}
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 8 || !strings.Contains(cells[1], "`") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, formatRow{section, cells[1], cells[2], cells[3], cells[4], cells[5], cells[6]})
	}
	return rows
}

// storeMakers are the functions that open a directory of records, and which argument says
// where it is. Those of the packages in storeDefiners make stores of what they are given.
var (
	storeMakers   = map[string]bool{"Store": true, "store": true, "OpenStore": true, "OpenVolatileStore": true, "Open": true, "NewLazy": true}
	storeDefiners = []string{"agent/part/store.go", "nodeagent/builder.go", "agent/blocks.go:OpenStore", "checkpoint"}
)

// Every directory of records that the code opens is in the table, and every row has a
// version. What has no version of its own is in an envelope that has one, or is no format of ours.
func TestFormats(t *testing.T) {
	rows := formatRows(t)
	if len(rows) < 20 {
		t.Fatalf("%d rows", len(rows))
	}
	ours := regexp.MustCompile(`checkpoint 1|network 1`)
	foreign := regexp.MustCompile(`kubelet|PEM|no content|text|overlay|program|runtime|container|32 bytes|v1|CNI|OCI`)
	files := ""
	for _, r := range rows {
		files += r.files + "\n"
		numbered := regexp.MustCompile(`^\d`).MatchString(r.version)
		if !numbered && !ours.MatchString(r.envelope) && !foreign.MatchString(r.envelope+" "+r.version) {
			t.Errorf("%s: neither the envelope, %q, nor the value, %q, has a version", r.files, r.envelope, r.version)
		}
		if r.by == "" || r.lost == "" || r.remove == "" {
			t.Errorf("%s: by %q, lost %q, delete %q", r.files, r.by, r.lost, r.remove)
		}
	}
	for _, p := range list(t) {
		within := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if slices.Contains(storeDefiners, within) || strings.HasPrefix(within, "examples/") || strings.HasPrefix(within, "internal/") {
			continue
		}
		stores(t, p.Dir, within, p.GoFiles, func(where string, names []string) {
			for _, n := range names {
				if strings.Contains(files, "`"+n+"/") || strings.Contains(files, "/"+n+"/") {
					return
				}
			}
			t.Errorf("%s: the store of %q is not in docs/reference/formats.md", where, names)
		})
	}
}

// stores calls found for each directory of records that a package opens, with the names
// in the expression of its path.
func stores(t *testing.T, dir, within string, goFiles []string, found func(where string, names []string)) {
	t.Helper()
	fset := token.NewFileSet()
	consts := map[string]string{}
	var parsed []*ast.File
	for _, name := range goFiles {
		f, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
		ast.Inspect(f, func(n ast.Node) bool {
			if fn, ok := n.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Body != nil && len(fn.Body.List) == 1 { // a path by a function
				if all := texts(fn.Body, nil); len(all) == 1 {
					consts[fn.Name.Name] = all[0]
				}
			}
			if v, ok := n.(*ast.ValueSpec); ok {
				for i, id := range v.Names {
					if i < len(v.Values) {
						if l, ok := v.Values[i].(*ast.BasicLit); ok && l.Kind == token.STRING {
							consts[id.Name], _ = strconv.Unquote(l.Value)
						}
					}
				}
			}
			return true
		})
	}
	for i, f := range parsed {
		file := within + "/" + goFiles[i]
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 || !opensRecords(call) || slices.Contains(storeDefiners, file) {
				return true
			}
			names := texts(call.Args[0], consts)
			if len(names) == 0 && (slices.Contains(storeDefiners, file+":"+calledName(call)) || strings.EqualFold(calledName(call), "Store")) {
				return true // a sync.Map has such a method, too
			}
			found(file, names)
			return true
		})
	}
}

func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// opensRecords reports whether a call is one of storeMakers: of package checkpoint only those with a
// Config, and of methods named Store only those that are given names.
func opensRecords(call *ast.CallExpr) bool {
	name := calledName(call)
	if !storeMakers[name] {
		return false
	}
	switch name {
	case "Open", "NewLazy":
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		pkg, ok := sel.X.(*ast.Ident)
		return ok && pkg.Name == "checkpoint"
	case "Store", "store":
		return len(call.Args) == 2
	}
	return true
}

// texts are the strings in an expression, those of constants included, and their last
// elements.
func texts(e ast.Node, consts map[string]string) (out []string) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				out = append(out, s)
			}
		case *ast.Ident:
			if s, ok := consts[n.Name]; ok {
				out = append(out, s)
			}
		case *ast.FuncLit:
			return false // what is said of a damaged record
		}
		return true
	})
	return out
}
