//go:build linux

package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	oci "github.com/opencontainers/image-spec/specs-go/v1"
)

// Limits of the documents that describe an image. The sizes, in bytes, are at least those that
// registries allow; the counts prevent that a small document becomes a large value in memory.
const (
	maxManifest  = 4 << 20
	maxConfig    = 8 << 20
	maxLayers    = 500  // of an overlay mount: OVL_MAX_STACK of the kernel
	maxManifests = 1000 // of an index
	maxPairs     = 1000 // of annotations, labels and similar maps
	maxEnv       = 10000
)

// Media types of the OCI image specification, and Docker's.
const (
	ociManifest    = "application/vnd.oci.image.manifest.v1+json"
	ociIndex       = "application/vnd.oci.image.index.v1+json"
	ociConfig      = "application/vnd.oci.image.config.v1+json"
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerIndex    = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerConfig   = "application/vnd.docker.container.image.v1+json"
)

// layerTypes are the media types of layers that can be unpacked. The compression in them is not
// relied on. An image with other layers, such as foreign ones or signatures, is rejected, since
// it could not run.
var layerTypes = map[string]bool{
	"application/vnd.oci.image.layer.v1.tar":            true,
	"application/vnd.oci.image.layer.v1.tar+gzip":       true,
	"application/vnd.oci.image.layer.v1.tar+zstd":       true,
	"application/vnd.docker.image.rootfs.diff.tar":      true,
	"application/vnd.docker.image.rootfs.diff.tar.gzip": true,
	"application/vnd.docker.image.rootfs.diff.tar.zstd": true,
}

// digest is "sha256:" and 64 hexadecimal digits, once it has been checked. Other algorithms are
// not supported: directories of layers are named by the digits alone.
type digest string

// digestPrefix is the only supported algorithm.
const digestPrefix = "sha256:"

// check returns an error unless d has the form of a digest. It has to be called for every
// digest from outside, before hex becomes part of a path.
func (d digest) check() error {
	h, ok := strings.CutPrefix(string(d), digestPrefix)
	if !ok || len(h) != 64 || strings.Trim(h, "0123456789abcdef") != "" {
		return fmt.Errorf("digest %s; want sha256: and 64 hexadecimal digits in lower case", shown(string(d)))
	}
	return nil
}

// hex returns the digest without its algorithm.
func (d digest) hex() string { return strings.TrimPrefix(string(d), digestPrefix) }

// digestOf returns the digest of some bytes.
func digestOf(b []byte) digest {
	sum := sha256.Sum256(b)
	return digest(digestPrefix + hex.EncodeToString(sum[:]))
}

// list is a JSON array whose length is limited while it is decoded.
type list[T any] struct{ items []T }

// decode decodes an array item by item, and returns an errLimit if it has more than limit items.
// json.Unmarshal would allocate the whole slice before its length could be checked. null is an
// empty array, as Docker writes it.
func (l *list[T]) decode(b []byte, limit int) error {
	l.items = nil
	if bytes.Equal(bytes.TrimSpace(b), []byte("null")) {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return errors.New("want an array")
	}
	for dec.More() {
		if len(l.items) == limit {
			return fmt.Errorf("%w: array has more than %d items", errLimit, limit)
		}
		var v T
		if err := dec.Decode(&v); err != nil {
			return err
		}
		l.items = append(l.items, v)
	}
	return nil
}

// The arrays in the documents, by their limits.
type (
	layerList    struct{ list[descriptor] }
	manifestList struct{ list[descriptor] }
	diffList     struct{ list[digest] }
	words        struct{ list[string] }
)

func (l *layerList) UnmarshalJSON(b []byte) error    { return l.decode(b, maxLayers) }
func (l *manifestList) UnmarshalJSON(b []byte) error { return l.decode(b, maxManifests) }
func (l *diffList) UnmarshalJSON(b []byte) error     { return l.decode(b, maxLayers) }
func (l *words) UnmarshalJSON(b []byte) error        { return l.decode(b, maxEnv) }

// pairs is a JSON object of strings with a limited size. Values of other types become "": of
// volumes and ports only the keys matter.
type pairs map[string]string

// UnmarshalJSON implements json.Unmarshaler, member by member as list.decode does.
func (p *pairs) UnmarshalJSON(b []byte) error {
	*p = nil
	if bytes.Equal(bytes.TrimSpace(b), []byte("null")) {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errors.New("want an object")
	}
	*p = pairs{}
	for n := 0; dec.More(); n++ {
		if n == maxPairs {
			return fmt.Errorf("%w: object has more than %d members", errLimit, maxPairs)
		}
		t, err := dec.Token()
		if err != nil {
			return err
		}
		// In an object the token before a value is always a string.
		key, _ := t.(string)
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return err
		}
		var s string
		_ = json.Unmarshal(v, &s) // "" if it is no string
		(*p)[key] = s
	}
	return nil
}

// descriptor refers to a blob (OCI image specification, "Descriptors"). Size is in bytes.
// Platform is nil if the index does not have it.
type descriptor struct {
	MediaType   string        `json:"mediaType"`
	Digest      digest        `json:"digest"`
	Size        int64         `json:"size"`
	Platform    *oci.Platform `json:"platform,omitempty"`
	Annotations pairs         `json:"annotations,omitempty"`
}

// manifest is a manifest or an index, see isIndex: a manifest has Config and Layers, an index
// Manifests.
type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        layerList    `json:"layers"`
	Manifests     manifestList `json:"manifests"`
	Annotations   pairs        `json:"annotations"`
}

