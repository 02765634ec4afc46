package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/podmgr"
)

// Media types of a bundle: of the artifact, of its configuration, which is a [Rollout], and of its
// one layer, which has the manifests.
const (
	ArtifactType = "application/vnd.nodewright.bundle.v1"
	configType   = "application/vnd.nodewright.bundle.config.v1+json"
	layerType    = "application/vnd.nodewright.bundle.manifests.v1.tar+gzip"
)

// Limits of a bundle, in bytes unless they say otherwise.
const (
	maxDocument = 64 << 10 // the OCI manifest, and the configuration
	maxLayer    = 8 << 20
	maxUnpacked = 32 << 20 // all manifests
	maxFile     = 10 << 20 // one manifest, the kubelet's limit
	maxFiles    = 1000     // manifests
	maxName     = 255      // the name of a manifest (NAME_MAX)
	maxProblems = 10       // that an error lists
)

// Defaults and limits of a Rollout.
const (
	DefaultHealthyWithin = 5 * time.Minute
	MaxHealthyWithin     = time.Hour
	DefaultReadyFor      = 10 * time.Second
)

// ErrInvalid is wrapped by errors that will not change: the content of the bundle is the reason.
var ErrInvalid = errors.New("invalid bundle")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// Rollout says when a bundle takes effect, and when it counts as good. The zero value of every
// field means the default named beside it.
type Rollout struct {
	// HealthyWithin limits the time from the replacement of the pods until the bundle is good. The
	// default is DefaultHealthyWithin, the limit MaxHealthyWithin.
	HealthyWithin metav1.Duration `json:"healthyWithin,omitzero"`
	// ReadyFor is how long all pods have to be ready without a restart of a container, at most
	// HealthyWithin. The default is DefaultReadyFor.
	ReadyFor metav1.Duration `json:"readyFor,omitzero"`
	// Percent is the part of the nodes that take the bundle, 1 to 100. The hash of a node's name
	// decides, so a node that takes a bundle at 10 also takes one at 50. The default is 100.
	Percent int `json:"percent,omitempty"`
}

// withDefaults returns the rollout with its defaults, or an error for values that are not allowed.
func (r Rollout) withDefaults() (Rollout, error) {
	if r.HealthyWithin.Duration == 0 {
		r.HealthyWithin.Duration = DefaultHealthyWithin
	}
	if r.ReadyFor.Duration == 0 {
		r.ReadyFor.Duration = min(DefaultReadyFor, r.HealthyWithin.Duration)
	}
	if r.Percent == 0 {
		r.Percent = 100
	}
	switch {
	case r.HealthyWithin.Duration < time.Second || r.HealthyWithin.Duration > MaxHealthyWithin:
		return r, invalid("healthyWithin: %v: want 1s to %v", r.HealthyWithin.Duration, MaxHealthyWithin)
	case r.ReadyFor.Duration < 0 || r.ReadyFor.Duration > r.HealthyWithin.Duration:
		return r, invalid("readyFor: %v: want 0s to healthyWithin, %v", r.ReadyFor.Duration, r.HealthyWithin.Duration)
	case r.Percent < 1 || r.Percent > 100:
		return r, invalid("percent: %d: want 1 to 100", r.Percent)
	}
	return r, nil
}

// place returns the place of a node in rollouts: it takes bundles whose percent is larger.
func place(node string) int {
	h := fnv.New64a()
	_, _ = io.WriteString(h, strings.ToLower(node))
	return int(h.Sum64() % 100)
}

// Bundle is a bundle whose content matches its digest. It does not change.
type Bundle struct {
	Digest  string // of the OCI manifest
	Rollout Rollout
	Files   []podmgr.ManifestFile // sorted by name, which is that of a file without directories

	manifest, config, layer []byte
}

// blob is what an artifact consists of.
type blob struct {
	mediaType string
	data      []byte
}

func (b *Bundle) blobs() []blob { return []blob{{configType, b.config}, {layerType, b.layer}} }

