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

// MaxValue is the largest size of a value in bytes. Larger files are not read. A write needs
// twice the size of the value in memory.
const MaxValue = 64 << 20

// callTimeout limits the calls that take no context. It is longer than a slow disk needs for a sync.
const callTimeout = 30 * time.Second

// Config holds what a Store needs. Dir is required; the zero value of every other
// field means the default named beside it.
type Config struct {
	// Dir is created with mode 0700 if it does not exist.
	Dir string
	// OnCorrupt is called for each damaged value. setAside is the name to which the file was
	// renamed, or "" if the rename failed. It may be called from any goroutine and for several
	// keys at once. Other calls for the key wait until it returns, so it must not call the Store
	// for the same key. If OnCorrupt is nil, nothing is called.
	OnCorrupt func(key, setAside string, err error)
	// NoSync skips all syncs, which makes Write about a hundred times faster on a slow disk. It
	// is for values that need not survive a crash of the machine, such as facts about running
	// containers. After a crash of the process, the old or the new value is there. After a crash
	// of the machine, a value may be damaged; it is then reported to OnCorrupt and counts as
	// missing.
	NoSync bool

	// files accesses the disk; tests replace it.
	files durable.Disk
}

// ErrCorrupt is wrapped by the error that Config.OnCorrupt receives.
var ErrCorrupt = errors.New("checkpoint is damaged")

// Store is a directory of values.
type Store struct {
	cfg   Config
	dir   durable.Dir
	calls *calls
}

// Open creates the directory if necessary and removes the temporary files that a crash left. It
// blocks on the disk; [Lazy] does not.
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

// withDefaults validates the configuration and sets defaults. Only the owner may read the files
// and the directory, since values may contain secrets.
func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("checkpoint: Config.Dir is required")
	}
	if c.files == nil {
		c.files = durable.OS{DirMode: 0o700, FileMode: 0o600, Limit: MaxValue + int64(headerSize)}
	}
	return c, nil
}

// checkKey rejects keys that cannot be file names. A file name may have 255 bytes, and a key 200;
// the rest is for the suffixes of temporary and set-aside files. A key must not end in one of these
// suffixes, since its file would be removed or not listed.
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

// Write stores a value under a key. After success, the value survives a crash of the machine.
// With Config.NoSync, it only survives a crash of the process. After an error, Read returns the
// old or the new value.
func (s *Store) Write(key string, value []byte) error {
	ctx, cancel := bound()
	defer cancel()
	return s.WriteContext(ctx, key, value)
}

// WriteContext does the same as Write, with a context. If ctx ends first, the value may still be
// written later, but before any later call for the same key.
func (s *Store) WriteContext(ctx context.Context, key string, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if len(value) > MaxValue {
		return fmt.Errorf("checkpoint: write %s: value has %d bytes; want at most %d", key, len(value), MaxValue)
	}
	file := encode(value) // a copy, since the caller may modify value after ctx has ended
	if err := s.calls.do(ctx, key, func() error { return s.dir.Replace(key, file) }); err != nil {
		return fmt.Errorf("checkpoint: write %s: %w", key, err)
	}
	return nil
}

// Read returns a value. If it is missing or damaged, the error wraps fs.ErrNotExist.
func (s *Store) Read(key string) ([]byte, error) {
	ctx, cancel := bound()
	defer cancel()
	return s.ReadContext(ctx, key)
}

// ReadContext does the same as Read, with a context.
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

// read reads a value. The caller is the only call for the key at this time, so that a damaged
// value is set aside before any other call for the key.
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

// setAside renames the file of a damaged value and calls Config.OnCorrupt. The caller is the only
// call for the key at this time. where is the new name, or "" if the rename failed; then the next
// Read reports the value again.
func (s *Store) setAside(key string, err error) (where string) {
	where = s.dir.SetAside(key)
	if s.cfg.OnCorrupt != nil {
		s.cfg.OnCorrupt(key, where, err)
	}
	return where
}

// SetAside renames the file of a value that its reader cannot decode, as if the file were
// damaged. Config.OnCorrupt gets the cause.
func (s *Store) SetAside(key string, cause error) error {
	if err := checkKey(key); err != nil {
		return err
	}
	ctx, cancel := bound()
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

// Delete removes a value. A missing value is not an error.
func (s *Store) Delete(key string) error {
	ctx, cancel := bound()
	defer cancel()
	return s.DeleteContext(ctx, key)
}

// DeleteContext does the same as Delete, with a context. If ctx ends first, the value may still be
// removed later, as with WriteContext.
func (s *Store) DeleteContext(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := s.calls.do(ctx, key, func() error { return s.dir.Remove(key) }); err != nil {
		return fmt.Errorf("checkpoint: delete %s: %w", key, err)
	}
	return nil
}

// Keys returns the keys that have a value, sorted. It does not read the values, so a value may be
// damaged.
func (s *Store) Keys() ([]string, error) {
	ctx, cancel := bound()
	defer cancel()
	return s.KeysContext(ctx)
}

// KeysContext does the same as Keys, with a context.
func (s *Store) KeysContext(ctx context.Context) ([]string, error) {
	var names []string
	if err := s.calls.do(ctx, "", func() (err error) { // no value has the empty key
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

// bound returns the context for calls that have none.
func bound() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callTimeout)
}
