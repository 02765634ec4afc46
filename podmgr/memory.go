package podmgr

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/fnv"
	"io/fs"
	"os"

	"go.uber.org/zap"
)

// remembered is the last good version of a file.
type remembered struct {
	Path string
	Data []byte
}

func memoryKey(path string) string {
	h := fnv.New128a()
	_, _ = h.Write([]byte(path))
	return "manifest-" + hex.EncodeToString(h.Sum(nil))
}

// recall reads the last good version of a file from an earlier life.
func (d *directory) recall(path string) *manifest {
	if d.cfg.Memory == nil {
		return nil
	}
	b, err := d.cfg.Memory.Read(memoryKey(path))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			d.cfg.Log.Warn("last good manifest cannot be read", zap.String("file", path), zap.Error(err))
		}
		return nil
	}
	var r remembered
	if json.Unmarshal(b, &r) != nil || r.Path != path {
		return nil
	}
	return &manifest{good: decode(r.Data, origin{nodeName: d.cfg.NodeName, file: path})}
}

// remember writes down the files that are good and new. It comes after the
// pods were handed on: they need not wait for the disk.
func (d *directory) remember() {
	if d.cfg.Memory == nil {
		return
	}
	for path, m := range d.files {
		if len(m.problems) > 0 || m.remembered || m.retry {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if fi, err := os.Stat(path); err != nil || signatureOf(fi) != m.sig {
			continue // it changed again; the next scan sees it
		}
		b, err := json.Marshal(remembered{Path: path, Data: data})
		if err != nil {
			continue
		}
		key := memoryKey(path)
		if have, err := d.cfg.Memory.Read(key); err == nil && string(have) == string(b) {
			m.remembered = true
			continue
		}
		if err := d.cfg.Memory.Write(key, b); err != nil {
			d.cfg.Log.Warn("manifest cannot be remembered", zap.String("file", path), zap.Error(err))
			continue
		}
		m.remembered = true
	}
}

// forget drops what is remembered of a file that is gone.
func (d *directory) forget(path string) {
	if d.cfg.Memory == nil {
		return
	}
	if err := d.cfg.Memory.Delete(memoryKey(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.cfg.Log.Warn("manifest cannot be forgotten", zap.String("file", path), zap.Error(err))
	}
}
