package podruntime

import (
	"context"
	"errors"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podspec"
)

// subPaths prepares the subPaths that a container mounts, and writes the paths to mount into the
// plan. It blocks for as long as the volumes' file systems take.
func (s *syncing) subPaths(ctx context.Context, c *v1.Container, plan *podspec.ContainerPlan) error {
	// Until here the mount has the path inside of the volume, which the pod may
	// turn into a link between this look and the mount.
	for _, sub := range plan.SubPaths {
		host := plan.Config.Mounts[sub.Mount].GetHostPath()
		var err error
		if s.m.cfg.SubPaths != nil {
			host, err = s.m.cfg.SubPaths.Bind(ctx, s.in.PodDir, c.Name, sub)
		} else {
			_, err = onDisk(ctx, &s.m.disk, s.pod.UID, inVolumes, func() (struct{}, error) { return struct{}{}, makePart(sub) })
		}
		if err != nil {
			return fmt.Errorf("container %q: volumeMounts[%d]: %w", c.Name, sub.Index, err)
		}
		plan.Config.Mounts[sub.Mount].HostPath = host
	}
	return nil
}

// makePart makes the directory of a subPath if it does not exist. It follows no link out of the
// volume.
func makePart(s podspec.SubPath) (err error) {
	root, err := os.OpenRoot(s.VolumePath)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	// A part that is there may be a file as well as a directory.
	if _, err := root.Stat(s.Path); err == nil {
		return nil
	}
	return root.MkdirAll(s.Path, 0o750)
}
