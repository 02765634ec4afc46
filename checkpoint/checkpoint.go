package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Config holds what a Store needs. Dir is required.
type Config struct {
	// Dir is made, for its owner alone, if it is not there.
	Dir string
	// OnCorrupt, if not nil, is told of each value that was found damaged
	// and where it was set aside ("" if not even that was possible).
	OnCorrupt func(key, setAside string, err error)
	// NoSync is for values that need not outlast a failure of the power or
	// the kernel: what dies with the machine anyway, such as facts about
	// running containers. Nothing is synced, which on a slow disk makes a
	// Write a hundred times faster. Against a crash of the process it is as
	// atomic as ever; after one of the machine a value may be the old one,
	// the new one, or damaged, which is told and counts as not there.
	NoSync bool

	// files is the operating system; tests put another in its place.
	files fileSystem
}

// ErrCorrupt is in the tree of the error that Config.OnCorrupt gets.
var ErrCorrupt = errors.New("checkpoint is damaged")

// Suffixes of files that hold no value.
const (
	tempSuffix    = ".tmp"
	corruptSuffix = ".corrupt-"
)

// Store is a directory of values.
type Store struct {
	cfg   Config
	files fileSystem

	mu sync.Mutex // one writer at a time
}

// Open makes the directory ready and clears away what a crash left behind.
func Open(cfg Config) (*Store, error) {
	if cfg.Dir == "" {
		return nil, errors.New("checkpoint: Config.Dir is required")
	}
	s := &Store{cfg: cfg, files: cfg.files}
	if s.files == nil {
		s.files = osFiles{}
	}
	if err := s.files.makeDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	names, err := s.files.list(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	for _, n := range names {
		if strings.HasSuffix(n, tempSuffix) {
			_ = s.files.remove(filepath.Join(cfg.Dir, n)) // it would be written over anyway
		}
	}
	return s, nil
}

// checkKey refuses what cannot be a file name of its own.
func checkKey(key string) error {
	ok := key != "" && len(key) <= 200 && key[0] != '.' &&
		!strings.HasSuffix(key, tempSuffix) && !strings.Contains(key, corruptSuffix)
	for _, r := range key {
		ok = ok && (r == '-' || r == '_' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
	}
	if !ok {
		return fmt.Errorf("checkpoint: key %q: want 1 to 200 of a-z, A-Z, 0-9, '-', '_' and '.', not beginning with '.' nor ending in %s",
			key, tempSuffix)
	}
	return nil
}

// Write keeps a value under a key. When it returns nil, the value outlasts a
// crash (with Config.NoSync, one of the process); otherwise the old value is
// still there, or the new one already.
func (s *Store) Write(key string, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path := filepath.Join(s.cfg.Dir, key)
	temp := path + tempSuffix
	write := s.files.writeSynced
	if s.cfg.NoSync {
		write = s.files.write
	}
	if err := write(temp, encode(value)); err != nil {
		_ = s.files.remove(temp)
		return fmt.Errorf("checkpoint: write %s: %w", key, err)
	}
	if err := s.files.rename(temp, path); err != nil {
		_ = s.files.remove(temp)
		return fmt.Errorf("checkpoint: write %s: %w", key, err)
	}
	if err := s.syncDir(); err != nil {
		return fmt.Errorf("checkpoint: write %s: %w", key, err)
	}
	return nil
}

// syncDir makes what the directory says of its files outlast a power failure.
func (s *Store) syncDir() error {
	if s.cfg.NoSync {
		return nil
	}
	return s.files.syncDir(s.cfg.Dir)
}

// Read returns a value. The error is fs.ErrNotExist if there is none, or none
// that is whole.
func (s *Store) Read(key string) ([]byte, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path := filepath.Join(s.cfg.Dir, key)
	raw, err := s.files.read(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: read %s: %w", key, err)
	}
	value, err := decode(raw)
	if err != nil {
		s.setAside(key, path, err)
		return nil, fmt.Errorf("checkpoint: read %s: %w: %w", key, err, fs.ErrNotExist)
	}
	return value, nil
}

// setAside renames a damaged file to the first free name.
func (s *Store) setAside(key, path string, cause error) {
	where := ""
	names, _ := s.files.list(s.cfg.Dir)
	taken := make(map[string]bool, len(names))
	for _, n := range names {
		taken[n] = true
	}
	for n := 1; n <= len(names)+1; n++ {
		name := key + corruptSuffix + strconv.Itoa(n)
		if taken[name] {
			continue
		}
		if s.files.rename(path, filepath.Join(s.cfg.Dir, name)) == nil {
			where = filepath.Join(s.cfg.Dir, name)
		}
		break
	}
	if s.cfg.OnCorrupt != nil {
		s.cfg.OnCorrupt(key, where, cause)
	}
}

// Delete drops a value; one that is not there is no error.
func (s *Store) Delete(key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.files.remove(filepath.Join(s.cfg.Dir, key)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("checkpoint: delete %s: %w", key, err)
	}
	if err := s.syncDir(); err != nil {
		return fmt.Errorf("checkpoint: delete %s: %w", key, err)
	}
	return nil
}

// Keys lists the keys that have a value, in order. Whether it is whole shows
// when it is read.
func (s *Store) Keys() ([]string, error) {
	names, err := s.files.list(s.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	var keys []string
	for _, n := range names {
		if checkKey(n) == nil {
			keys = append(keys, n)
		}
	}
	return keys, nil
}