// parseManifest parses a manifest or an index. mediaType is the type that the source has given,
// or "". It checks the form of the digests, but not whether content matches them.
func parseManifest(b []byte, mediaType string) (*manifest, error) {
	if len(b) > maxManifest {
		return nil, fmt.Errorf("%w: manifest has %d bytes; want at most %d", errLimit, len(b), maxManifest)
	}
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	// The type in the document takes precedence over the header, which proxies sometimes rewrite.
	if m.MediaType == "" {
		m.MediaType, _, _ = strings.Cut(mediaType, ";")
	}
	if m.SchemaVersion != 2 {
		return nil, fmt.Errorf("manifest: schemaVersion is %d; want 2", m.SchemaVersion)
	}
	switch m.MediaType {
	case ociManifest, dockerManifest, ociIndex, dockerIndex:
	default: // a generic type of some registries
		switch {
		case len(m.Manifests.items) > 0 && m.Config.Digest == "":
			m.MediaType = ociIndex
		case m.Config.Digest != "":
			m.MediaType = ociManifest
		default:
			return nil, fmt.Errorf("manifest: mediaType is %s; want an image or an index", shown(m.MediaType))
		}
	}
	if m.isIndex() {
		return &m, nil
	}
	return &m, m.check()
}

// isIndex reports whether the document lists manifests, not layers.
func (m *manifest) isIndex() bool { return m.MediaType == ociIndex || m.MediaType == dockerIndex }

// check checks the types, digests and sizes in an image's manifest.
func (m *manifest) check() error {
	// Charts, signatures and other artifacts have manifests as well, with another type of config.
	if t := m.Config.MediaType; t != ociConfig && t != dockerConfig {
		return fmt.Errorf("manifest: config.mediaType is %s; want %s or %s", shown(t), ociConfig, dockerConfig)
	}
	if err := m.Config.check(maxConfig); err != nil {
		return fmt.Errorf("manifest: config: %w", err)
	}
	for i, l := range m.Layers.items {
		if !layerTypes[l.MediaType] {
			return fmt.Errorf("manifest: layers[%d].mediaType is %s; want a tar archive, uncompressed or compressed with gzip or zstd", i, shown(l.MediaType))
		}
		// 1 PiB, only to reject nonsense: Config.MaxLayerBytes is applied when a blob is opened.
		if err := l.check(1 << 50); err != nil {
			return fmt.Errorf("manifest: layers[%d]: %w", i, err)
		}
	}
	return nil
}

// check returns an error unless the digest has the right form and the size is at most limit
// bytes.
func (d descriptor) check(limit int64) error {
	if err := d.Digest.check(); err != nil {
		return err
	}
	if d.Size < 0 || d.Size > limit {
		return fmt.Errorf("size is %d; want 0 to %d", d.Size, limit)
	}
	return nil
}

// Defaults are the settings of an image for its containers (OCI image specification, "Image
// Configuration").
type Defaults struct {
	User         string            // "", or a user and optionally ":" and a group, by name or number
	Env          []string          // as NAME=value
	Entrypoint   []string          //
	Cmd          []string          //
	WorkingDir   string            //
	StopSignal   string            // by name or number
	Volumes      []string          // paths, in order
	Labels       map[string]string //
	OS           string            //
	Architecture string            //
	Variant      string            // of the architecture
}

// configFile is the image configuration. Names of fields and their case are those of the
// specification. Other fields, such as the history, are not parsed; the record has the complete
// document.
type configFile struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Variant      string `json:"variant"`
	RootFS       struct {
		Type    string   `json:"type"`
		DiffIDs diffList `json:"diff_ids"`
	} `json:"rootfs"`
	Config struct {
		User       string `json:"User"`
		Env        words  `json:"Env"`
		Entrypoint words  `json:"Entrypoint"`
		Cmd        words  `json:"Cmd"`
		WorkingDir string `json:"WorkingDir"`
		StopSignal string `json:"StopSignal"`
		Volumes    pairs  `json:"Volumes"`
		Labels     pairs  `json:"Labels"`
	} `json:"config"`
}

// parseConfig parses an image's configuration. It does not check the platform.
func parseConfig(b []byte) (*configFile, error) {
	if len(b) > maxConfig {
		return nil, fmt.Errorf("%w: config has %d bytes; want at most %d", errLimit, len(b), maxConfig)
	}
	var c configFile
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	// The only value in the specification. Other images have nothing to unpack.
	if c.RootFS.Type != "layers" {
		return nil, fmt.Errorf("config: rootfs.type is %s; want \"layers\"", shown(c.RootFS.Type))
	}
	for i, d := range c.RootFS.DiffIDs.items {
		if err := d.check(); err != nil {
			return nil, fmt.Errorf("config: rootfs.diff_ids[%d]: %w", i, err)
		}
	}
	return &c, nil
}

// platform returns the platform as in the image, not in normal form.
func (c *configFile) platform() oci.Platform {
	return oci.Platform{OS: c.OS, Architecture: c.Architecture, Variant: c.Variant}
}

// public returns the settings for containers.
func (c *configFile) public() Defaults {
	return Defaults{
		User: c.Config.User, Env: c.Config.Env.items, Entrypoint: c.Config.Entrypoint.items, Cmd: c.Config.Cmd.items,
		WorkingDir: c.Config.WorkingDir, StopSignal: c.Config.StopSignal, Volumes: sortedKeys(c.Config.Volumes), Labels: c.Config.Labels,
		OS: c.OS, Architecture: c.Architecture, Variant: c.Variant,
	}
}

// chainIDs returns an ID for each layer with all layers below it (OCI image specification, "Layer
// ChainID"). diffs and the result are in order, the lowest layer first.
func chainIDs(diffs []digest) []digest {
	out := make([]digest, len(diffs))
	for i, d := range diffs {
		out[i] = d
		if i > 0 {
			out[i] = digestOf([]byte(string(out[i-1]) + " " + string(d)))
		}
	}
	return out
}
