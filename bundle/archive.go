package bundle

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/podmgr"
)

// maxEntries limits the entries of an archive that are looked at. An archive may have images
// beside the bundle.
const maxEntries = 10_000

// MaxArchive is the largest archive of [Bundle.Archive], in bytes.
const MaxArchive = maxLayer + 1<<20

// ReadDir reads the manifests of a directory, for [Build]. Other files than manifests, hidden ones
// too, are an error, so that nothing is left out by mistake.
func ReadDir(dir string) ([]podmgr.ManifestFile, error) {
	entries, err := safefile.LinkedEntries(dir, maxFiles)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return bytes.Compare([]byte(a.Name()), []byte(b.Name())) })
	var files []podmgr.ManifestFile
	for _, e := range entries {
		if !e.Type().IsRegular() || !isManifest(e.Name()) {
			return nil, fmt.Errorf("%s: want only files that end in .yaml, .yml or .json", filepath.Join(dir, e.Name()))
		}
		data, err := safefile.ReadFile(filepath.Join(dir, e.Name()), maxFile)
		if err != nil {
			return nil, err
		}
		files = append(files, podmgr.ManifestFile{Name: e.Name(), Data: data})
	}
	return files, nil
}

// Archive returns the bundle as a tar archive of an OCI image layout.
func (b *Bundle) Archive() ([]byte, error) {
	desc := describe(ocispec.MediaTypeImageManifest, b.manifest)
	desc.ArtifactType = ArtifactType
	index, err := json.Marshal(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{desc}})
	if err != nil {
		return nil, err
	}
	layout, err := json.Marshal(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	put := func(name string, data []byte) {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o644}), writeAll(w, data))
	}
	put(ocispec.ImageLayoutFile, layout)
	put(ocispec.ImageIndexFile, index)
	for _, data := range [][]byte{b.manifest, b.config, b.layer} {
		put(blobPath(digest.FromBytes(data)), data)
	}
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

func blobPath(d digest.Digest) string {
	return path.Join(ocispec.ImageBlobsDir, string(d.Algorithm()), d.Encoded())
}

// Open reads the bundle of an OCI image layout, which is a directory or a tar archive without
// compression. The layout may have other artifacts, such as images, but only one bundle.
func Open(name string) (*Bundle, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if fi.IsDir() {
		return fromLayout(func(file string, limit int64) ([]byte, error) { return safefile.ReadIn(name, file, limit) })
	}
	f, err := safefile.OpenLinked(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return Read(f)
}

// Read reads a bundle like [Open], from an archive.
func Read(archive io.ReadSeeker) (*Bundle, error) {
	return fromLayout(func(file string, limit int64) ([]byte, error) { return fromTar(archive, file, limit) })
}

// fromTar returns a file of an archive. An archive may have its files in any order and be large, so
// each file is looked for from the start; what is between is skipped and not read.
func fromTar(archive io.ReadSeeker, file string, limit int64) ([]byte, error) {
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	r := tar.NewReader(archive)
	for range maxEntries {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, invalid("archive has no %s", file)
		}
		if err != nil {
			return nil, invalid("archive: %w; want a tar archive of an OCI image layout", err)
		}
		if path.Clean(h.Name) != file {
			continue
		}
		if h.Typeflag != tar.TypeReg || h.Size > limit {
			return nil, invalid("archive: %s has the type %q and %d bytes: want a file of at most %d", file, h.Typeflag, h.Size, limit)
		}
		data := make([]byte, h.Size)
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, invalid("archive: %s: %w", file, err)
		}
		return data, nil
	}
	return nil, invalid("archive has more than %d entries, and no %s among the first", maxEntries, file)
}

// maxIndex limits index.json, in bytes: it may name many images.
const maxIndex = 4 << 20

// fromLayout reads the bundle of a layout, whose files read returns up to a size.
func fromLayout(read func(file string, limit int64) ([]byte, error)) (*Bundle, error) {
	text, err := read(ocispec.ImageIndexFile, maxIndex)
	if err != nil {
		return nil, err
	}
	var index ocispec.Index
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, invalid("index.json: %w", err)
	}
	found := index.Manifests
	// Some programs write no artifactType into the index.
	if len(found) > 1 {
		found = slices.DeleteFunc(found, func(d ocispec.Descriptor) bool { return d.ArtifactType != ArtifactType })
	}
	if len(found) != 1 {
		return nil, invalid("index.json: has %d bundles: want 1", len(found))
	}
	if err := checkDigest(found[0].Digest); err != nil {
		return nil, invalid("index.json: digest: %w", err)
	}
	manifest, err := read(blobPath(found[0].Digest), maxDocument)
	if err != nil {
		return nil, err
	}
	return open(found[0].Digest.String(), manifest, func(d ocispec.Descriptor) ([]byte, error) { return read(blobPath(d.Digest), d.Size) })
}
