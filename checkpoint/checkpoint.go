package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/safefile"
)

// MaxValue is the most bytes that a value may have. No more is ever read of a file. A
// value is in memory twice while it is written.
const MaxValue = 64 << 20

// defaultTimeout is longer than a slow disk takes for its syncs, and shorter than
// people wait.
const defaultTimeout = 30 * time.Second

// Config holds what a Store needs. Dir is required; the zero value of every other
// field means the default named beside it.
type Config struct {
	// Dir is made, for its owner alone, if it is not there.
	Dir string
	// Timeout bounds the calls that take no context; 30s.
	Timeout time.Duration
	// OnCorrupt is told of each value that was found damaged and where it was set
	// aside ("" if not even that was possible), from any goroutine and for several
	// keys at a time; nobody is told. It is called while the key's other calls wait,
	// so that it must not make one itself.
	OnCorrupt func(key, setAside string, err error)
	// NoSync is for values that need not outlast a failure of the power or
	// the kernel: what dies with the machine anyway, such as facts about
	// running containers. Nothing is synced, which on a slow disk makes a
	// Write a hundred times faster. Against a crash of the process it is as
	// atomic as ever; after one of the machine a value may be the old one,
	// the new one, or damaged, which is told and counts as not there.
	NoSync bool

	// files is the operating system; tests put another in its place.
	files durable.Disk
}

// ErrCorrupt is in the tree of the error that Config.OnCorrupt gets.
var ErrCorrupt = errors.New("checkpoint is damaged")

// Store is a directory of values.
type Store struct {
	cfg   Config
	dir   durable.Dir
	calls *calls
}

// Open makes the directory ready and clears away what a crash left behind. It waits
// for the disk: see [Lazy].
func Open(cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, dir: durable.Dir{Path: cfg.Dir, Disk: &sharedSyncs{Disk: cfg.files}, Sync: !cfg.NoSync}, calls: newCalls()}
	if err := s.dir.Prepare(); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return s, nil
}

// withDefaults checks the configuration and returns it with every field set but
// OnCorrupt. Files and the directory are for their owner alone, as values may have
// secrets.
func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("checkpoint: Config.Dir is required")
	}
	if c.Timeout < 0 {
		return c, fmt.Errorf("checkpoint: Config.Timeout is %v; want a positive duration, or 0 for %v", c.Timeout, defaultTimeout)
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.files == nil {
		c.files = durable.OS{DirMode: 0o700, FileMode: 0o600, Limit: MaxValue + int64(headerSize)}
	}
	return c, nil
}

