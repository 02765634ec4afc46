//go:build linux

package image

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxRef is the maximum length of an image name, in bytes.
const maxRef = 4096

// parseRef parses the name of an image as users write it. The default registry is Docker Hub and
// the default tag "latest"; a tag together with a digest is dropped.
func parseRef(name string) (reference.Named, error) {
	if name == "" || len(name) > maxRef {
		return nil, fmt.Errorf("%w: image.image has %d bytes; want 1 to %d", errInvalid, len(name), maxRef)
	}
	ref, err := reference.ParseDockerRef(name)
	if err != nil {
		return nil, fmt.Errorf("%w: image.image is %s: %w", errInvalid, shown(name), err)
	}
	return ref, nil
}

// find returns the image for a name with a tag or a digest, an ID, or a prefix of an ID.
// Incomplete images, and those that Config.Verify does not accept, are not found. The caller holds
// s.mu.
func (s *Store) find(name string) *record {
	r, repo := s.findAny(name)
	if r == nil || !s.whole(r) || !s.accepted(r, repo) {
		return nil
	}
	return r
}

// findAny does the same as find, but finds all images, so that they can be removed. repo is the
// repository if name is a name, and "" if it is an ID. The caller holds s.mu.
func (s *Store) findAny(name string) (r *record, repo string) {
	// IDs come first: "sha256:" and 64 digits would also parse as a repository with a
	// tag.
	if d := digest(name); d.check() == nil {
		return s.images[d], ""
	}
	if d := digest(digestPrefix + name); d.check() == nil {
		return s.images[d], ""
	}
	if ref, err := reference.ParseDockerRef(name); err == nil {
		full := ref.String()
		// By s.tags and not by the records: a record may still have a tag that now belongs to
		// another image.
		if id, ok := s.tags[full]; ok {
			return s.images[id], ref.Name()
		}
		for _, r := range s.images {
			if slices.Contains(r.Digests, full) {
				return r, ref.Name()
			}
		}
	}
	// Names take precedence over IDs: "abcdef" may be a repository.
	return s.byDigits(strings.TrimPrefix(name, digestPrefix)), ""
}

// byDigits finds an image by a prefix of its ID. It returns nil if no image or several
// images have the prefix.
func (s *Store) byDigits(digits string) (found *record) {
	const fewest = 6
	if len(digits) < fewest || strings.Trim(digits, "0123456789abcdef") != "" {
		return nil
	}
	for id, r := range s.images {
		if strings.HasPrefix(id.hex(), digits) {
			if found != nil {
				return nil
			}
			found = r
		}
	}
	return found
}

// image returns the CRI's description of an image. The caller holds s.mu.
func (s *Store) image(r *record) *runtimeapi.Image {
	out := &runtimeapi.Image{
		Id: string(r.ID), RepoTags: s.tagsOf(r), RepoDigests: slices.Clone(r.Digests), Pinned: r.Pinned,
		// The annotations are those of the manifest. The runtime handler is not set: there is
		// only one.
		Spec: &runtimeapi.ImageSpec{Image: string(r.ID), Annotations: r.Annotations},
	}
	// Pinned by configuration, which may change with a restart and so is not recorded.
	for _, t := range out.RepoTags {
		out.Pinned = out.Pinned || slices.Contains(s.cfg.Pinned, t)
	}
	for _, d := range out.RepoDigests {
		out.Pinned = out.Pinned || slices.Contains(s.cfg.Pinned, d)
	}
	// An image may contain the same layer twice; it is on the disk once.
	counted := map[string]bool{}
	for _, k := range r.Layers {
		if l := s.layers[k]; l != nil && !counted[k] {
			counted[k] = true
			out.Size += uint64(l.Size)
		}
	}
	out.Size += uint64(len(r.Config))
	out.Uid, out.Username = user(r.config.Config.User)
	return out
}

