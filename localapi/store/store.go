package store

import (
	"context"
	"errors"
	"time"
)

// Errors of a [Store].
var (
	// ErrConflict means that the document is not at the revision that the caller named. The
	// file was left alone; read the object again before you decide.
	ErrConflict = errors.New("the file has been changed by somebody else")
	// ErrTooLarge means that a document is too large to be kept. Nothing was written.
	ErrTooLarge = errors.New("the object is too large to be kept")
)

// Document is one object as it is kept.
type Document struct {
	// Name distinguishes documents: the name of the file.
	Name string
	// Revision is that of its content; "" if there is none.
	Revision string
	// Object is JSON; nil if it cannot be read, and Err says why, or if it is gone.
	Object []byte
	// Notes are bytes without meaning to people, kept beside the object: one line.
	Notes []byte
	// Err is why Object cannot be read. The document is still there, and its file stays
	// as it is, so that the person who wrote it can correct it.
	Err error
	// By and At are who wrote it, and when; they are in the file for people to read.
	By string
	At time.Time
}

// Gone reports whether there is no such document any more.
func (d *Document) Gone() bool { return d.Object == nil && d.Err == nil }

// Store keeps documents. Load is called first, and once; then Watch may run beside
// the others, of which one is called at a time.
type Store interface {
	// Load returns all documents, those that cannot be read included. An error means
	// that nothing is known.
	Load(ctx context.Context) ([]Document, error)
	// Put keeps a document in place of the one of its name at the revision was, ""
	// for none, and returns the revision of the new one.
	Put(d Document, was string) (revision string, err error)
	// Delete removes a document that is at a revision. One that is not there is no
	// error.
	Delete(name, was string) error
	// Reserve returns the first of n numbers that no earlier caller has got, nor will a
	// later one, over all restarts.
	Reserve(n uint64) (first uint64, err error)
	// Watch calls changed with documents that others have changed, until ctx ends.
	// It never blocks a writer.
	Watch(ctx context.Context, changed func([]Document)) error
}
