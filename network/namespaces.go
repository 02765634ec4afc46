package network

import (
	"context"
	"errors"
	"os"
)

// Space describes a path at which a network namespace may be.
type Space struct {
	Kind SpaceKind
	// ID distinguishes namespaces that exist at the same time. It is 0 unless Kind is SpaceNamed.
	ID uint64
}

// SpaceKind is the kind of file at a path.
type SpaceKind uint8

// The kinds of a [Space].
const (
	SpaceNone    SpaceKind = iota // nothing
	SpaceEmpty                    // an empty file, to bind a namespace to
	SpaceNamed                    // a network namespace
	SpaceForeign                  // anything else, such as another mount
)

// ErrForeign means that the path has a file that does not belong to this network.
var ErrForeign = errors.New("not a network namespace of this network")

// Namespaces creates and removes network namespaces at paths. The default creates them
// in the kernel; network/networktest has an implementation for tests without root.
// Calls for different paths are concurrent. The kernel's implementation does not wait
// for processes or sockets inside a namespace.
type Namespaces interface {
	// Make creates a namespace with its loopback interface up and binds it to path, whose
	// directory is created if needed. If path exists, Make returns fs.ErrExist. owner is the user
	// namespace that owns the new namespace. If owner is nil, the caller's user namespace owns
	// it. After an error nothing of the namespace is left.
	Make(ctx context.Context, path string, owner *os.File) (id uint64, err error)
	// Look returns the kind of file at path.
	Look(path string) (Space, error)
	// Remove removes the namespace with that ID at path. If id is 0, it removes any namespace or
	// an empty file. If path has anything else, it is kept, and the error is [ErrForeign]. It is
	// not an error if the path does not exist.
	Remove(path string, id uint64) error
	// List returns the entries of the directory, at most limit. A missing directory has none.
	List(dir string, limit int) ([]string, error)
}
