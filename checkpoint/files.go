package checkpoint

import (
	"errors"
	"os"
	"slices"
)

// fileSystem is what a Store does to a disk, one method for each step that a
// crash can come between.
type fileSystem interface {
	makeDir(path string) error
	// writeSynced makes or truncates a file, writes it and syncs it.
	writeSynced(path string, data []byte) error
	// write does the same and does not sync.
	write(path string, data []byte) error
	rename(from, to string) error
	remove(path string) error
	syncDir(path string) error
	read(path string) ([]byte, error)
	list(dir string) ([]string, error) // sorted
}

// osFiles is the operating system's.
type osFiles struct{}

func (osFiles) makeDir(path string) error { return os.MkdirAll(path, 0o700) }

func (osFiles) writeSynced(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}

func (osFiles) write(path string, data []byte) error { return os.WriteFile(path, data, 0o600) }

func (osFiles) rename(from, to string) error { return os.Rename(from, to) }

func (osFiles) remove(path string) error { return os.Remove(path) }

func (osFiles) syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFiles) read(path string) ([]byte, error) { return os.ReadFile(path) }

func (osFiles) list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}
