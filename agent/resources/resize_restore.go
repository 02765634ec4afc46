package resources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
)

// Restore implements part.Restorer. It reads the records, and no resize is decided before it has
// read them. If ctx ends first, it returns an error; reading continues. Records that are read
// later are applied to the pods that were recalled before.
func (p *Resize) Restore(ctx context.Context) error {
	defer p.endRestore()
	return part.ReadWithRetry(ctx, p.cfg.Log, func() error { return p.readAll(ctx) })
}

// readAll reads the records. It may be called again after an error. A record that the disk has lost
// counts as missing; a record that cannot be read now is an error.
func (p *Resize) readAll(ctx context.Context) error {
	keys, err := p.cfg.Store.Keys()
	if err != nil {
		return fmt.Errorf("list allocation records: %w", err)
	}
	theirs, err := p.fromKubelet()
	if err != nil {
		return err
	}
	for _, key := range keys {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if key == kubeletKey {
			continue
		}
		if theirs[types.UID(key)] != nil { // the record is older
			if err := part.Delete(ctx, p.cfg.Store, key); err != nil {
				return fmt.Errorf("remove allocation record of pod %s, which is older than the kubelet's: %w", key, err)
			}
			continue
		}
		a, err := p.load(key)
		if hangs(err) {
			return fmt.Errorf("read allocation record of %s: %w", key, err)
		}
		if err != nil {
			p.cfg.Log.Error("failed to read allocation record", zap.String("uid", key), zap.Error(err))
		}
		if a != nil {
			p.remember(types.UID(key), a)
		}
	}
	for uid, a := range theirs {
		p.inherit(uid, a)
	}
	return nil
}

// hangs reports whether err means that the disk did not answer.
func hangs(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// inherit applies a kubelet's allocation to a pod.
func (p *Resize) inherit(uid types.UID, a *allocation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.pods[uid]; s != nil {
		s.inherit(a)
	} else {
		p.left[uid] = a
	}
}

// load reads one record. It returns nil if the record is missing or damaged.
func (p *Resize) load(key string) (*allocation, error) {
	value, err := p.cfg.Store.Read(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a, err := decodeResize(value)
	if err != nil {
		return nil, errors.Join(err, part.SetAside(p.cfg.Store, key, err))
	}
	return a, nil
}

// decodeResize decodes a record. A record without containers is invalid, since every pod has some.
func decodeResize(value []byte) (*allocation, error) {
	a := &allocation{}
	if err := json.Unmarshal(value, a); err != nil {
		return nil, err
	}
	if len(a.Containers) == 0 {
		return nil, errors.New("the pod has no containers; want one at least")
	}
	return a, nil
}

func (p *Resize) remember(uid types.UID, a *allocation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.pods[uid]
	if s == nil {
		p.read[uid] = a
		return
	}
	s.remember(a)
	s.queued = a.differs(s.asks)
}

// endRestore enables decisions. The next housekeeping makes those that are due.
func (p *Resize) endRestore() {
	close(p.restored)
	if len(p.undecided()) > 0 {
		p.host.Housekeep()
	}
}

// isRestored reports whether the records have been read.
func (p *Resize) isRestored() bool {
	select {
	case <-p.restored:
		return true
	default:
		return false
	}
}
