package seal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/internal/durable"
)

// maxAside limits the number of damaged keys that are kept.
const maxAside = 100

// setAside renames a file to the first free <file>.corrupt-N, from 1.
func setAside(file string) (string, error) {
	for n := 1; n <= maxAside; n++ {
		aside := fmt.Sprintf("%s.corrupt-%d", file, n)
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			return aside, os.Rename(file, aside)
		}
	}
	return "", fmt.Errorf("%d damaged keys are beside %s already; remove them first", maxAside, file)
}

// makeKey writes a new key in one step: a crash leaves a complete file, or none.
func makeKey(file string) error {
	key := make([]byte, keySize)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	next := file + ".tmp"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(key)
	if err = errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close()); err == nil {
		err = place(next, file)
	}
	if err != nil {
		_ = os.Remove(next)
		return err
	}
	return durable.OS{}.SyncDir(filepath.Dir(file))
}

// place renames a file, unless the new name exists.
func place(source, target string) error {
	err := os.Link(source, target)
	if err == nil {
		return os.Remove(source)
	}
	if errors.Is(err, fs.ErrExist) {
		return err
	}
	// For a file system without hard links.
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "make", Path: target, Err: fs.ErrExist}
	}
	return os.Rename(source, target)
}
