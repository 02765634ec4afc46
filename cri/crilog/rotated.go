package crilog

import (
	"compress/gzip"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/slowfile"
)

// stampLayout is the time in the name of a rotated log, as the kubelet and package gc write it.
// Names sort in the order of their times.
const stampLayout = "20060102-150405"

// stampOf returns the time of the rotation in the name of a rotated file of the log base,
// compressed or not. ok is false for other names, such as that of an unfinished compression.
func stampOf(base, name string) (stamp string, ok bool) {
	rest, ok := strings.CutPrefix(name, base+".")
	if !ok {
		return "", false
	}
	stamp = strings.TrimSuffix(rest, ".gz")
	if _, err := time.Parse(stampLayout, stamp); err != nil || len(stamp) != len(stampLayout) {
		return "", false
	}
	return stamp, true
}

// stamps returns the times of the rotated files of the log that still exist, oldest first.
func (d *disk) stamps() ([]string, error) {
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, n := range names {
		if s, ok := stampOf(filepath.Base(d.path), n); ok {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// missed returns the times of the rotated files that this copy has not read. known and now are
// the times before and after the rotations. The oldest time that is only in now is left out: its
// file was the current file before and has been read.
func missed(known, now []string) []string {
	var fresh []string
	for _, s := range now {
		if !slices.Contains(known, s) {
			fresh = append(fresh, s)
		}
	}
	if len(fresh) < 2 {
		return nil
	}
	return fresh[1:]
}

// openRotated opens the rotated file of a time, compressed or not. It tries twice, since the file
// may be compressed in between.
func (d *disk) openRotated(stamp string) (io.ReadCloser, error) {
	var err error
	for range 2 {
		var f *slowfile.File
		if f, err = d.open(d.path + "." + stamp); err == nil {
			return f, nil
		}
		if f, err = d.open(d.path + "." + stamp + ".gz"); err != nil {
			continue
		}
		z, zerr := gzip.NewReader(f)
		if zerr != nil {
			_ = f.Close()
			return nil, zerr
		}
		return &unzipped{z, f}, nil
	}
	return nil, err
}

type unzipped struct {
	*gzip.Reader
	f *slowfile.File
}

// Close closes the compressed file and its reader.
func (u *unzipped) Close() error {
	_ = u.Reader.Close()
	return u.f.Close()
}
