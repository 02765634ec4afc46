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

// stampLayout is the time in the name of a rotated log, as the kubelet and
// package gc write it. It sorts as the times do.
const stampLayout = "20060102-150405"

// stampOf reads the name of a file beside the log base: the time at which it
// was made of the log, compressed or not. ok is false if it was not, or is not
// whole.
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

// stamps lists the rotations of a log that are still there, the oldest first.
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

// missed returns the rotations of a log that were made between the one that
// took the file which was current when known were there, and now. That file
// itself is the first of the new ones.
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

// openRotated opens the log's rotation of a time, compressed or not. Between
// two looks it may become compressed.
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

// Close closes the file.
func (u *unzipped) Close() error {
	_ = u.Reader.Close()
	return u.f.Close()
}
