// Package apilist lists the exported names of a package, one on each line. The list is a
// file in the repository, so that a review shows a change of the API as changed lines.
//
// It reads syntax only: types with the same name in two packages are not distinguished,
// and the methods of an embedded type are listed with that type. Names of parameters
// are left out, since callers do not depend on them.
package apilist

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// Package lists the exported names of the files of a directory, sorted. Each line
// begins with the package's path.
func Package(path, dir string, files []string) ([]string, error) {
	l := &lister{prefix: "pkg " + path + ", ", fset: token.NewFileSet()}
	for _, name := range files {
		f, err := parser.ParseFile(l.fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.FileExports(f)
		ast.Inspect(f, plain)
		for _, d := range f.Decls {
			l.declaration(d)
		}
	}
	slices.Sort(l.lines)
	return slices.Compact(l.lines), nil
}

// plain removes the names of parameters and results from function types. From struct
// types it removes the mark for which go/printer adds "contains filtered or unexported
// fields". It always returns true, for ast.Inspect.
func plain(n ast.Node) bool {
	switch t := n.(type) {
	case *ast.FuncType:
		unnamed(t.Params)
		unnamed(t.Results)
	case *ast.StructType:
		t.Incomplete = false
	}
	return true
}

func unnamed(list *ast.FieldList) {
	if list == nil {
		return
	}
	var out []*ast.Field
	for _, f := range list.List {
		for range max(len(f.Names), 1) {
			out = append(out, &ast.Field{Type: f.Type})
		}
	}
	list.List = out
}

type lister struct {
	prefix string
	fset   *token.FileSet
	lines  []string
}

func (l *lister) add(format string, args ...any) {
	l.lines = append(l.lines, l.prefix+fmt.Sprintf(format, args...))
}

func (l *lister) declaration(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		d.Body = nil
		if d.Recv == nil {
			l.add("%s", l.text(d))
			return
		}
		d.Recv.List[0].Names = nil
		if on := l.text(d.Recv.List[0].Type); ast.IsExported(strings.TrimPrefix(on, "*")) {
			l.add("method %s", strings.TrimPrefix(l.text(d), "func "))
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				l.typed(s)
			case *ast.ValueSpec:
				l.values(d.Tok, s)
			}
		}
	}
}

// values lists constants or variables. A constant is listed with its value if the source
// gives one.
func (l *lister) values(tok token.Token, s *ast.ValueSpec) {
	for i, n := range s.Names {
		line := tok.String() + " " + n.Name
		if s.Type != nil {
			line += " " + l.text(s.Type)
		}
		if tok == token.CONST && len(s.Values) == len(s.Names) {
			line += " = " + l.text(s.Values[i])
		}
		l.add("%s", line)
	}
}

// typed lists a type with the fields of a struct or the methods of an interface, one on
// each line. One line stands for all unexported methods, because one such method is enough
// to prevent other packages from implementing the interface.
func (l *lister) typed(s *ast.TypeSpec) {
	kind, members := "", (*ast.FieldList)(nil)
	switch t := s.Type.(type) {
	case *ast.StructType:
		kind, members = "struct", t.Fields
		t.Fields = &ast.FieldList{}
	case *ast.InterfaceType:
		kind, members = "interface", t.Methods
		if t.Incomplete {
			l.add("type %s interface, unexported methods", s.Name.Name)
		}
		t.Methods, t.Incomplete = &ast.FieldList{}, false
	}
	l.add("type %s", strings.TrimSuffix(l.text(s), " { }"))
	if members == nil {
		return
	}
	for _, m := range members.List {
		if len(m.Names) == 0 {
			l.add("type %s %s, embedded %s", s.Name.Name, kind, l.text(m.Type))
		}
		for _, n := range m.Names {
			text := " " + l.text(m.Type)
			if kind == "interface" {
				text = strings.TrimPrefix(text, " func")
			}
			l.add("type %s %s, %s%s", s.Name.Name, kind, n.Name, text)
		}
	}
}

// text formats a syntax node in one line.
func (l *lister) text(n ast.Node) string {
	var b bytes.Buffer
	if err := (&printer.Config{Mode: printer.RawFormat}).Fprint(&b, l.fset, n); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
