package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/nodewright/nodewright/internal/sampleimage"
)

// registryRoot is where agnhost's fake-registry-server looks for images: NAME/manifests/TAG
// with a digest, and manifests and blobs below sha256/ by the first two digits of theirs.
const registryRoot = "/var/registry"

// registryFiles returns the files of an image in the form in which agnhost serves it, with or
// without a password. The image has the reference that the suite uses.
func registryFiles(name, tag string, img sampleimage.Image) ([]sampleimage.File, error) {
	var archive bytes.Buffer
	if err := sampleimage.Write(&archive, img); err != nil {
		return nil, err
	}
	content := map[string][]byte{} // by digest
	var index []byte
	for r := tar.NewReader(&archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		switch {
		case h.Name == "index.json":
			index = b
		case strings.HasPrefix(h.Name, "blobs/sha256/"):
			content["sha256:"+path.Base(h.Name)] = b
		}
	}
	var list struct {
		Manifests []struct{ Digest string }
	}
	if err := json.Unmarshal(index, &list); err != nil || len(list.Manifests) != 1 {
		return nil, fmt.Errorf("index of %s: %d manifests: %w", name, len(list.Manifests), err)
	}
	dir := path.Join(registryRoot, name)
	digest := list.Manifests[0].Digest
	files := []sampleimage.File{
		{Path: path.Join(dir, "manifests", tag), Mode: 0o644, Data: []byte(digest + "\n")},
		{Path: registryPath(dir, "manifests", digest), Mode: 0o644, Data: content[digest]},
	}
	delete(content, digest)
	for digest, b := range content {
		files = append(files, sampleimage.File{Path: registryPath(dir, "blobs", digest), Mode: 0o644, Data: b})
	}
	return files, nil
}

func registryPath(dir, kind, digest string) string {
	algorithm, hex, _ := strings.Cut(digest, ":")
	return path.Join(dir, kind, algorithm, hex[:2], hex, "data")
}
