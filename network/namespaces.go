package network

import (
	"context"
	"errors"
	"os"
)

// Space is what there is at a path where a network namespace may be.
type Space struct {
	Kind SpaceKind
	// ID distinguishes namespaces that exist at the same time; 0 unless Kind is
	// SpaceNamed.
	ID uint64
}

// SpaceKind is the owner of a namespace.
type SpaceKind uint8

// The kinds of a [Space].
const (
	SpaceNone    SpaceKind = iota // there is nothing
	SpaceEmpty                    // an empty file, to bind a namespace to
	SpaceNamed                    // a network namespace
	SpaceForeign                  // anything else, such as another mount
)

// ErrForeign means that something is at the path that is not to be touched.
var ErrForeign = errors.New("not a network namespace of this network")

// Namespaces makes and removes network namespaces at paths. The kernel's are
// the default; network/networktest has some for tests that are not root.
// Calls for different paths come at once. The kernel's do not wait for
// processes or sockets inside a namespace.
type Namespaces interface {
	// Make makes a namespace with its loopback interface up and binds it to
	// path, whose directory is made if need be; an fs.ErrExist, if anything is
	// there. owner is the user namespace that it shall belong to; nil is the
	// caller's. After an error nothing is left.
	Make(ctx context.Context, path string, owner *os.File) (id uint64, err error)
	// Look says what is at path.
	Look(path string) (Space, error)
	// Remove removes what Make made: the namespace of that ID, any namespace if
	// id is 0, or an empty file. Anything else stays, with an [ErrForeign];
	// nothing there is no error.
	Remove(path string, id uint64) error
	// List names the entries of the directory, at most limit; none if it does
	// not exist.
	List(dir string, limit int) ([]string, error)
}
