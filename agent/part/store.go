package part

import (
	"context"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/checkpoint"
)

// Store keeps small values over a restart of the agent; see
// [checkpoint.Lazy]. A part calls it off the loop, and under no lock that the
// loop wants: a disk may hang, and is given up after half a minute.
type Store interface {
	// Read returns an error that is fs.ErrNotExist if there is no value.
	Read(key string) ([]byte, error)
	Write(key string, value []byte) error
	Delete(key string) error
	Keys() ([]string, error)
}

// AsideStore is a [Store] that can put a value out of the way. Whoever means a store
// of their own to be one says so to the compiler:
//
//	var _ part.AsideStore = (*Mine)(nil)
type AsideStore interface {
	SetAside(key string, cause error) error
}

// ContextWriter is a [Store] whose writes end with a context.
type ContextWriter interface {
	WriteContext(ctx context.Context, key string, value []byte) error
}

// ContextDeleter is a [Store] whose deletions end with a context.
type ContextDeleter interface {
	DeleteContext(ctx context.Context, key string) error
}

// DirStore is a [Store] that is a directory, which is there from the first value on.
type DirStore interface {
	Dir() string
}

// SetAside puts a value out of the way that its reader does not understand, so that
// a person can look at it: see [checkpoint.Store.SetAside]. A store that is no
// [AsideStore] keeps the value.
func SetAside(s Store, key string, cause error) error {
	if a, ok := s.(AsideStore); ok {
		return a.SetAside(key, cause)
	}
	return nil
}

// Write is the Write of a store, until ctx ends: see
// [checkpoint.Store.WriteContext]. A store without that waits for its disk.
func Write(ctx context.Context, s Store, key string, value []byte) error {
	if c, ok := s.(ContextWriter); ok {
		return c.WriteContext(ctx, key, value)
	}
	return s.Write(key, value)
}

// Delete is the Delete of a store, until ctx ends, as [Write].
func Delete(ctx context.Context, s Store, key string) error {
	if c, ok := s.(ContextDeleter); ok {
		return c.DeleteContext(ctx, key)
	}
	return s.Delete(key)
}

// OpenStore returns the store in dir, which is made when the first value is
// written. A value that is found damaged is set aside with a line in the log.
func OpenStore(dir string, log *zap.Logger) *checkpoint.Lazy { return openStore(dir, log, false) }

// OpenVolatileStore is [OpenStore] for values that need not outlast a failure of
// the machine: nothing is synced.
func OpenVolatileStore(dir string, log *zap.Logger) *checkpoint.Lazy {
	return openStore(dir, log, true)
}

func openStore(dir string, log *zap.Logger, noSync bool) *checkpoint.Lazy {
	if log == nil {
		log = zap.NewNop()
	}
	return checkpoint.NewLazy(checkpoint.Config{Dir: dir, NoSync: noSync, OnCorrupt: func(key, aside string, err error) {
		log.Error("damaged checkpoint set aside", zap.String("of", filepath.Base(dir)), zap.String("key", key), zap.String("file", aside), zap.Error(err))
	}})
}
