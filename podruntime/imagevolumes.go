package podruntime

import (
	"context"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
)

// imageVolumes pulls the missing images that the containers to be started mount as volumes
// (KEP-4639). It blocks until all pulls have ended. Failures are recorded by volume: only the
// containers that mount the volume fail.
func (s *syncing) imageVolumes(ctx context.Context, a Actions) {
	mounted := map[string]bool{}
	note := func(mounts []v1.VolumeMount) {
		for _, m := range mounts {
			mounted[m.Name] = true
		}
	}
	for _, i := range a.Ephemeral {
		note(s.pod.Spec.EphemeralContainers[i].VolumeMounts)
	}
	for _, i := range a.Init {
		note(s.pod.Spec.InitContainers[i].VolumeMounts)
	}
	for _, i := range a.Regular {
		note(s.pod.Spec.Containers[i].VolumeMounts)
	}
	type volume struct {
		name, ref string
		image     *v1.ImageVolumeSource
	}
	var volumes []*volume
	for i := range s.pod.Spec.Volumes {
		v := &s.pod.Spec.Volumes[i]
		// Each volume is asked for once in a sync; a failure stands until the next.
		if _, asked := s.imageErrs[v.Name]; v.Image != nil && mounted[v.Name] && !asked {
			volumes = append(volumes, &volume{name: v.Name, image: v.Image})
		}
	}
	if len(volumes) == 0 {
		return
	}
	errs := parallel(volumes, func(v *volume) error {
		facts, err := s.m.cfg.Images.Ensure(ctx, ImageRequest{
			Pod: s.pod, Image: v.image.Reference, Policy: v.image.PullPolicy,
			RuntimeHandler: s.in.RuntimeHandler, Sandbox: s.sandboxConf, Secrets: pullSecrets(s.in),
		})
		// Each call has its own element, so that they need no lock.
		v.ref = facts.Ref
		return err
	})
	refs := maps.Clone(s.in.ImageRefs) // the map is the caller's
	if refs == nil {
		refs = map[string]string{}
	}
	for i, v := range volumes {
		s.imageErrs[v.name], refs[v.name] = errs[i], v.ref
	}
	s.in.ImageRefs = refs
}

// imageVolumeErr returns the error of the first image volume of a container whose image could not
// be pulled, or nil.
func (s *syncing) imageVolumeErr(c *v1.Container) error {
	for _, m := range c.VolumeMounts {
		if err := s.imageErrs[m.Name]; err != nil {
			return fmt.Errorf("volume %q: %w", m.Name, err)
		}
	}
	return nil
}
