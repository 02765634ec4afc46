package sampleimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// Media types of the OCI image specification, v1.1.
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// Image describes an image for [Write]: the files of its layer, and its configuration.
type Image struct {
	Name         string // full reference with registry and tag: localhost/nodewright/web:1
	Architecture string // a GOARCH: amd64, arm64
	Files        []File
	Entrypoint   []string
	Cmd          []string
	Env          []string // NAME=value
	User         string   // name or uid[:gid]; "" means root
	WorkingDir   string   // "" means /
	StopSignal   string   // "" means SIGTERM
	Ports        []string // exposed ports, such as 8080/tcp
}

// File is a file of a layer: a directory if Path ends in a slash, a symbolic link
// if Link is set, otherwise a regular file.
type File struct {
	Path string // absolute path; missing parents get mode 0755
	Mode int64  // permission bits, including sticky, setuid and setgid
	Data []byte
	Link string // target of a symbolic link; Data is empty then
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        *descriptor  `json:"config,omitempty"`
	Layers        []descriptor `json:"layers,omitempty"`
	Manifests     []descriptor `json:"manifests,omitempty"`
}

type imageConfig struct {
	platform
	Config struct {
		User         string              `json:"User,omitempty"`
		ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
		Env          []string            `json:"Env,omitempty"`
		Entrypoint   []string            `json:"Entrypoint,omitempty"`
		Cmd          []string            `json:"Cmd,omitempty"`
		WorkingDir   string              `json:"WorkingDir,omitempty"`
		StopSignal   string              `json:"StopSignal,omitempty"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// Write writes img to w as a tar archive of an OCI image layout. The archive contains no
// times and no owners, so that equal images give equal bytes.
func Write(w io.Writer, img Image) error {
	if img.Name == "" || img.Architecture == "" {
		return errors.New("sampleimage: an image needs a name and an architecture")
	}
	layer, err := layerOf(img.Files)
	if err != nil {
		return fmt.Errorf("layer of %s: %w", img.Name, err)
	}
	layout := layout{}
	layerDesc := layout.add(mediaLayer, layer)

	cfg := imageConfig{platform: platform{img.Architecture, "linux"}}
	cfg.Config.User, cfg.Config.Env = img.User, img.Env
	cfg.Config.Entrypoint, cfg.Config.Cmd = img.Entrypoint, img.Cmd
	cfg.Config.WorkingDir, cfg.Config.StopSignal = img.WorkingDir, img.StopSignal
	for _, p := range img.Ports {
		if cfg.Config.ExposedPorts == nil {
			cfg.Config.ExposedPorts = map[string]struct{}{}
		}
		cfg.Config.ExposedPorts[p] = struct{}{}
	}
	cfg.RootFS.Type, cfg.RootFS.DiffIDs = "layers", []string{layerDesc.Digest}
	cfgDesc, err := layout.addJSON(mediaConfig, cfg)
	if err != nil {
		return err
	}
	man, err := layout.addJSON(mediaManifest, manifest{SchemaVersion: 2, MediaType: mediaManifest,
		Config: &cfgDesc, Layers: []descriptor{layerDesc}})
	if err != nil {
		return err
	}
	man.Platform = &platform{img.Architecture, "linux"}
	man.Annotations = map[string]string{
		"io.containerd.image.name":          img.Name, // full reference, for containerd
		"org.opencontainers.image.ref.name": img.Name[strings.LastIndex(img.Name, ":")+1:],
	}
	index, err := json.Marshal(manifest{SchemaVersion: 2, MediaType: mediaIndex, Manifests: []descriptor{man}})
	if err != nil {
		return err
	}
	layout["index.json"] = index
	layout["oci-layout"] = []byte(`{"imageLayoutVersion":"1.0.0"}`)
	return layout.write(w)
}

// layout is an OCI image layout in memory: the content of files by path.
type layout map[string][]byte

func (l layout) add(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	l["blobs/sha256/"+digest] = content
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: int64(len(content))}
}

func (l layout) addJSON(mediaType string, v any) (descriptor, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return l.add(mediaType, b), nil
}

func (l layout) write(w io.Writer) error {
	files := make([]File, 0, len(l))
	for p, b := range l {
		files = append(files, File{Path: "/" + p, Mode: 0o644, Data: b})
	}
	return Tar(w, files, time.Unix(0, 0))
}

func layerOf(files []File) ([]byte, error) {
	var buf bytes.Buffer
	err := Tar(&buf, files, time.Unix(0, 0))
	return buf.Bytes(), err
}

// Tar writes a tar archive of files, sorted by path. It adds missing parent directories. All
// entries have the modification time modified and no owner.
func Tar(w io.Writer, files []File, modified time.Time) error {
	files = withParents(files)
	tw := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Name: strings.TrimPrefix(f.Path, "/"), Mode: f.Mode, Size: int64(len(f.Data)),
			Typeflag: tar.TypeReg, ModTime: modified, Format: tar.FormatUSTAR}
		if strings.HasSuffix(f.Path, "/") {
			h.Typeflag, h.Size = tar.TypeDir, 0
		}
		if f.Link != "" {
			h.Typeflag, h.Size, h.Linkname = tar.TypeSymlink, 0, f.Link
		}
		if err := tw.WriteHeader(h); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if _, err := tw.Write(f.Data); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return tw.Close()
}

func withParents(files []File) []File {
	all := slices.Clone(files)
	known := map[string]bool{"/": true}
	for _, f := range files {
		known[f.Path] = true
	}
	for _, f := range files {
		for dir := path.Dir(strings.TrimSuffix(f.Path, "/")); dir != "/" && dir != "."; dir = path.Dir(dir) {
			if !known[dir+"/"] {
				known[dir+"/"] = true
				all = append(all, File{Path: dir + "/", Mode: 0o755})
			}
		}
	}
	slices.SortFunc(all, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return all
}
