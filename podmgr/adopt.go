package podmgr

import (
	"context"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// Found is a running pod with the namespace and name of a pod of a manifest. A kubelet or an
// earlier process of the agent started it.
type Found struct {
	// UID is the UID of the running pod. It is adopted only if it has the form of a hash; see
	// [podmeta.IsHashUID].
	UID types.UID
	// Since is the creation time of the newest sandbox, by the runtime's clock.
	Since time.Time
}

// identify gives pods of a file the UIDs of the pods that run already. A kubelet computes another
// UID from the same file, and a pod with a new UID is restarted.
//
// A running pod is adopted if it was created after the last change of the file, or was adopted
// before. The runtime is asked only before the first snapshot: a file that comes later is newer
// than all running pods. took maps the manifest's UIDs to the adopted ones; it is nil if no pod
// is adopted. It is stored with the file, so the next start adopts the same UIDs. identify may
// block on the runtime.
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
		d.cfg.Log.Info("adopted UID of running static pod", zap.String("file", path),
			zap.String("pod", p.Namespace+"/"+p.Name), zap.String("uid", string(uid)))
	}
	return took
}

// adopted returns the UID for a pod. computed is the UID from the manifest. before is the UID
// that was adopted earlier, or "". adopted does no I/O.
func adopted(computed types.UID, changed time.Time, before types.UID, found []Found) types.UID {
	var last Found
	for _, f := range found {
		// The manifest's own UID runs: nothing is adopted, whatever else bears the name.
		if f.UID == computed {
			return computed
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
	// A sandbox that is newer than the file was created from this content. If
	// several pods have the name, it is not known which of them is the file's.
	case last.UID != "" && len(found) == 1 && last.Since.After(changed):
		return last.UID
	default:
		return computed
	}
}

// rename sets a pod's UID and its copy in the hash annotation,
// by which a mirror pod is compared with its static pod.
func rename(p *v1.Pod, uid types.UID) {
	p.UID = uid
	p.Annotations[podmeta.AnnotationHash] = string(uid)
}

// found calls [DirectoryConfig.Found] for a pod. Once the files have been listed, it makes no
// call and returns nil. If the call fails, found logs the error and returns the pods that came
// with it.
func (d *directory) found(ctx context.Context, p *v1.Pod) []Found {
	if d.listed || d.cfg.Found == nil {
		return nil
	}
	found, err := d.cfg.Found(ctx, p.DeepCopy())
	if err != nil {
		d.cfg.Log.Warn("failed to look up running pods with the name of a static pod", zap.String("pod", p.Namespace+"/"+p.Name), zap.Error(err))
	}
	return found
}

// tookBefore returns the UIDs that were adopted for pods of a file, by the UIDs of the manifest.
func (d *directory) tookBefore(path string) map[types.UID]types.UID {
	// If older objects are in effect in place of broken ones, the manifest in memory
	// has no adopted UIDs: they are read from the record on disk.
	if m := d.files[path]; m != nil && m.whole {
		return m.took
	}
	if r, ok := d.remembered(path); ok {
		return r.Took
	}
	return nil
}
