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
	"strings"
	"testing"
)

var updateLanguage = flag.Bool("update-language", false, "rewrite language.json with the present counts")

// language has counts that may only become better: see the page of style in
// CONTRIBUTING.md.
type language struct {
	// VaryingLogs are calls of a logger whose message is no constant of its package.
	VaryingLogs int
	// Tells are uses of "tells" in Go files and documents.
	Tells int
	// WithoutExample are importable packages without an Example.
	WithoutExample int
	// CommentPercent is the share of comment lines in files that are not tests.
	CommentPercent int
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
		varying = append(varying, varyingLogs(fset, files)...)
		if from, _ := room(p.ImportPath); p.Name != "main" && from != "" && !strings.Contains(p.ImportPath, "/internal") && !hasExample(t, p.Dir) {
			got.WithoutExample++
			t.Log("no example:", p.ImportPath)
		}
	}
	got.VaryingLogs, got.CommentPercent, got.Tells = len(varying), 100*comments/code, tells(t)
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
	if got.VaryingLogs > want.VaryingLogs || got.Tells > want.Tells || got.WithoutExample > want.WithoutExample || got.CommentPercent < want.CommentPercent {
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

// varyingLogs finds messages of zap's loggers that are neither a string nor the name
// of a constant or of a parameter that callers give strings for.
func varyingLogs(fset *token.FileSet, files []*ast.File) (out []string) {
	constants := map[string]bool{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
				for _, s := range d.Specs {
					for _, name := range s.(*ast.ValueSpec).Names {
						constants[name.Name] = true
					}
				}
			}
			return true
		})
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			fun, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !isLevel(fun.Sel.Name) || !isLogger(fun.X) {
				return true
			}
			switch m := call.Args[0].(type) {
			case *ast.BasicLit:
				return true
			case *ast.Ident:
				if constants[m.Name] {
					return true
				}
			}
			out = append(out, fset.Position(call.Pos()).String())
			return true
		})
	}
	return out
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

var tellsWord = regexp.MustCompile(`\b[Tt]ells\b`)

// tells counts the word in Go files and documents, but for the page that forbids it,
// the changelog and this file.
func tells(t *testing.T) (n int) {
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
		n += len(tellsWord.FindAll(text, -1))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
