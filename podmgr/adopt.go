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
	// UID is adopted only if it has the form of a hash, as [podmeta.IsHashUID] has it.
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
// later: a file that comes then is newer than all that runs. The result has the adopted
// UIDs by those of the manifest, nil if there are none; they are remembered with the file,
// so that the next start decides alike. identify may wait for the runtime.
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
// that was adopted earlier, "" if there was none. It does no I/O.
func adopted(own types.UID, changed time.Time, before types.UID, found []Found) types.UID {
	var last Found
	for _, f := range found {
		// The manifest's own UID runs: nothing is adopted, whatever else bears the name.
		if f.UID == own {
			return own
		}
		// A UID of another form is no kubelet's, and
		// may be unsafe as the name of a directory.
		if !podmeta.IsHashUID(f.UID) {
			continue
		}
		// Several pods may bear the name while an older one is ending.
		if f.Since.After(last.Since) {
			last = f
		}
	}
	switch {
	// An earlier adoption stays unless another pod runs by now:
	// with the manifest's own UID the pod would be restarted.
	case podmeta.IsHashUID(before) && (last.UID == "" || last.UID == before):
		return before
	// A sandbox that is newer than the file was made of this very content. With
	// several pods of one name nobody knows which of them is the file's.
	case last.UID != "" && len(found) == 1 && last.Since.After(changed):
		return last.UID
	default:
		return own
	}
}

// rename sets a pod's UID and its copy in the hash annotation,
// by which a mirror pod is compared with its static pod.
func rename(p *v1.Pod, uid types.UID) {
	p.UID = uid
	p.Annotations[podmeta.AnnotationHash] = string(uid)
}

// found asks for what runs under a pod's name. It returns nil without asking once the
// files have been listed. An error of [DirectoryConfig.Found] is logged; the pods that
// came with it count.
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
	// A file of which older objects were kept has none of
	// its own: the record on the disk says more then.
	if m := d.files[path]; m != nil && m.whole {
		return m.took
	}
	if r, ok := d.remembered(path); ok {
		return r.Took
	}
	return nil
}
