package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/podmeta"
)

var _ local.ImageKeeper = (*Node)(nil)

// PullImage pulls an image and returns its ID. It tries the node's credentials one after the
// other, and no credentials last. For pods the image counts as preloaded: see
// imagePullCredentialsVerificationPolicy. It blocks until the image is pulled or ctx ends. The
// error joins the errors of all attempts. If a registry does not have the image, errors.Is(err,
// local.ErrNotFound) is true.
func (n *Node) PullImage(ctx context.Context, image string) (string, error) {
	auths, errs := n.credentials(ctx, image)
	for _, auth := range auths {
		id, err := n.builder.Images.PullImage(ctx, &runtimeapi.ImageSpec{Image: image}, auth, nil)
		if err == nil {
			n.wakeForImages()
			return id, nil
		}
		if status.Code(err) == codes.NotFound {
			err = fmt.Errorf("%w: %w", local.ErrNotFound, err)
		}
		// The caller's time is up: further attempts would only fail with it.
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return "", fmt.Errorf("pull image %q: %w", image, errors.Join(errs...))
}

// Fit reports whether the node would admit the pod, and which of its images are missing on this
// node. If the runtime can query registries without a pull, Fit queries those of the missing images
// that may be pulled.
func (n *Node) Fit(pod *v1.Pod, beside ...*v1.Pod) local.Fit {
	out := n.Agent.Fit(pod, beside...)
	ctx, cancel := context.WithTimeout(context.Background(), offerTimeout)
	defer cancel()
	var missing []string
	for image, never := range imagesOf(pod) {
		found, err := n.builder.Images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: image}, false)
		switch {
		case err != nil || found.GetImage() != nil: // if the runtime does not answer, the image does not count as missing
		case never:
			out.Missing = append(out.Missing, local.FitMissing{Kind: local.KindImage, Name: image, Message: fmt.Sprintf("image %s is not here, and imagePullPolicy is Never", image)})
		default:
			missing = append(missing, image)
		}
	}
	answers := make([]local.FitMissing, len(missing))
	var asked errgroup.Group
	for i, image := range missing {
		asked.Go(func() error {
			answers[i] = n.offered(ctx, image)
			return nil
		})
	}
	_ = asked.Wait()
	out.Missing = append(out.Missing, answers...)
	return out
}

// offerTimeout is how long registries may take to say whether they have the images of a pod.
const offerTimeout = 20 * time.Second

// imagesOf yields each image of a pod once. The second value is true if no container of the pod
// may pull the image.
func imagesOf(pod *v1.Pod) iter.Seq2[string, bool] {
	var order []string
	never := map[string]bool{}
	add := func(image string, policy v1.PullPolicy) {
		before, seen := never[image]
		if !seen {
			order = append(order, image)
		}
		never[image] = policy == v1.PullNever && (before || !seen)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		add(c.Image, c.ImagePullPolicy)
	}
	for i := range pod.Spec.Volumes {
		if img := pod.Spec.Volumes[i].Image; img != nil {
			add(img.Reference, img.PullPolicy)
		}
	}
	return func(yield func(string, bool) bool) {
		for _, image := range order {
			if !yield(image, never[image]) {
				return
			}
		}
	}
}

// offered reports whether a registry has an image that is missing on this node.
func (n *Node) offered(ctx context.Context, image string) local.FitMissing {
	m := local.FitMissing{Kind: local.KindImage, Name: image, Comes: true, Message: fmt.Sprintf("image %s is not here: it is pulled when the pod starts", image)}
	if n.local == nil || n.local.Offered == nil {
		return m
	}
	auths, errs := n.credentials(ctx, image)
	for _, auth := range auths {
		err := n.local.Offered(ctx, image, auth)
		if err == nil {
			m.Message += "; its registry has it"
			return m
		}
		errs = append(errs, err)
	}
	m.Comes = false
	m.Message = fmt.Sprintf("image %s is not here, and cannot be pulled: %s", image, strings.ReplaceAll(callerror.Shown(errors.Join(errs...)), "\n", "; "))
	return m
}

// Credentials returns the node's own credentials for a repository of a registry, the most specific
// first. The error is that of credential providers that failed; credentials of others may come with
// it.
func (n *Node) Credentials(ctx context.Context, repository string) ([]*runtimeapi.AuthConfig, error) {
	auths, errs := n.credentials(ctx, repository)
	return auths[:len(auths)-1], errors.Join(errs...)
}

// credentials returns the node's own credentials for an image, and no credentials last. A keyring
// that fails does not stop others from being tried.
func (n *Node) credentials(ctx context.Context, image string) (auths []*runtimeapi.AuthConfig, errs []error) {
	for _, ring := range n.builder.rings {
		found, err := ring.Credentials(ctx, image)
		auths = append(auths, found...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	return append(auths, nil), errs
}

// LoadImages installs the images of an archive and returns their IDs. An image that has
// no name in the archive gets name. If the runtime does not support archives, the error
// is errors.ErrUnsupported.
func (n *Node) LoadImages(ctx context.Context, archive io.Reader, name string) ([]string, error) {
	if n.local == nil || n.local.Import == nil {
		return nil, unsupported("the container runtime takes no archives of images over the CRI; use its own program, such as \"ctr -n k8s.io images import\"")
	}
	ids, err := n.local.Import(ctx, archive, name)
	if len(ids) > 0 {
		n.wakeForImages()
	}
	return ids, err
}

// wakeForImages resyncs the pods that wait for an image.
func (n *Node) wakeForImages() {
	for _, p := range n.Pods() {
		if len(podmeta.MissingImages(p)) > 0 {
			n.Resync(p.UID)
		}
	}
}

// RemoveImage removes an image with all its names. Unless force is set, it returns an
// error for an image that a container uses. If there is no such image, the error is
// local.ErrNotFound. A container may be created after this check: the runtime has to
// refuse the removal of its image.
func (n *Node) RemoveImage(ctx context.Context, image string, force bool) error {
	spec := &runtimeapi.ImageSpec{Image: image}
	found, err := n.builder.Images.ImageStatus(ctx, spec, false)
	if err != nil {
		return fmt.Errorf("find image %q: %w", image, err)
	}
	img := found.GetImage()
	if img == nil {
		return fmt.Errorf("image %q: %w", image, local.ErrNotFound)
	}
	if !force {
		if err := n.unused(ctx, img); err != nil {
			return err
		}
	}
	if err := n.builder.Images.RemoveImage(ctx, spec); err != nil {
		return fmt.Errorf("remove image %q: %w", image, err)
	}
	return nil
}

// unused returns an error that names a container of the image. Ended containers
// count too: they need the image for inspection and restarts.
func (n *Node) unused(ctx context.Context, img *runtimeapi.Image) error {
	containers, err := n.builder.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	// Runtimes name a container's image by ID, tag or digest.
	names := append(append([]string{img.GetId()}, img.GetRepoTags()...), img.GetRepoDigests()...)
	for _, c := range containers {
		if slices.Contains(names, c.GetImageId()) || slices.Contains(names, c.GetImageRef()) || slices.Contains(names, c.GetImage().GetImage()) {
			return fmt.Errorf("image %q is used by container %q of pod %s/%s; remove the container first, or use force", img.GetId(),
				c.GetMetadata().GetName(), c.GetLabels()["io.kubernetes.pod.namespace"], c.GetLabels()["io.kubernetes.pod.name"])
		}
	}
	return nil
}
