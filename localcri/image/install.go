//go:build linux

package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	oci "github.com/opencontainers/image-spec/specs-go/v1"
	"go.uber.org/zap"
)

// maxNames is the maximum number of tags, and of digests, of an image. If there are more
// digests, the oldest are dropped.
const maxNames = 1000

// order describes which image of a source to install, and its names.
type order struct {
	ref    string // in the source: a tag or a digest
	tag    string // "" or a name with a tag
	repo   string // "" or a name without a tag
	pull   string // name in the request to pull; "" for an archive
	pinned bool
}

// install installs an image from a source. Cheap steps come first: names and platform are checked
// before any layer is downloaded. The record comes last, when everything that it names is on the
// disk.
func (s *Store) install(ctx context.Context, src source, o order) (digest, error) {
	top, m, err := s.resolve(ctx, src, o)
	if err != nil {
		return "", err
	}
	raw, err := src.config(ctx, m.Config)
	if err != nil {
		return "", fmt.Errorf("config %s: %w", m.Config.Digest, err)
	}
	// The ID of an image is the digest of these bytes, for any source.
	if err := checkBytes(raw, m.Config.Digest); err != nil {
		return "", fmt.Errorf("config: %w", err)
	}
	c, err := parseConfig(raw)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errInvalid, err)
	}
	// Layers and diff IDs correspond by position (OCI image specification, "rootfs").
	if len(c.RootFS.DiffIDs.items) != len(m.Layers.items) {
		return "", fmt.Errorf("%w: config has %d diff IDs, manifest %d layers; want the same number", errInvalid, len(c.RootFS.DiffIDs.items), len(m.Layers.items))
	}
	// The platform of an image without an index is known only now.
	if p := s.platform(); !canRun(p, c.platform()) {
		return "", fmt.Errorf("%w: no image for %s; the image is for %s", errNotFound, platforms.Format(p), shown(platforms.Format(c.platform())))
	}
	layers := layersOf(m.Layers.items, c.RootFS.DiffIDs.items)
	defer s.begun(o.pull, layers)()
	keys, err := s.getLayers(ctx, src, layers)
	// Also after an error: the layers that exist are kept for keepPartial.
	defer func() { s.release(slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return k == "" })) }()
	if err != nil {
		return "", err
	}
	if err := s.commit(ctx, keys); err != nil {
		return "", err
	}
	// keep adds tags and digests, including those of an earlier pull.
	r := &record{ID: m.Config.Digest, Config: raw, Layers: keys, Annotations: m.Annotations, Pinned: o.pinned, config: c}
	return r.ID, s.keep(ctx, r, o, top)
}

// platform returns the platform to pull for, in normal form.
func (s *Store) platform() oci.Platform {
	return platforms.Normalize(oci.Platform{OS: s.cfg.OS, Architecture: s.cfg.Architecture, Variant: s.cfg.Variant})
}

// resolve finds the manifest for the platform. top is the digest that the image's name refers to,
// which may be that of an index.
func (s *Store) resolve(ctx context.Context, src source, o order) (top digest, m *manifest, err error) {
	const maxNested = 3
	// An index may refer to an index; more than three levels do not occur.
	ref := o.ref
	for range maxNested {
		b, mediaType, err := src.manifest(ctx, ref)
		if err != nil {
			return "", nil, err
		}
		if d := digest(ref); d.check() == nil {
			// A tag implies no digest; content requested by digest must match it, even if the
			// source does not check that.
			if err := checkBytes(b, d); err != nil {
				return "", nil, fmt.Errorf("manifest: %w", err)
			}
		}
		// Only the first document is verified. All others are identified by digests in it.
		if top == "" {
			top = digestOf(b)
			if err := s.verify(ctx, src, o, top); err != nil {
				return "", nil, err
			}
		}
		m, err := parseManifest(b, mediaType)
		if err != nil {
			return "", nil, fmt.Errorf("%w: %w", errInvalid, err)
		}
		if !m.isIndex() {
			return top, m, nil
		}
		// Only the best entry: a pull has one image, and a fallback is not what the index
		// specifies.
		entries, err := choose(s.platform(), m.Manifests.items)
		if err != nil {
			return "", nil, err
		}
		// The size and digest of an entry are not trusted, and are used for a path and a buffer.
		if err := entries[0].check(maxManifest); err != nil {
			return "", nil, fmt.Errorf("%w: index: %w", errInvalid, err)
		}
		ref = string(entries[0].Digest)
	}
	return "", nil, fmt.Errorf("%w: indexes are nested; want at most %d", errInvalid, maxNested)
}

