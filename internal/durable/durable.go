// Package durable replaces small files atomically: after a crash at any time a file
// has the old content or the new one.
//
// [Dir.Replace] writes a temporary file in the same directory and renames it to the final
// name. If [Dir.Sync] is set, it syncs the file and the directory, so that the content
// survives a power failure. Otherwise the content survives only a crash of the process.
// The package does not check the content of files: a caller that finds a file damaged can
// rename it with [Dir.SetAside].
package durable

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Suffixes of the additional files in a Dir.
const (
	TempSuffix  = ".tmp"      // temporary file
	AsideSuffix = ".corrupt-" // damaged file; a number follows
)

// Dir is a directory of files. All fields except Sync are required. Methods that change
// files must not be called concurrently.
type Dir struct {
	Path string
	Disk Disk
	Sync bool // each change survives a power failure
}

// Prepare creates the directory, and deletes temporary files that remain after a crash.
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
			_ = d.Disk.Remove(d.path(n)) // Replace overwrites a remaining file
		}
	}
	return nil
}

// Replace replaces the content of a file, or creates the file. After an error the file has
// either the old or the new content.
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

// Read returns the content of a file. It returns fs.ErrNotExist if the file is missing.
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

// maxAside is the maximum number of renamed damaged files per name, so that they do not fill the
// disk.
const maxAside = 16

// SetAside renames a file to name.corrupt-N with the first free N from 1 to 16, and returns the new
// path. If none is free, it replaces number 16. It returns "" if the file cannot be renamed.
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

// List returns the sorted names of all files, including temporary and damaged ones.
func (d Dir) List() ([]string, error) { return d.Disk.List(d.Path) }

func (d Dir) sync() error {
	if !d.Sync {
		return nil
	}
	return d.Disk.SyncDir(d.Path)
}

func (d Dir) path(name string) string { return filepath.Join(d.Path, name) }
