package store

import (
	"context"
	"errors"
	"time"
)

// Errors of a [Store].
var (
	// ErrConflict means that the document does not have the revision that the caller named. The
	// file was not changed. Read the object again before you decide.
	ErrConflict = errors.New("the file was changed by another program")
	// ErrTooLarge means that a document is too large to be stored. Nothing was written.
	ErrTooLarge = errors.New("the object is too large to store")
)

// Document is one stored object.
type Document struct {
	// Name is the unique name of the document: the file's name.
	Name string
	// Revision is the revision of its content; "" if there is none.
	Revision string
	// Object is JSON. It is nil if the document is gone, or cannot be read; then Err says why.
	Object []byte
	// Notes are stored beside the object, for programs only: one line.
	Notes []byte
	// Err says why Object cannot be read. The file is not changed, so that its author can correct
	// it.
	Err error
	// By and At are the author and the time of the last write. They are written to the file for
	// people who read it.
	By string
	At time.Time
}

// Gone reports whether the document no longer exists.
func (d *Document) Gone() bool { return d.Object == nil && d.Err == nil }

// Store stores documents. Load is called once, before all other methods. Afterwards Watch may
// run concurrently with the other methods, which are called one at a time.
type Store interface {
	// Load returns all documents, including those that cannot be read. An error means that no
	// document is known.
	Load(ctx context.Context) ([]Document, error)
	// Put stores a document and returns the new revision. It replaces the document with the
	// same name, which must have the revision was; "" means that there must be none.
	Put(d Document, was string) (revision string, err error)
	// Delete removes a document, which must have the revision was. A missing document is
	// not an error.
	Delete(name, was string) error
	// Reserve returns the first of n numbers that no other call returns, before or later, even
	// after restarts.
	Reserve(n uint64) (first uint64, err error)
	// Watch calls changed with documents that people or other programs have changed, until ctx
	// ends. It does not block writers.
	Watch(ctx context.Context, changed func([]Document)) error
}