// Build makes a bundle of manifests. The same files and rollout make the same bundle. The error
// has the mistakes of all manifests.
func Build(files []podmgr.ManifestFile, r Rollout) (*Bundle, error) {
	if _, err := r.withDefaults(); err != nil {
		return nil, err
	}
	files = slices.SortedFunc(slices.Values(files), func(a, b podmgr.ManifestFile) int { return strings.Compare(a.Name, b.Name) })
	var layer bytes.Buffer
	// Without times, owners and the name of a file, so that only the content counts.
	z := gzip.NewWriter(&layer)
	w := tar.NewWriter(z)
	for _, f := range files {
		if err := errors.Join(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Size: int64(len(f.Data)), Mode: 0o644}), writeAll(w, f.Data)); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.Name, err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		return nil, err
	}
	config, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: ArtifactType,
		Config: describe(configType, config), Layers: []ocispec.Descriptor{describe(layerType, layer.Bytes())},
	})
	if err != nil {
		return nil, err
	}
	b, err := open(digest.FromBytes(manifest).String(), manifest, func(d ocispec.Descriptor) ([]byte, error) {
		if d.MediaType == configType {
			return config, nil
		}
		return layer.Bytes(), nil
	})
	if err != nil {
		return nil, err
	}
	_, err = b.Snapshot("node")
	return b, err
}

func writeAll(w io.Writer, data []byte) error {
	_, err := w.Write(data)
	return err
}

func describe(mediaType string, data []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
}

// open verifies and parses a bundle with this digest. fetch returns a blob of it, of at most the
// size that the descriptor says, which is within the limits. Manifests are not decoded: see
// Snapshot.
func open(want string, manifest []byte, fetch func(ocispec.Descriptor) ([]byte, error)) (*Bundle, error) {
	if err := verify(digest.Digest(want), manifest); err != nil {
		return nil, err
	}
	if len(manifest) > maxDocument {
		return nil, invalid("OCI manifest has %d bytes; want at most %d", len(manifest), maxDocument)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(manifest, &m); err != nil {
		return nil, invalid("OCI manifest: %w", err)
	}
	if m.ArtifactType != ArtifactType {
		return nil, invalid("artifactType: %.100q: want %s", m.ArtifactType, ArtifactType)
	}
	if len(m.Layers) != 1 {
		return nil, invalid("layers: %d of them: want 1", len(m.Layers))
	}
	b := &Bundle{Digest: want, manifest: manifest}
	for _, part := range []struct {
		name  string
		desc  ocispec.Descriptor
		want  string
		limit int64
		into  *[]byte
	}{{"config", m.Config, configType, maxDocument, &b.config}, {"layers[0]", m.Layers[0], layerType, maxLayer, &b.layer}} {
		switch d := part.desc; {
		case d.MediaType != part.want:
			return nil, invalid("%s.mediaType: %.100q: want %s", part.name, d.MediaType, part.want)
		case d.Size < 0 || d.Size > part.limit:
			return nil, invalid("%s.size: %d: want at most %d", part.name, d.Size, part.limit)
		}
		if err := checkDigest(part.desc.Digest); err != nil {
			return nil, invalid("%s.digest: %w", part.name, err)
		}
		data, err := fetch(part.desc)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
		if err := verify(part.desc.Digest, data); err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
		*part.into = data
	}
	if strict, err := kjson.UnmarshalStrict(b.config, &b.Rollout); err != nil || len(strict) > 0 {
		return nil, invalid("config: %w", errors.Join(append(strict, err)...))
	}
	var err error
	if b.Rollout, err = b.Rollout.withDefaults(); err != nil {
		return nil, err
	}
	b.Files, err = unpack(b.layer)
	return b, err
}

// checkDigest accepts SHA-256 only, so that one algorithm names bundles everywhere.
func checkDigest(d digest.Digest) error {
	if err := d.Validate(); err != nil || d.Algorithm() != digest.SHA256 {
		return fmt.Errorf("%.100q: want sha256 and 64 hexadecimal digits", string(d))
	}
	return nil
}

// errDigest is not ErrInvalid: the next answer may be the right one.
var errDigest = errors.New("content does not match its digest")

func verify(want digest.Digest, data []byte) error {
	if err := checkDigest(want); err != nil {
		return err
	}
	if got := digest.FromBytes(data); got != want {
		return fmt.Errorf("%w: %s has the digest %s", errDigest, want, got)
	}
	return nil
}

// unpack reads the manifest files from a layer, a tar archive with gzip, of at most maxUnpacked
// bytes.
func unpack(layer []byte) ([]podmgr.ManifestFile, error) {
	z, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		return nil, invalid("layer: %w", err)
	}
	var files []podmgr.ManifestFile
	left := int64(maxUnpacked)
	// Headers count too: many of them have little content.
	all := &limited{io.NopCloser(z), maxUnpacked + 1024*(maxFiles+2)}
	for r := tar.NewReader(all); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, invalid("layer: %w", err)
		}
		if err := checkEntry(h); err != nil {
			return nil, err
		}
		if len(files) == maxFiles {
			return nil, invalid("layer has more than %d files", maxFiles)
		}
		if h.Size > maxFile || h.Size > left {
			return nil, invalid("layer: %.100q has %d bytes: want at most %d, and %d in all files", h.Name, h.Size, maxFile, maxUnpacked)
		}
		left -= h.Size
		data := make([]byte, h.Size)
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, invalid("layer: %.100q: %w", h.Name, err)
		}
		files = append(files, podmgr.ManifestFile{Name: h.Name, Data: data})
	}
	// To the end, where gzip has its checksum.
	if _, err := io.Copy(io.Discard, all); err != nil {
		return nil, invalid("layer: %w", err)
	}
	slices.SortFunc(files, func(a, b podmgr.ManifestFile) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(files); i++ {
		if files[i].Name == files[i-1].Name {
			return nil, invalid("layer: %.100q is there twice", files[i].Name)
		}
	}
	return files, nil
}

