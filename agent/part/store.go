package part

import (
	"context"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/checkpoint"
)

// Store stores small values over a restart of the agent; see [checkpoint.Lazy]. A part must not
// call it on the loop, or with a lock that the loop takes: if the disk hangs, a call returns after
// half a minute.
type Store interface {
	// Read returns the value of a key. If there is none, the error wraps fs.ErrNotExist.
	Read(key string) ([]byte, error)
	Write(key string, value []byte) error
	Delete(key string) error
	Keys() ([]string, error)
}

// AsideStore is a [Store] that can rename a value that cannot be decoded. An implementation can
// assert this at compile time:
//
//	var _ part.AsideStore = (*Mine)(nil)
type AsideStore interface {
	SetAside(key string, cause error) error
}

// ContextWriter is a [Store] whose writes can be cancelled by a context.
type ContextWriter interface {
	WriteContext(ctx context.Context, key string, value []byte) error
}

// ContextDeleter is a [Store] whose deletions can be cancelled by a context.
type ContextDeleter interface {
	DeleteContext(ctx context.Context, key string) error
}

// DirStore is a [Store] in a directory, which is created with the first value.
type DirStore interface {
	Dir() string
}

// SetAside renames a value that cannot be decoded, so that a person can look at it: see
// [checkpoint.Store.SetAside]. It does nothing if the store is not an [AsideStore].
func SetAside(s Store, key string, cause error) error {
	if a, ok := s.(AsideStore); ok {
		return a.SetAside(key, cause)
	}
	return nil
}

// Write writes a value to a store. If the store is a [ContextWriter], it returns when ctx ends;
// otherwise it waits for the disk. See [checkpoint.Store.WriteContext].
func Write(ctx context.Context, s Store, key string, value []byte) error {
	if c, ok := s.(ContextWriter); ok {
		return c.WriteContext(ctx, key, value)
	}
	return s.Write(key, value)
}

// Delete deletes a value from a store, and returns when ctx ends if the store is a
// [ContextDeleter]; otherwise it waits for the disk.
func Delete(ctx context.Context, s Store, key string) error {
	if c, ok := s.(ContextDeleter); ok {
		return c.DeleteContext(ctx, key)
	}
	return s.Delete(key)
}

// OpenStore returns the store in dir, which is created when the first value is written. A damaged
// value is renamed and logged.
func OpenStore(dir string, log *zap.Logger) *checkpoint.Lazy { return openStore(dir, log, false) }

// OpenVolatileStore is [OpenStore] without fsync, for values that need not survive a power
// failure.
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
