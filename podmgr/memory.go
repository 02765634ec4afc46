package podmgr

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/fnv"
	"io/fs"
	"strings"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// remembered is the last good version of a file.
type remembered struct {
	// Path is compared on reading, since the key is only a hash of it.
	Path string
	// Data is the manifest as written: another version
	// of this library may have other defaults.
	Data []byte
	// Took are UIDs that pods have instead of those of the manifest.
	Took map[types.UID]types.UID `json:",omitempty"`
}

// memoryPrefix begins the keys of remembered files.
const memoryPrefix = "manifest-"

// memoryKey hashes the path, which has slashes and may be longer than a record's name.
func memoryKey(path string) string {
	h := fnv.New128a()
	_, _ = h.Write([]byte(path))
	return memoryPrefix + hex.EncodeToString(h.Sum(nil))
}

// parseRemembered takes the content of a file out of what was written down of
// it. That of another file does not count.
func parseRemembered(b []byte, path string) (r remembered, ok bool) {
	if json.Unmarshal(b, &r) != nil || r.Path != path || len(r.Data) > maxManifest {
		return remembered{}, false
	}
	return r, true
}

// recall reads the last good version of a file from an earlier life. It is nil if nothing
// is remembered. Its objects are in effect for as long as the new version is broken.
func (d *directory) recall(path string) *manifest {
	r, ok := d.remembered(path)
	if !ok {
		return nil
	}
	m := &manifest{good: decode(r.Data, origin{nodeName: d.cfg.NodeName, file: path})}
	// Under these UIDs the pods ran. A damaged record
	// must not bring one that is unsafe in a path.
	for _, p := range m.good.pods {
		if uid := r.Took[p.UID]; podmeta.IsHashUID(uid) {
			rename(p, uid)
		}
	}
	return m
}

// remembered reads the record of a file. One that
// cannot be read is logged, and counts as none.
func (d *directory) remembered(path string) (r remembered, ok bool) {
	if d.cfg.Memory == nil {
		return r, false
	}
	b, err := d.cfg.Memory.Read(memoryKey(path))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			d.cfg.Log.Warn("failed to read remembered manifest", zap.String("file", path), zap.Error(err))
		}
		return r, false
	}
	return parseRemembered(b, path)
}

// remember writes down the files that are good and new. It comes after the
// pods were handed on: they need not wait for the disk. A record that could not be written
// is written with the next change.
func (d *directory) remember() {
	for path, m := range d.files {
		if m.data == nil {
			continue
		}
		b, err := json.Marshal(remembered{Path: path, Data: m.data, Took: m.took})
		if err != nil {
			continue
		}
		// After a restart most records say the same
		// already: reading spares the disk a write.
		key := memoryKey(path)
		if have, err := d.cfg.Memory.Read(key); err == nil && bytes.Equal(have, b) {
			m.data = nil
			continue
		}
		if err := d.cfg.Memory.Write(key, b); err != nil {
			d.cfg.Log.Warn("failed to remember manifest", zap.String("file", path), zap.Error(err))
			continue // with the next change
		}
		m.data = nil
	}
}

// forgetOthers drops what is remembered of files that are gone since an earlier
// life, with the secrets in them: a file of that name is to begin anew.
func (d *directory) forgetOthers(paths []string) {
	if d.cfg.Memory == nil {
		return
	}
	keys, err := d.cfg.Memory.Keys()
	if err != nil {
		d.cfg.Log.Warn("failed to list remembered manifests", zap.Error(err))
		return
	}
	there := make(map[string]bool, len(paths))
	for _, p := range paths {
		there[memoryKey(p)] = true
	}
	for _, key := range keys {
		if strings.HasPrefix(key, memoryPrefix) && !there[key] {
			d.forgetKey(key, "")
		}
	}
}

// forget drops what is remembered of a file that is gone.
func (d *directory) forget(path string) {
	if d.cfg.Memory != nil {
		d.forgetKey(memoryKey(path), path)
	}
}

// forgetKey logs failures. path is "" where only the key is known.
func (d *directory) forgetKey(key, path string) {
	if err := d.cfg.Memory.Delete(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.cfg.Log.Warn("failed to forget manifest", zap.String("key", key), zap.String("file", path), zap.Error(err))
	}
}