// checkEntry accepts plain files in one directory.
func checkEntry(h *tar.Header) error {
	switch name := h.Name; {
	case h.Typeflag != tar.TypeReg:
		return invalid("layer: %.100q has the type %q: want files only", name, h.Typeflag)
	case name != path.Base(name) || name == ".." || name == "/" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '\\' || r == 0x7f }):
		return invalid("layer: %.100q: want a name without directories, of at most %d bytes", name, maxName)
	case !isManifest(name):
		return invalid("layer: %.100q: want a name that ends in .yaml, .yml or .json", name)
	}
	return nil
}

// isManifest reports whether a file of this name is a manifest: it ends in .yaml, .yml or .json, and
// is not hidden.
func isManifest(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name))
}

// Snapshot decodes and validates the manifests for a node. The receiver owns the Snapshot. Its
// pods have the names and UIDs of static pods; see podmgr.DecodeStatic. The error is an ErrInvalid
// and has the mistakes of all manifests.
func (b *Bundle) Snapshot(node string) (podmgr.Snapshot, error) {
	s := podmgr.DecodeStatic(b.Files, node)
	var errs []error
	for _, p := range s.Problems {
		errs = append(errs, p)
	}
	for _, o := range s.Secrets {
		errs = append(errs, fmt.Errorf("%s/%s: kind: Secret: want no Secrets in a bundle; put it into the manifests of the node", o.Namespace, o.Name))
	}
	errs = slices.Concat(errs, repeated("ConfigMap", s.ConfigMaps), repeated("PersistentVolumeClaim", s.Claims),
		repeated("PersistentVolume", s.Volumes), repeated("ResourceClaim", s.ResourceClaims))
	if len(errs) == 0 && len(s.Pods) == 0 {
		errs = append(errs, errors.New("has no pods"))
	}
	if more := len(errs) - maxProblems; more > 0 {
		errs = append(errs[:maxProblems], fmt.Errorf("and %d more", more))
	}
	if len(errs) > 0 {
		return podmgr.Snapshot{}, invalid("%w", errors.Join(errs...))
	}
	return s, nil
}

// repeated returns an error for each object whose name another one before it has.
func repeated[T metav1.Object](kind string, objects []T) (errs []error) {
	names := map[string]bool{}
	for _, o := range objects {
		name := o.GetNamespace() + "/" + o.GetName()
		if names[name] {
			errs = append(errs, fmt.Errorf("%s %s is there twice", kind, strings.TrimPrefix(name, "/")))
		}
		names[name] = true
	}
	return errs
}

// short cuts an error for a record and for people: its lines become one.
func short(err error) string {
	const most = 1000
	return callerror.Cut(strings.ReplaceAll(callerror.Shown(err), "\n", "; "), most)
}
