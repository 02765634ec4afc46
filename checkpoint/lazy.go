package checkpoint

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// Lazy is a [Store] that creates its directory when the first value is written; until then, reads
// find nothing. It is safe for concurrent use.
type Lazy struct {
	cfg     Config
	opening *calls

	mu    sync.Mutex // never held during a disk call
	store *Store
}

// NewLazy returns a store that is opened by the first call that needs it. If opening fails, that
// call returns the error, and the next call tries again.
func NewLazy(cfg Config) *Lazy { return &Lazy{cfg: cfg, opening: newCalls()} }

// Dir returns the directory, which may not exist.
func (l *Lazy) Dir() string { return l.cfg.Dir }

// open returns the store. It returns nil if the directory does not exist and create
// is false.
func (l *Lazy) open(ctx context.Context, create bool) (*Store, error) {
	if s := l.opened(); s != nil {
		return s, nil
	}
	var out *Store
	if err := l.opening.do(ctx, "", func() (err error) {
		// Another call may have opened the store during the wait.
		if out = l.opened(); out != nil {
			return nil
		}
		if !create {
			if _, err := os.Stat(l.cfg.Dir); os.IsNotExist(err) {
				return nil
			}
		}
		// An existing directory is opened for reads too, to remove temporary files. A failure is
		// not stored, so the next call tries again.
		s, err := Open(l.cfg)
		if err != nil {
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.store, out = s, s
		return nil
	}); err != nil {
		return nil, fmt.Errorf("open %s: %w", l.cfg.Dir, err)
	}
	return out, nil
}

// opened returns the store, or nil if it is not open. It makes no disk call.
func (l *Lazy) opened() *Store {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.store
}

// Read reads a record, like [Store.Read].
func (l *Lazy) Read(key string) ([]byte, error) {
	ctx, cancel := bound()
	defer cancel()
	return l.ReadContext(ctx, key)
}

// ReadContext reads a record, like [Store.ReadContext].
func (l *Lazy) ReadContext(ctx context.Context, key string) ([]byte, error) {
	s, err := l.open(ctx, false)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fs.ErrNotExist
	}
	return s.ReadContext(ctx, key)
}

// Write writes a record, like [Store.Write].
func (l *Lazy) Write(key string, value []byte) error {
	ctx, cancel := bound()
	defer cancel()
	return l.WriteContext(ctx, key, value)
}

// WriteContext writes a record, like [Store.WriteContext].
func (l *Lazy) WriteContext(ctx context.Context, key string, value []byte) error {
	s, err := l.open(ctx, true)
	if err != nil {
		return err
	}
	return s.WriteContext(ctx, key, value)
}

// SetAside sets a record aside, like [Store.SetAside].
func (l *Lazy) SetAside(key string, cause error) error {
	ctx, cancel := bound()
	defer cancel()
	s, err := l.open(ctx, false)
	if s == nil {
		return err
	}
	return s.SetAside(key, cause)
}

// Delete deletes a record, like [Store.Delete].
func (l *Lazy) Delete(key string) error {
	ctx, cancel := bound()
	defer cancel()
	return l.DeleteContext(ctx, key)
}

// DeleteContext deletes a record, like [Store.DeleteContext].
func (l *Lazy) DeleteContext(ctx context.Context, key string) error {
	s, err := l.open(ctx, false)
	if s == nil {
		return err
	}
	return s.DeleteContext(ctx, key)
}

// Keys returns the keys, like [Store.Keys].
func (l *Lazy) Keys() ([]string, error) {
	ctx, cancel := bound()
	defer cancel()
	return l.KeysContext(ctx)
}

// KeysContext returns the keys, like [Store.KeysContext].
func (l *Lazy) KeysContext(ctx context.Context) ([]string, error) {
	s, err := l.open(ctx, false)
	if s == nil {
		return nil, err
	}
	return s.KeysContext(ctx)
}