// user parses the user in an image's configuration, and ignores the group. At most one of uid and
// name is set, as the CRI requires; the kubelet needs the uid for runAsNonRoot.
func user(u string) (uid *runtimeapi.Int64Value, name string) {
	u, _, _ = strings.Cut(u, ":")
	if n, err := strconv.ParseInt(u, 10, 64); err == nil && n >= 0 {
		return &runtimeapi.Int64Value{Value: n}, ""
	}
	return nil, u
}

// ListImages lists all images, or the one that the filter names.
func (s *Store) ListImages(ctx context.Context, f *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	if err := s.await(ctx); err != nil {
		return nil, coded(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := f.GetImage().GetImage(); name != "" {
		if r := s.find(name); r != nil {
			return []*runtimeapi.Image{s.image(r)}, nil
		}
		// In the CRI an unknown name is an empty list, and no error.
		return nil, nil
	}
	var out []*runtimeapi.Image
	for _, r := range s.images {
		if s.whole(r) {
			out = append(out, s.image(r))
		}
	}
	slices.SortFunc(out, func(a, b *runtimeapi.Image) int { return strings.Compare(a.GetId(), b.GetId()) })
	return out, nil
}

// ImageStatus returns an image by name, ID or a prefix of its ID. If the image does not exist,
// the answer has no image. If verbose is true, the key "info" has JSON with the image's
// configuration in "imageSpec". Before it answers without an image, it waits until the preloaded
// images are imported.
func (s *Store) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	if err := s.await(ctx); err != nil {
		return nil, coded(err)
	}
	if image.GetImage() == "" {
		return nil, coded(fmt.Errorf("%w: image.image is empty; want the name of an image", errInvalid))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// An existing image is returned at once, also during the preload.
	r := s.find(image.GetImage())
	if r == nil {
		// The wait may take minutes, so the lock is released.
		s.mu.Unlock()
		err := s.awaitPreloaded(ctx)
		s.mu.Lock()
		if err != nil {
			return nil, coded(err)
		}
		if r = s.find(image.GetImage()); r == nil {
			// In the CRI an answer without an image means that it does not exist.
			return &runtimeapi.ImageStatusResponse{}, nil
		}
	}
	out := &runtimeapi.ImageStatusResponse{Image: s.image(r)}
	if verbose {
		// The format of containerd and CRI-O.
		b, err := json.Marshal(map[string]json.RawMessage{"imageSpec": r.Config})
		if err != nil {
			return nil, coded(err)
		}
		out.Info = map[string]string{"info": string(b)}
	}
	return out, nil
}

// PullImage downloads an image from its registry or one of its mirrors, and returns its ID.
// Existing layers are not downloaded again. If ctx ends, PullImage returns, and downloads that no
// other pull needs are stopped. The next pull continues them.
//
// Errors are gRPC statuses: InvalidArgument, NotFound, PermissionDenied, Unavailable
// ("RegistryUnavailable: ..."), DataLoss, ResourceExhausted, DeadlineExceeded. If Config.Verify
// rejects an image, the message begins with "SignatureValidationFailed: ".
func (s *Store) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (id string, err error) {
	if err := s.await(ctx); err != nil {
		return "", coded(err)
	}
	// An earlier deadline of the caller still applies.
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	// The pull also ends with Run.
	defer context.AfterFunc(s.base, cancel)()
	ref, err := parseRef(image.GetImage())
	if err != nil {
		return "", coded(err)
	}
	src, err := newRegistry(s, ref, auth)
	if err != nil {
		return "", coded(err)
	}
	o := order{repo: ref.Name(), pull: image.GetImage()}
	// parseRef returns exactly one of the two.
	switch r := ref.(type) {
	case reference.Canonical:
		o.ref = r.Digest().String()
		// sha512 is valid in a reference, but not supported here.
		if err := digest(o.ref).check(); err != nil {
			return "", coded(fmt.Errorf("%w: image.image: %w", errInvalid, err))
		}
	case reference.Tagged:
		o.ref, o.tag = r.Tag(), ref.String()
	}
	got, err := s.install(ctx, src, o)
	if err != nil {
		// Cancelled downloads have errors of their own, which are not the reason.
		if ctx.Err() != nil { // the cause of the other errors
			err = fmt.Errorf("%w: %s", context.Cause(ctx), err.Error())
		}
		return "", coded(fmt.Errorf("pull %s: %w", ref, err))
	}
	return string(got), nil
}

// PullProgress returns how many bytes of the layers of an image are on the node, and how many these
// layers have, as they are transferred. Both are 0 unless a PullImage with the same name is getting the
// layers. It reads only memory.
func (s *Store) PullProgress(image string) (received, total int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	layers := s.pulls[image]
	if layers == nil {
		return 0, 0
	}
	for _, w := range *layers {
		total += w.Size
		if s.have(w.diff, w.id()) != "" {
			received += w.Size
		} else if f := s.flights[w.id()]; f != nil {
			if d := f.download.Load(); d != nil {
				n, _, _ := d.state()
				received += n
			}
		}
	}
	return received, total
}

// begun makes the progress of a pull known until the returned function is called. If two pulls have
// one name, they share their layers, and the later one counts.
func (s *Store) begun(name string, layers []wanted) (ended func()) {
	if name == "" {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulls[name] = &layers
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.pulls[name] == &layers {
			delete(s.pulls, name)
		}
	}
}

// Offered asks the registry of an image, or a mirror of the registry, whether it has the image.
// If Offered returns nil, it has. Offered downloads only the manifest. Its errors are those of
// PullImage.
func (s *Store) Offered(ctx context.Context, image string, auth *runtimeapi.AuthConfig) error {
	ref, err := parseRef(image)
	if err != nil {
		return coded(err)
	}
	src, err := newRegistry(s, ref, auth)
	if err != nil {
		return coded(err)
	}
	want := ""
	switch r := ref.(type) { // parseRef leaves exactly one of the two
	case reference.Canonical:
		want = r.Digest().String()
	case reference.Tagged:
		want = r.Tag()
	}
	if _, _, err := src.manifest(ctx, want); err != nil {
		return coded(fmt.Errorf("ask for %s: %w", ref, err))
	}
	return nil
}

// RemoveImage removes an image with all its names; image may have any of them. It returns when
// the image's files are deleted. If ctx ends before, the files are deleted in the background.
// Layers that containers use stay until they are released. As the CRI requires, it is not an
// error if the image does not exist.
func (s *Store) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	if err := s.await(ctx); err != nil {
		return coded(err)
	}
	if image.GetImage() == "" {
		return coded(fmt.Errorf("%w: image.image is empty; want the name of an image", errInvalid))
	}
	s.mu.Lock()
	// Incomplete images can be removed, too.
	r, _ := s.findAny(image.GetImage())
	s.mu.Unlock()
	if r == nil {
		return nil
	}
	if err := s.forget(ctx, r.ID); err != nil {
		return coded(fmt.Errorf("remove %s: %w", r.ID, err))
	}
	if err := s.collected(ctx); err != nil {
		return coded(fmt.Errorf("remove files of %s: %w", r.ID, err))
	}
	return nil
}

// ImageFsInfo returns the file system of images and containers, which is the same, and the usage
// of the layers.
func (s *Store) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	if err := s.await(ctx); err != nil {
		return nil, coded(err)
	}
	var size, entries uint64
	s.mu.Lock()
	// The sizes of the layers were computed at unpacking, so the disk is not read.
	for _, l := range s.layers {
		size += uint64(l.Size)
		entries += uint64(l.Entries)
	}
	s.mu.Unlock()
	// Two separate values, since callers may change them.
	usage := func() []*runtimeapi.FilesystemUsage {
		return []*runtimeapi.FilesystemUsage{{
			Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: s.cfg.RootDir},
			UsedBytes: &runtimeapi.UInt64Value{Value: size}, InodesUsed: &runtimeapi.UInt64Value{Value: entries},
		}}
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: usage(), ContainerFilesystems: usage()}, nil
}

// Close does nothing: the store ends with Run's context.
func (s *Store) Close(context.Context) error { return nil }
