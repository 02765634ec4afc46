package plugins

import (
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/volumemgr"
)

// bootName is the file in a volume's StateDir with the ID of the boot in which its files were
// published. A power cut may leave files from earlier boots empty.
const bootName = "boot"

// whole reports whether the published files of a volume are intact: they are in memory, were
// synced to the disk, or were written in this boot.
func (p *Content) whole(v *volumemgr.Volume) bool {
	if !published(v.Path) {
		return false
	}
	if p.kind != ContentConfigMap || p.cfg.Sync {
		return true
	}
	b, err := safefile.ReadFile(filepath.Join(v.StateDir, bootName), int64(len(p.cfg.BootID)))
	return err == nil && p.cfg.BootID != "" && string(b) == p.cfg.BootID
}

// mark records that the files were published in this boot. If writing fails, whole returns false
// later.
func (p *Content) mark(v *volumemgr.Volume) {
	if p.kind != ContentConfigMap || p.cfg.Sync || p.cfg.BootID == "" || v.StateDir == "" || p.whole(v) {
		return
	}
	if os.MkdirAll(v.StateDir, 0o750) == nil {
		_ = os.WriteFile(filepath.Join(v.StateDir, bootName), []byte(p.cfg.BootID), 0o640) //nolint:gosec // not secret; the kubelet's mode
	}
}
