package nodewright_test

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var updateLanguage = flag.Bool("update-language", false, "rewrite language.json with the present counts")

// language has counts that may only become better: see the page of style in
// CONTRIBUTING.md.
type language struct {
	// VaryingLogs are calls of a logger whose message is no constant of its package.
	VaryingLogs int
	// OwnWords are words of our own in Go files and documents, which CONTRIBUTING.md has
	// the field's words for.
	OwnWords int
	// Importable are packages that others may import, without the root.
	Importable int
	// WithoutExample are importable packages without an Example.
	WithoutExample int
	// CommentPercent is the share of comment lines in files that are not tests.
	CommentPercent int
	// CoreCommentPercent is the least share of a core package, among its lines that are
	// not blank.
	CoreCommentPercent int
}

// core are the packages that an embedder reads before the others: the blocks.
var core = []string{
	"agent", "cgroups", "checkpoint", "cpumgr", "cri", "csi", "devicemgr", "dra", "eviction", "fit", "gc",
	"images", "numa", "pleg", "podmgr", "podruntime", "podspec", "podstatus", "podworker", "probe", "statusmgr", "topology", "volumemgr",
}

func TestLanguage(t *testing.T) {
	raw, err := os.ReadFile("language.json")
	if err != nil {
		t.Fatal(err)
	}
	var want language
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	var got language
	var varying []string
	code, comments := 0, 0
	got.CoreCommentPercent = 100
	for _, p := range list(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		fset := token.NewFileSet()
		var files []*ast.File
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, f), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
			all, commented := lines(fset, file)
			code, comments = code+all, comments+commented
		}
		if slices.Contains(core, strings.TrimPrefix(p.ImportPath, module+"/")) {
			share := coreShare(t, p.Dir, p.GoFiles)
			got.CoreCommentPercent = min(got.CoreCommentPercent, share)
			if share < want.CoreCommentPercent {
				t.Log("comments:", p.ImportPath, share)
			}
		}
		varying = append(varying, varyingLogs(fset, files)...)
		if p.importable() {
			got.Importable++
			if !hasExample(t, p.Dir) {
				got.WithoutExample++
				t.Log("no example:", p.ImportPath)
			}
		}
	}
	got.VaryingLogs, got.CommentPercent, got.OwnWords = len(varying), 100*comments/code, ownWords(t)
	for _, v := range varying {
		t.Log("message is not constant:", v)
	}
	if *updateLanguage {
		b, err := json.MarshalIndent(got, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("language.json", append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got.VaryingLogs > want.VaryingLogs || got.OwnWords > want.OwnWords || got.Importable > want.Importable || got.WithoutExample > want.WithoutExample || got.CommentPercent < want.CommentPercent || got.CoreCommentPercent < want.CoreCommentPercent {
		t.Errorf("%+v, which is worse than language.json has: %+v (-v lists the places)", got, want)
	}
}

// lines counts the lines of a file, and those that are comments alone.
func lines(fset *token.FileSet, file *ast.File) (all, commented int) {
	for _, g := range file.Comments {
		commented += fset.Position(g.End()).Line - fset.Position(g.Pos()).Line + 1
	}
	return fset.File(file.Pos()).LineCount(), commented
}

// coreShare returns the percentage of lines that are comments alone, blank lines aside.
func coreShare(t *testing.T, dir string, files []string) int {
	all, comments := 0, 0
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			all++
			if strings.HasPrefix(line, "//") {
				comments++
			}
		}
	}
	return 100 * comments / all
}

// varyingLogs finds messages of zap's loggers that are neither a string nor the name
// of a constant. A function that logs one of its parameters is a logger itself: its
// callers are looked at.
func varyingLogs(fset *token.FileSet, files []*ast.File) (out []string) {
	constants := map[string]bool{}
	each(files, func(n ast.Node) {
		if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for _, s := range d.Specs {
				for _, name := range s.(*ast.ValueSpec).Names {
					constants[name.Name] = true
				}
			}
		}
	})
	wrappers := map[string]int{} // to the parameter that is the message
	for before := -1; before != len(wrappers); {
		before, out = len(wrappers), nil
		functions(files, func(name string, typ *ast.FuncType, body ast.Node) {
			ast.Inspect(body, func(n ast.Node) bool {
				message := messageOf(n, wrappers)
				switch m := message.(type) {
				case nil, *ast.BasicLit:
					return true
				case *ast.Ident:
					if constants[m.Name] {
						return true
					}
					if i := parameter(typ, m.Name); i >= 0 {
						wrappers[name] = i
						return true
					}
				}
				out = append(out, fset.Position(n.Pos()).String())
				return true
			})
		})
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func each(files []*ast.File, visit func(ast.Node)) {
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool { visit(n); return true })
	}
}

