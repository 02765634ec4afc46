package plugins

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr/internal/atomicdir"
)

// file is one file of a volume, with what its fingerprint needs.
type file struct {
	atomicdir.File
	// version replaces the data in the fingerprint. It is "" if the file has no version.
	version string
}

// files has a volume's files by path. A later file replaces an earlier one.
type files map[string]file

// add adds a file at a path. It accepts invalid paths, since the payload checks them later.
func (f files) add(name string, add file) {
	if atomicdir.CheckPath(name) == nil {
		name = path.Clean(name)
	}
	f[name] = add
}

func (f files) payload() (atomicdir.Payload, error) {
	out := make(atomicdir.Payload, len(f))
	for name, file := range f {
		out[name] = file.File
	}
	return out.Clean()
}

// fingerprint returns a hash of the files and of the values in more. For a file with a version the
// hash covers the version, otherwise the data.
func (f files) fingerprint(more ...any) string {
	h := sha256.New()
	put(h, fmt.Sprint(more...))
	for _, name := range slices.Sorted(maps.Keys(f)) {
		file := f[name]
		owner := "-"
		if file.UID != nil {
			owner = fmt.Sprint(*file.UID)
		}
		put(h, name)
		put(h, file.Mode.String()+" "+owner)
		if put(h, file.version); file.version == "" {
			put(h, string(file.Data))
		}
	}
	return string(h.Sum(nil))
}

// put hashes a text with its length, so that different lists of texts have different hashes.
func put(h hash.Hash, s string) {
	_, _ = fmt.Fprintf(h, "%d:%s", len(s), s)
}

// modeOf returns the mode of a file: fileMode or, if that is nil, defaultMode.
func modeOf(fileMode, defaultMode *int32) fs.FileMode {
	if fileMode != nil {
		return fs.FileMode(*fileMode).Perm()
	}
	return fs.FileMode(*defaultMode).Perm()
}

// errNoMode has the kubelet's text. The API server sets the default of the field.
var errNoMode = errors.New("no defaultMode used")

// keys adds the files for an object's keys: those in items, or all if items is empty.
func (f files) keys(kind, name string, o *ContentObject, items []v1.KeyToPath, standard *int32, optional *bool) error {
	if standard == nil {
		return errNoMode
	}
	if o == nil {
		return nil
	}
	one := func(key, at string, mode *int32, data []byte) {
		version := ""
		if o.Version != "" {
			version = strings.Join([]string{kind, name, o.Version, key}, "\x00")
		}
		f.add(at, file{atomicdir.File{Data: data, Mode: modeOf(mode, standard)}, version})
	}
	if len(items) == 0 {
		for key, data := range o.Data {
			one(key, key, nil, data)
		}
		return nil
	}
	var errs []error
	for _, item := range items {
		data, ok := o.Data[item.Key]
		switch {
		case ok:
			one(item.Key, item.Path, item.Mode, data)
		case !isTrue(optional):
			errs = append(errs, fmt.Errorf("%s %q has no key %q", kind, name, item.Key))
		}
	}
	return errors.Join(errs...)
}
