package filesink

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

const (
	suffix        = ".json"
	tempSuffix    = ".tmp"
	corruptSuffix = ".corrupt-"
)

// Parts of a file's name are cut to these lengths, in bytes, so that a name
// with its suffixes fits into the 255 that file systems allow.
const (
	maxNamespace = 63
	maxName      = 110
	maxUID       = 50
)

// fileName is the name of a pod's file. No two pods share one.
func fileName(pod *v1.Pod) string {
	return safe(pod.Namespace, maxNamespace) + "_" + safe(pod.Name, maxName) + "_" + safe(string(pod.UID), maxUID) + suffix
}

// safe makes s a part of a file name: letters, digits, '-' and '.' stay,
// except for a '.' in front, and all else is written as %XX. What is longer
// than limit is cut, and marked with '~' and a hash.
func safe(s string, limit int) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c == '-' || c == '.' && i > 0 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() <= limit {
		return b.String()
	}
	sum := sha256.Sum256([]byte(s))
	mark := "~" + hex.EncodeToString(sum[:8])
	return b.String()[:limit-len(mark)] + mark
}

// fileSystem is what a Sink does to a disk, one method for each step that a
// crash can come between.
type fileSystem interface {
	makeDir(path string) error
	write(path string, data []byte, sync bool) error
	rename(from, to string) error
	remove(path string) error
	syncDir(path string) error
	read(path string) ([]byte, error)
	list(dir string) ([]string, error) // sorted
}

// osFiles is the operating system's.
type osFiles struct{}

func (osFiles) makeDir(path string) error { return os.MkdirAll(path, 0o750) }

func (osFiles) write(path string, data []byte, sync bool) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if sync {
		return f.Sync()
	}
	return nil
}

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
