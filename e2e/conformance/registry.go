package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// upstream is the registry of the suite's images.
const upstream = "registry.k8s.io"

// mirror is a registry that serves the images of upstream, for specs that always pull.
type mirror struct{ server *httptest.Server }

// newMirror starts a registry on this machine with those archives that contain images of
// upstream. Blobs are stored in dir.
func newMirror(ctx context.Context, dir string, archives []string) (*mirror, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	blobs := filepath.Join(dir, "blobs")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(blobs, 0o755)); err != nil {
		return nil, err
	}
	m := &mirror{server: &httptest.Server{Listener: l, Config: &http.Server{ //nolint:gosec // of this machine alone
		Handler: registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(blobs)), registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0))),
	}}}
	m.server.Start()
	for i, archive := range archives {
		if err := m.add(ctx, archive, filepath.Join(dir, fmt.Sprint("layout", i))); err != nil {
			m.server.Close()
			return nil, fmt.Errorf("%s: %w", archive, err)
		}
	}
	return m, nil
}

// add unpacks an archive into dir, and pushes its image to the mirror.
func (m *mirror) add(ctx context.Context, archive, dir string) error {
	if err := unpack(archive, dir); err != nil {
		return err
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, d := range manifest.Manifests {
		reference, ok := strings.CutPrefix(d.Annotations["io.containerd.image.name"], upstream+"/")
		if !ok {
			continue
		}
		tag, err := name.NewTag(m.server.Listener.Addr().String()+"/"+reference, name.Insecure)
		if err != nil {
			return err
		}
		image, err := index.Image(d.Digest)
		if err != nil {
			return err
		}
		if err := remote.Write(tag, image, remote.WithContext(ctx)); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// unpack writes the files of an archive that this program has made.
func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := root.MkdirAll(filepath.Dir(h.Name), 0o755); err != nil {
			return err
		}
		out, err := root.Create(h.Name)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, r) //nolint:gosec // no more than was written
		if err := errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
}
