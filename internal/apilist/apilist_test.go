package apilist

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPackage(t *testing.T) {
	dir := t.TempDir()
	const source = `package p

import "io"

const (
	A, B = 1, 2
	b    = 3
	C T  = "c"
	D    = iota
)

var V, w int

type T string

func (t T) String() string { return string(t) }
func (t *hidden) Close()   {}

type hidden struct{}

type S[K comparable, E any] struct {
	io.Reader
	F, G func(name string) (n int, err error)
	h    int
	I    interface {
		Do(x int)
	}
}

func (s *S[K, E]) Get(k K) E { panic("") }

type I interface {
	io.Closer
	M(a, b int) error
	m()
}

type Old = T

func F[X any](first, second X, rest ...string) func(int) { return nil }
func f()                                              {}
`
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Package("a/p", dir, []string{"p.go"})
	if err != nil {
		t.Fatal(err)
	}
	want := `const A = 1
const B = 2
const C T = "c"
const D = iota
func F[X any](X, X, ...string) func(int)
method (*S[K, E]) Get(K) E
method (T) String() string
type I interface
type I interface, M(int, int) error
type I interface, embedded io.Closer
type I interface, unexported methods
type Old = T
type S struct, F func(string) (int, error)
type S struct, G func(string) (int, error)
type S struct, I interface { Do(int) }
type S struct, embedded io.Reader
type S[K comparable, E any] struct
type T string
var V int`
	if text := strings.ReplaceAll(strings.Join(got, "\n"), "pkg a/p, ", ""); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if _, err := Package("a/p", dir, []string{"none.go"}); err == nil {
		t.Error("a file that is not there is listed")
	}
}