// checkKey refuses what cannot be a file name of its own: 200 bytes leave room for
// the suffixes of temporary and set-aside files in a name of 255, and names with
// those suffixes would be cleared away or hidden.
func checkKey(key string) error {
	ok := key != "" && len(key) <= 200 && key[0] != '.' &&
		!strings.HasSuffix(key, durable.TempSuffix) && !strings.Contains(key, durable.AsideSuffix)
	for _, r := range key {
		ok = ok && (r == '-' || r == '_' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
	}
	if !ok {
		return fmt.Errorf("checkpoint: key %q: want 1 to 200 of a-z, A-Z, 0-9, '-', '_' and '.', not beginning with '.' nor ending in %s",
			key, durable.TempSuffix)
	}
	return nil
}

// Write keeps a value under a key. When it returns nil, the value outlasts a
// crash (with Config.NoSync, one of the process); otherwise the old value is
// still there, or the new one already.
func (s *Store) Write(key string, value []byte) error {
	ctx, cancel := s.bound()
	defer cancel()
	return s.WriteContext(ctx, key, value)
}

// WriteContext is Write until ctx ends. Then the value may be written yet, when the
// disk answers, but before any call for its key that comes after.
func (s *Store) WriteContext(ctx context.Context, key string, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if len(value) > MaxValue {
		return fmt.Errorf("checkpoint: write %s: value has %d bytes; want at most %d", key, len(value), MaxValue)
	}
	file := encode(value) // the caller may change its value when it does not wait any more
	if err := s.calls.do(ctx, key, func() error { return s.dir.Replace(key, file) }); err != nil {
		return fmt.Errorf("checkpoint: write %s: %w", key, err)
	}
	return nil
}

// Read returns a value. The error is fs.ErrNotExist if there is none, or none
// that is whole.
func (s *Store) Read(key string) ([]byte, error) {
	ctx, cancel := s.bound()
	defer cancel()
	return s.ReadContext(ctx, key)
}

// ReadContext is Read until ctx ends.
func (s *Store) ReadContext(ctx context.Context, key string) ([]byte, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	var value []byte
	if err := s.calls.do(ctx, key, func() (err error) {
		value, err = s.read(key)
		return err
	}); err != nil {
		return nil, fmt.Errorf("checkpoint: read %s: %w", key, err)
	}
	return value, nil
}

// read is the work of a Read, in the key's turn: a value that is damaged is set aside
// before any other call for its key.
func (s *Store) read(key string) ([]byte, error) {
	raw, err := s.dir.Read(key)
	var value []byte
	switch {
	case err == nil:
		value, err = decode(raw)
	case errors.Is(err, safefile.ErrTooLarge), errors.Is(err, safefile.ErrNotRegular):
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if errors.Is(err, ErrCorrupt) {
		s.setAside(key, err)
		return nil, fmt.Errorf("%w: %w", err, fs.ErrNotExist)
	}
	return value, err
}

// setAside renames the file of a damaged value and calls Config.OnCorrupt, with the
// key's turn held: a call for the same key from there would wait for itself. where is
// "" if the file cannot be renamed; then the next Read reports it again.
func (s *Store) setAside(key string, err error) (where string) {
	where = s.dir.SetAside(key)
	if s.cfg.OnCorrupt != nil {
		s.cfg.OnCorrupt(key, where, err)
	}
	return where
}

// SetAside puts a value out of the way that its reader does not understand, as if
// it were damaged: Config.OnCorrupt gets the cause.
func (s *Store) SetAside(key string, cause error) error {
	if err := checkKey(key); err != nil {
		return err
	}
	ctx, cancel := s.bound()
	defer cancel()
	if err := s.calls.do(ctx, key, func() error {
		if s.setAside(key, fmt.Errorf("%w: %w", ErrCorrupt, cause)) == "" {
			return errors.New("file cannot be renamed")
		}
		return nil
	}); err != nil {
		return fmt.Errorf("checkpoint: set aside %s: %w", key, err)
	}
	return nil
}

// Delete drops a value; one that is not there is no error.
func (s *Store) Delete(key string) error {
	ctx, cancel := s.bound()
	defer cancel()
	return s.DeleteContext(ctx, key)
}

// DeleteContext is Delete until ctx ends. Then the value may go yet, as with
// WriteContext.
func (s *Store) DeleteContext(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := s.calls.do(ctx, key, func() error { return s.dir.Remove(key) }); err != nil {
		return fmt.Errorf("checkpoint: delete %s: %w", key, err)
	}
	return nil
}

// Keys lists the keys that have a value, in order. Whether it is whole shows
// when it is read.
func (s *Store) Keys() ([]string, error) {
	ctx, cancel := s.bound()
	defer cancel()
	return s.KeysContext(ctx)
}

// KeysContext is Keys until ctx ends.
func (s *Store) KeysContext(ctx context.Context) ([]string, error) {
	var names []string
	if err := s.calls.do(ctx, "", func() (err error) { // which is no key
		names, err = s.dir.List()
		return err
	}); err != nil {
		return nil, fmt.Errorf("checkpoint: list: %w", err)
	}
	var keys []string
	for _, n := range names {
		if checkKey(n) == nil {
			keys = append(keys, n)
		}
	}
	return keys, nil
}

// bound is the context of calls that take none: they end with Config.Timeout.
func (s *Store) bound() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.cfg.Timeout)
}
