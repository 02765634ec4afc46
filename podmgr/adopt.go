package podmgr

import (
	"context"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// Found is a pod that runs on the node under the name of a manifest's pod, made
// from a manifest by a kubelet or by an earlier agent.
type Found struct {
	UID types.UID
	// Since is when its newest sandbox was made, by the runtime's clock.
	Since time.Time
}

// identify gives pods of a file the UIDs under which they run already. A kubelet
// computes other ones of the same file; with another UID a pod would end and begin
// anew.
//
// It is the same pod if it was made after the last change of the file, or was taken
// for the same once before. The runtime is asked when the process starts, not
// later: a file that comes then is newer than all that runs.
func (d *directory) identify(ctx context.Context, path string, changed time.Time, now *decoded) (took map[types.UID]types.UID) {
	before := d.tookBefore(path)
	for _, p := range now.pods {
		uid := adopted(p.UID, changed, before[p.UID], d.found(ctx, p))
		if uid == p.UID {
			continue
		}
		if took == nil {
			took = map[types.UID]types.UID{}
		}
		took[p.UID] = uid
		rename(p, uid)
		d.cfg.Log.Info("static pod keeps the UID that it runs under", zap.String("file", path),
			zap.String("pod", p.Namespace+"/"+p.Name), zap.String("uid", string(uid)))
	}
	return took
}

// adopted decides on the UID of a pod: own is that of the manifest, before the one
// that was adopted earlier, "" if there was none.
func adopted(own types.UID, changed time.Time, before types.UID, found []Found) types.UID {
	var last Found
	for _, f := range found {
		if f.UID == own {
			return own
		}
		if !podmeta.IsHashUID(f.UID) {
			continue
		}
		if f.Since.After(last.Since) {
			last = f
		}
	}
	switch {
	case podmeta.IsHashUID(before) && (last.UID == "" || last.UID == before):
		return before
	case last.UID != "" && len(found) == 1 && last.Since.After(changed):
		return last.UID
	default:
		return own
	}
}

func rename(p *v1.Pod, uid types.UID) {
	p.UID = uid
	p.Annotations[podmeta.AnnotationHash] = string(uid)
}

// found asks for what runs under a pod's name.
func (d *directory) found(ctx context.Context, p *v1.Pod) []Found {
	if d.listed || d.cfg.Found == nil {
		return nil
	}
	found, err := d.cfg.Found(ctx, p.DeepCopy())
	if err != nil {
		d.cfg.Log.Warn("failed to find out what runs under the name of a static pod", zap.String("pod", p.Namespace+"/"+p.Name), zap.Error(err))
	}
	return found
}

// tookBefore are the UIDs that pods of a file got instead of their own.
func (d *directory) tookBefore(path string) map[types.UID]types.UID {
	if m := d.files[path]; m != nil && m.whole {
		return m.took
	}
	if r, ok := d.remembered(path); ok {
		return r.Took
	}
	return nil
}
