package nodewright_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLogMessagesAreConstant finds calls of a logger whose message varies: what varies is a
// field, so that one search finds every place that logs a message.
func TestLogMessagesAreConstant(t *testing.T) {
	for _, p := range list(t) {
		fset := token.NewFileSet()
		var files []*ast.File
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, f), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		for _, place := range varyingLogs(fset, files) {
			t.Errorf("%s: the message of a log entry is no constant of its package", place)
		}
	}
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