// functions visits functions and the literals that have a name in them, each apart.
func functions(files []*ast.File, visit func(name string, typ *ast.FuncType, body ast.Node)) {
	each(files, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil {
				visit(n.Name.Name, n.Type, withoutNamed(n.Body))
			}
		case *ast.AssignStmt:
			if name, lit := named(n); lit != nil {
				visit(name, lit.Type, withoutNamed(lit.Body))
			}
		}
	})
}

// named returns the function literal of name := func..., or nil.
func named(n ast.Node) (string, *ast.FuncLit) {
	if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == 1 && len(a.Rhs) == 1 {
		if lit, ok := a.Rhs[0].(*ast.FuncLit); ok {
			if id, ok := a.Lhs[0].(*ast.Ident); ok {
				return id.Name, lit
			}
		}
	}
	return "", nil
}

// withoutNamed is a body without the literals that functions visits by themselves.
func withoutNamed(body *ast.BlockStmt) ast.Node {
	out := &ast.BlockStmt{}
	for _, s := range body.List {
		if _, lit := named(s); lit == nil {
			out.List = append(out.List, s)
		}
	}
	return out
}

// messageOf is the message of a call of a logger, or nil.
func messageOf(n ast.Node, wrappers map[string]int) ast.Expr {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return nil
	}
	switch fun := call.Fun.(type) {
	case *ast.SelectorExpr:
		if isLevel(fun.Sel.Name) && isLogger(fun.X) && len(call.Args) > 0 {
			return call.Args[0]
		}
		if i, ok := wrappers[fun.Sel.Name]; ok && i < len(call.Args) {
			return call.Args[i]
		}
	case *ast.Ident:
		if i, ok := wrappers[fun.Name]; ok && i < len(call.Args) {
			return call.Args[i]
		}
	}
	return nil
}

// parameter is the place of a parameter of that name, or -1.
func parameter(typ *ast.FuncType, name string) int {
	i := 0
	for _, f := range typ.Params.List {
		for _, n := range f.Names {
			if n.Name == name {
				return i
			}
			i++
		}
	}
	return -1
}

func isLevel(name string) bool {
	return name == "Debug" || name == "Info" || name == "Warn" || name == "Error"
}

// isLogger goes by the name: log, Log, logger.
func isLogger(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return strings.EqualFold(x.Name, "log") || strings.EqualFold(x.Name, "logger")
	case *ast.SelectorExpr:
		return strings.EqualFold(x.Sel.Name, "log") || strings.EqualFold(x.Sel.Name, "logger")
	}
	return false
}

var example = regexp.MustCompile(`(?m)^func Example`)

func hasExample(t *testing.T, dir string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if example.Match(text) {
			return true
		}
	}
	return false
}

var ownWord = regexp.MustCompile(`\b[Tt]ells\b|\b[Ff]or want of\b|\b[Tt](?:aken|akes) up\b|\b[Tt]urned away\b`)

// itself is an error whose subject is "it": who reads it does not know what that is.
var itself = regexp.MustCompile(`(?:errors\.New|fmt\.Errorf)\("it `)

// ownWords counts such words in Go files and documents, but for the page that forbids
// them, the changelog and this file.
func ownWords(t *testing.T) (n int) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "build" || path == ".git"):
			return filepath.SkipDir
		case d.IsDir(), filepath.Ext(path) != ".go" && filepath.Ext(path) != ".md":
			return nil
		case path == "CONTRIBUTING.md", path == "CHANGELOG.md", path == "language_test.go":
			return nil
		}
		text, err := os.ReadFile(path)
		found := ownWord.FindAll(text, -1)
		if !strings.HasSuffix(path, "_test.go") {
			found = append(found, itself.FindAll(text, -1)...)
		}
		for _, word := range found {
			t.Logf("%s: %s", path, word)
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
