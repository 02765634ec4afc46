// Package durable replaces small files atomically: after a crash at any time a file
// has the old content or the new one.
//
// It writes a temporary file beside the old one and renames it. If [Dir.Sync] is set,
// it syncs the file and its directory, so that the content survives a power failure.
// Otherwise the content survives only a crash of the process. The content of files is
// not checked: a caller that reads a damaged file can rename it with [Dir.SetAside].
package durable

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Suffixes of further files in a Dir.
const (
	TempSuffix  = ".tmp"      // temporary file
	AsideSuffix = ".corrupt-" // damaged file; a number follows
)

// Dir is a directory of files. All fields but Sync are required. It allows one
// writer at a time.
type Dir struct {
	Path string
	Disk Disk
	Sync bool // each change survives a power failure
}

// Prepare creates the directory and deletes temporary files, which a crash has
// left.
func (d Dir) Prepare() error {
	if err := d.Disk.MakeDir(d.Path); err != nil {
		return err
	}
	names, err := d.List()
	if err != nil {
		return err
	}
	for _, n := range names {
		if strings.HasSuffix(n, TempSuffix) {
			_ = d.Disk.Remove(d.path(n)) // it would be written over anyway
		}
	}
	return nil
}

// Replace replaces the content of a file. After an error the file has the old
// content or the new one.
func (d Dir) Replace(name string, data []byte) error {
	path := d.path(name)
	temp := path + TempSuffix
	err := d.Disk.Write(temp, data, d.Sync)
	if err == nil {
		err = d.Disk.Rename(temp, path)
	}
	if err != nil {
		_ = d.Disk.Remove(temp)
		return err
	}
	return d.sync()
}

// Read returns the content of a file. For a missing file the error is
// fs.ErrNotExist.
func (d Dir) Read(name string) ([]byte, error) { return d.Disk.Read(d.path(name)) }

// Remove deletes a file, and the temporary file of a failed Replace. A missing file
// is not an error.
func (d Dir) Remove(name string) error {
	err := d.Disk.Remove(d.path(name))
	if err == nil {
		err = d.sync()
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if terr := d.Disk.Remove(d.path(name) + TempSuffix); err == nil && !errors.Is(terr, fs.ErrNotExist) {
		err = terr
	}
	return err
}

// maxAside limits the renamed damaged files of one name, so that a bad disk is not filled with
// them.
const maxAside = 16

// SetAside renames a file to the first free name.corrupt-N, from 1, and returns its new path. If
// there are 16 such files, it replaces the last. It returns "" if the file cannot be renamed.
func (d Dir) SetAside(name string) string {
	names, _ := d.List()
	aside := name + AsideSuffix + "1"
	for n := 2; slices.Contains(names, aside) && n <= maxAside; n++ {
		aside = name + AsideSuffix + strconv.Itoa(n)
	}
	if d.Disk.Rename(d.path(name), d.path(aside)) != nil {
		return ""
	}
	return d.path(aside)
}

// List returns the sorted names of the files, including those with the suffixes
// above.
func (d Dir) List() ([]string, error) { return d.Disk.List(d.Path) }

func (d Dir) sync() error {
	if !d.Sync {
		return nil
	}
	return d.Disk.SyncDir(d.Path)
}

func (d Dir) path(name string) string { return filepath.Join(d.Path, name) }
