package agent

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/images"
)

// EnsureImages returns when all images of a pod are on the node, or an error that names those that
// are not. It pulls them as the pod would, with its policies and pull secrets. The pod need not be
// wanted yet. It blocks for the time of the pulls, or until ctx ends.
func (a *Agent) EnsureImages(ctx context.Context, pod *v1.Pod) error {
	var secrets []*v1.Secret
	if refs := pod.Spec.ImagePullSecrets; len(refs) > 0 {
		known := a.pods.Secrets(pod.Namespace)
		for _, ref := range refs {
			if s := known[ref.Name]; s != nil {
				secrets = append(secrets, s)
			}
		}
	}
	var requests []images.Request
	add := func(container, image string, policy v1.PullPolicy) {
		requests = append(requests, images.Request{Pod: pod, Container: container, Image: image, Policy: policy, Secrets: secrets})
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			add(list[i].Name, list[i].Image, list[i].ImagePullPolicy)
		}
	}
	for i := range pod.Spec.Volumes {
		if img := pod.Spec.Volumes[i].Image; img != nil {
			add("", img.Reference, img.PullPolicy)
		}
	}
	errs := make([]error, len(requests))
	var all errgroup.Group
	for i, r := range requests {
		all.Go(func() error {
			if _, err := a.images.Ensure(ctx, r); err != nil {
				errs[i] = fmt.Errorf("image %s: %w", r.Image, err)
			}
			return nil
		})
	}
	_ = all.Wait()
	return errors.Join(errs...)
}
