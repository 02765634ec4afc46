package hollow

import (
	"context"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/volumemgr"
)

// volumes are always ready and hold nothing: nothing is mounted on this machine, and no
// Secret written to its disk.
type volumes struct{ root string }

var _ agent.Volumes = volumes{}

// Mount implements agent.Volumes.
func (v volumes) Mount(_ context.Context, pod *v1.Pod) (volumemgr.Mounts, error) {
	out := volumemgr.Mounts{}
	for i := range pod.Spec.Volumes {
		name := pod.Spec.Volumes[i].Name
		out[name] = volumemgr.Mounted{Path: filepath.Join(v.dir(pod.UID), "volumes", "hollow", name)}
	}
	return out, nil
}

func (v volumes) dir(uid types.UID) string { return filepath.Join(v.root, "pods", string(uid)) }

// Unmount implements agent.Volumes.
func (volumes) Unmount(context.Context, types.UID) error { return nil }

// Remove implements agent.Volumes.
func (v volumes) Remove(_ context.Context, uid types.UID) error { return os.RemoveAll(v.dir(uid)) }

// Sweep implements agent.Volumes.
func (v volumes) Sweep(_ context.Context, known func(types.UID) bool) error {
	found, err := os.ReadDir(filepath.Join(v.root, "pods")) //nolint:forbidigo // of the node's owner alone
	if os.IsNotExist(err) {
		return nil
	}
	for _, e := range found {
		if uid := types.UID(e.Name()); !known(uid) {
			if err := os.RemoveAll(v.dir(uid)); err != nil {
				return err
			}
		}
	}
	return err
}

// Bind implements podruntime.SubPaths.
func (volumes) Bind(_ context.Context, _, _ string, s podspec.SubPath) (string, error) {
	return filepath.Join(s.VolumePath, s.Path), nil
}
