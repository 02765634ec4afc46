// Package durable replaces small files so that a crash at any moment leaves the
// old content or the new one.
//
// A file is written beside the old one and renamed over it. With [Dir.Sync]
// both the file and its directory are synced, so that it outlasts a failure of
// the power as well; without, only one of the process. Nothing is said about
// what the files hold: whoever reads a damaged one puts it out of the way with
// [Dir.SetAside].
package durable

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Suffixes of files that a Dir makes beside those it is asked for.
const (
	TempSuffix  = ".tmp"      // half-written
	AsideSuffix = ".corrupt-" // and a number: set aside
)

// Dir is a directory of files. All fields but Sync are required. One writer at
// a time may use it.
type Dir struct {
	Path string
	Disk Disk
	Sync bool // each change outlasts a failure of the power
}

// Prepare makes the directory and clears away what a crash left half-written.
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

// Replace gives a file a new content. After an error it has the old one or the
// new one.
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

// Read returns the content of a file. The error is fs.ErrNotExist if there is
// no such file.
func (d Dir) Read(name string) ([]byte, error) { return d.Disk.Read(d.path(name)) }

// Remove removes a file, and what a Replace that failed has left of it; one that is not
// there is no error.
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

// maxAside is how many files of one name are kept aside: a disk that damages all
// that is written must not be filled up with it.
const maxAside = 16

// SetAside renames a file to the first free name.corrupt-N, from 1, and returns
// its new path; "" if that failed. With 16 of them it replaces the last.
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

// List names the files, in order, those of the suffixes above included.
func (d Dir) List() ([]string, error) { return d.Disk.List(d.Path) }

func (d Dir) sync() error {
	if !d.Sync {
		return nil
	}
	return d.Disk.SyncDir(d.Path)
}

func (d Dir) path(name string) string { return filepath.Join(d.Path, name) }
