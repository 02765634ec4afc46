// Package boots records the boot of the machine in which the API server last answered.
package boots

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/checkpoint"
	"github.com/nodewright/nodewright/internal/bootid"
	"github.com/nodewright/nodewright/internal/retry"
)

// key is the name of the record.
const key = "boot"

// Record records whether the API server has answered since the machine booted. The methods may be
// called on a nil Record, which an agent without an API server has.
type Record struct {
	store    *checkpoint.Lazy
	log      *zap.Logger
	id       string // ID of this boot; "" if it cannot be read
	answered bool   // whether the file had the ID of this boot when it was read
}

// Read reads the record below an agent's root directory. id is the ID of this boot. If it is "",
// Read reads the ID from the machine. If the record cannot be read, the API server counts as not
// having answered.
func Read(root, id string, log *zap.Logger) *Record {
	r := &Record{store: part.OpenStore(filepath.Join(root, "boot"), log), log: log, id: id}
	if id == "" {
		var err error
		if r.id, err = bootid.Read(os.DirFS("/")); err != nil { //nolint:forbidigo // the kernel's
			log.Warn("failed to read the boot ID of the machine", zap.Error(err))
			return r
		}
	}
	last, err := r.store.Read(key)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("failed to read the record of the last boot", zap.Error(err))
	}
	r.answered = err == nil && string(last) == r.id
	return r
}

// Answered reports whether the server had answered in this boot when the record was read.
func (r *Record) Answered() bool { return r != nil && r.answered }

// Write records that the server has answered in this boot. It tries until it succeeds, or ctx ends.
func (r *Record) Write(ctx context.Context) {
	if r == nil || r.answered || r.id == "" {
		return
	}
	back := retry.Backoff{First: time.Minute, Max: 10 * time.Minute}
	for {
		err := r.store.Write(key, []byte(r.id))
		if err == nil {
			return
		}
		r.log.Warn("failed to record the boot ID of the machine", zap.Error(err))
		if !retry.Sleep(ctx, back.Next()) {
			return
		}
	}
}