// verify asks Config.Verify whether the image with a digest may be used.
func (s *Store) verify(ctx context.Context, src source, o order, top digest) error {
	if s.cfg.Verify == nil {
		return nil
	}
	var fetch func(ctx context.Context, kind, ref string, limit int64) ([]byte, error)
	if r, ok := src.(*registry); ok {
		fetch = r.document
	}
	if err := s.cfg.Verify.Verify(ctx, o.repository(), string(top), fetch); err != nil {
		return fmt.Errorf("%w: %w", errSignature, err)
	}
	return nil
}

// repository returns the repository of the image's name, or "" if the image has no name.
func (o order) repository() string {
	if o.repo != "" {
		return o.repo
	}
	return repositoryOf(o.tag)
}

// repositoryOf returns the repository of a name that parseRef has returned.
func repositoryOf(name string) string {
	ref, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return ""
	}
	return ref.Name()
}

// repositories returns the repositories of an image's names. An image without a name has one, which is "".
func (r *record) repositories() []string {
	var out []string
	for _, n := range slices.AppendSeq(slices.Clone(r.Digests), maps.Keys(r.Tags)) {
		if repo := repositoryOf(n); !slices.Contains(out, repo) {
			out = append(out, repo)
		}
	}
	if len(out) == 0 {
		return []string{""}
	}
	return out
}

// accepted reports whether Config.Verify has accepted an image for a repository. If repo is "", it
// reports this for any of the image's names.
func (s *Store) accepted(r *record, repo string) bool {
	if s.cfg.Verify == nil {
		return true
	}
	repos := []string{repo}
	if repo == "" {
		repos = r.repositories()
	}
	return slices.ContainsFunc(repos, func(repo string) bool {
		id := s.cfg.Verify.Required(repo)
		return id == "" || r.Verified[repo] == id
	})
}

// layersOf returns the layers of an image, the lowest first.
func layersOf(blobs []descriptor, diffs []digest) (layers []wanted) {
	chain := chainIDs(diffs)
	for i := range blobs {
		layers = append(layers, wanted{blobs[i], diffs[i], chain[:i+1], diffs[:i+1]})
	}
	return layers
}

// getLayers gets all layers concurrently, and holds them. The result has the key of each layer
// that is held, and "" for every other layer. It has these keys after an error, too, and the
// caller must release them.
func (s *Store) getLayers(ctx context.Context, src source, layers []wanted) ([]string, error) {
	// The first failure ends the downloads of the others.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	keys, errs := make([]string, len(layers)), make([]error, len(layers))
	var wg sync.WaitGroup
	var size atomic.Int64
	for i := range layers {
		wg.Go(func() {
			// Not limited here: downloads and unpacking have their own limits, and a layer may
			// have to wait for those below it.
			keys[i], errs[i] = s.ensure(ctx, src, layers[i])
			if errs[i] == nil && size.Add(s.sizeOf(keys[i])) > s.cfg.MaxImageBytes {
				errs[i] = fmt.Errorf("%w: the layers of the image have more than %d bytes", errLimit, s.cfg.MaxImageBytes)
			}
			if errs[i] != nil {
				cancel(errs[i]) // the first error is the cause of all others
			}
		})
	}
	wg.Wait()
	// The cause is the first error, or the end of the caller's context; other errors follow from
	// it.
	if errors.Join(errs...) != nil {
		return keys, context.Cause(ctx)
	}
	return keys, nil
}

// sizeOf returns the size of a held layer.
func (s *Store) sizeOf(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layers[key].Size
}

// keep writes an image's record. The record has the names that the image had before, and the new
// name.
func (s *Store) keep(ctx context.Context, r *record, o order, top digest) error {
	// Reading the old names and writing the new record must not interleave with another pull of
	// the same image.
	if err := take(ctx, s.writes); err != nil {
		return err
	}
	defer func() { <-s.writes }()
	s.mu.Lock()
	if old := s.images[r.ID]; old != nil {
		r.Tags, r.Digests, r.Verified = maps.Clone(old.Tags), slices.Clone(old.Digests), maps.Clone(old.Verified)
		// A pull of an image that was preloaded does not unpin it.
		r.Pinned = r.Pinned || old.Pinned
	}
	if r.Tags == nil {
		r.Tags = map[string]uint64{}
	}
	if o.tag != "" {
		// Rejected, and not the oldest dropped: without its tag a pod's image would be missing.
		if len(r.Tags) >= maxNames && r.Tags[o.tag] == 0 {
			s.mu.Unlock()
			return fmt.Errorf("%w: image has %d tags; want at most %d", errLimit, len(r.Tags), maxNames)
		}
		// After a crash the number decides which image has the tag; gaps do no harm.
		s.seq++
		r.Tags[o.tag] = s.seq
	}
	s.mu.Unlock()
	if o.repo != "" {
		name := o.repo + "@" + string(top)
		// The name moves to the end, so that the oldest name is first.
		r.Digests = append(slices.DeleteFunc(r.Digests, func(d string) bool { return d == name }), name)
		r.Digests = r.Digests[max(0, len(r.Digests)-maxNames):]
	}
	if s.cfg.Verify != nil {
		s.noteVerified(r, o.repository())
	}
	if err := s.write(ctx, r); err != nil {
		return err
	}
	// Readers see the image only now that it is on the disk.
	s.cfg.step("recorded")
	s.mu.Lock()
	s.publish(r)
	for _, k := range r.Layers {
		if l := s.layers[k]; l != nil {
			l.keep = time.Time{} // from now on the image keeps it
		}
	}
	s.mu.Unlock()
	// A failure here is logged and tried again with the next pull.
	s.dropStale(ctx)
	return nil
}

// noteVerified records that an image was accepted for a repository. It drops the notes about
// repositories that the image has no name of any more.
func (s *Store) noteVerified(r *record, repo string) {
	has := r.repositories()
	maps.DeleteFunc(r.Verified, func(repo, _ string) bool { return !slices.Contains(has, repo) })
	if id := s.cfg.Verify.Required(repo); id != "" {
		if r.Verified == nil {
			r.Verified = map[string]string{}
		}
		r.Verified[repo] = id
	}
}

// write writes a record to the disk, and returns when it is synced. The caller holds s.writes.
func (s *Store) write(ctx context.Context, r *record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.records.WriteContext(ctx, r.ID.hex(), b)
}

// dropStale removes names from the records of images that lost them to other images. As long as
// two records have the same tag, the record with the higher number for the tag has it. The caller
// holds s.writes.
func (s *Store) dropStale(ctx context.Context) {
	s.mu.Lock()
	var stale []*record
	for _, r := range s.images {
		kept := maps.Clone(r.Tags)
		maps.DeleteFunc(kept, func(t string, _ uint64) bool { return s.tags[t] != r.ID })
		if len(kept) < len(r.Tags) {
			// A copy: readers use published records without a lock.
			c := *r
			c.Tags = kept
			stale = append(stale, &c)
		}
	}
	s.mu.Unlock()
	// One by one: a record that cannot be written keeps a tag, which publish ignores.
	for _, r := range stale {
		if err := s.write(ctx, r); err != nil {
			s.cfg.Log.Warn("failed to remove name of image", zap.String("image", string(r.ID)), zap.Error(err))
			continue
		}
		s.mu.Lock()
		s.images[r.ID] = r
		s.mu.Unlock()
	}
}

// forget removes an image with all its names. Its layers stay until the caller calls collect. It
// is not an error if the image does not exist.
func (s *Store) forget(ctx context.Context, id digest) error {
	if err := take(ctx, s.writes); err != nil {
		return err
	}
	defer func() { <-s.writes }()
	s.mu.Lock()
	r := s.images[id]
	s.mu.Unlock()
	if r == nil {
		return nil
	}
	s.dropStale(ctx) // otherwise a name would return to its former image
	if err := s.records.DeleteContext(ctx, id.hex()); err != nil {
		return err
	}
	s.mu.Lock()
	// After the disk: on an error the image still exists in both places.
	delete(s.images, id)
	maps.DeleteFunc(s.tags, func(_ string, owner digest) bool { return owner == id })
	s.mu.Unlock()
	return nil
}
