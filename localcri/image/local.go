//go:build linux

package image

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/safefile"
)

// Limits of an archive of images. maxFiles also limits the entries of Config.PreloadDir.
const (
	maxFiles  = 10_000
	maxImages = 100
)

// Annotations for the name of an image in an OCI layout: that of the specification, and
// containerd's, which has a complete name.
const (
	annotationRef  = "org.opencontainers.image.ref.name"
	annotationName = "io.containerd.image.name"
)

// localBlobs is a source on the disk.
type localBlobs struct {
	// open opens a blob. The error is fs.ErrNotExist if the blob does not exist. The form of the
	// digest has been checked, but not whether the content matches it.
	open  func(d digest) (*os.File, error)
	extra map[digest][]byte // manifests created here
}

// read returns the content of a blob. If the blob has more than limit bytes, the error is
// errLimit.
func (l *localBlobs) read(d digest, limit int64) ([]byte, error) {
	if b, ok := l.extra[d]; ok {
		return b, nil
	}
	f, err := l.open(d)
	if err != nil {
		return nil, missing(d, err)
	}
	defer func() { _ = f.Close() }()
	b, err := safefile.Read(f, limit)
	if errors.Is(err, safefile.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", errLimit, err)
	}
	return b, err
}

// missing converts the error for a missing blob to NotFound. An archive may have manifests of
// other platforms without their blobs.
func missing(d digest, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: blob %s", errNotFound, d)
	}
	return err
}

// manifest implements source. The media type is unknown: files have none.
func (l *localBlobs) manifest(_ context.Context, ref string) ([]byte, string, error) {
	b, err := l.read(digest(ref), maxManifest)
	return b, "", err
}

// config implements source.
func (l *localBlobs) config(_ context.Context, d descriptor) ([]byte, error) {
	return l.read(d.Digest, maxConfig)
}

// blob implements source. Each call opens a file of its own.
func (l *localBlobs) blob(_ context.Context, d descriptor) (blob, error) {
	f, err := l.open(d.Digest)
	if err != nil {
		return nil, missing(d.Digest, err)
	}
	return &fileBlob{f}, nil
}

// distrust implements source. It returns false, since a local source has no other place
// for the content.
func (*localBlobs) distrust(descriptor) bool { return false }

// fileBlob is a blob that never waits. Closing does not remove its file.
type fileBlob struct{ *os.File }

func (*fileBlob) ready() bool                { return true }
func (*fileBlob) wait(context.Context) error { return nil }
func (f *fileBlob) close(bool)               { _ = f.Close() }

// ImportOptions configures the names of imported images.
type ImportOptions struct {
	// Name is used for an image that has no name in its archive. If it has only a tag
	// there, the tag is appended to Name. Example: "registry/app". Images without any name
	// are stored under their IDs.
	Name string
	// Pinned reports the images as pinned, so that the kubelet's garbage collection keeps them.
	Pinned bool
}

// Import reads an archive, in the format of docker save or OCI, optionally compressed with gzip
// or zstd, and installs its images for this platform. It returns their IDs. It reads at most
// Config.MaxLayerBytes. Errors are gRPC statuses; images installed before an error stay.
func (s *Store) Import(ctx context.Context, archive io.Reader, o ImportOptions) (ids []string, err error) {
	if err := s.await(ctx); err != nil {
		return nil, coded(err)
	}
	// The import also ends with the store.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.base, cancel)()
	// A tar stream may name its images anywhere, mostly at its end: until then the blobs are
	// stored on the disk. After a crash this directory is removed at the next start.
	dir := s.path(ingestDir, "import-"+rand.Text())
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, coded(err)
	}
	defer s.discard(dir)
	a, err := s.spool(ctx, dir, archive)
	if err != nil {
		return nil, coded(fmt.Errorf("import: %w", err))
	}
	ids, err = s.importFiles(ctx, a, o)
	return ids, coded(err)
}

// ImportLayout installs the images of an OCI layout, a directory. It follows no links below it.
// Otherwise it works like [Store.Import].
func (s *Store) ImportLayout(ctx context.Context, dir string, o ImportOptions) (ids []string, err error) {
	if err := s.await(ctx); err != nil {
		return nil, coded(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.base, cancel)()
	index, err := safefile.ReadIn(dir, "index.json", maxManifest)
	if err != nil {
		return nil, coded(fmt.Errorf("%w: import %s: %w", errInvalid, dir, err))
	}
	// The digest becomes part of a path, so it is checked first: "../" would lead out of the
	// layout.
	src := &localBlobs{open: func(d digest) (*os.File, error) {
		if err := d.check(); err != nil {
			return nil, err
		}
		return safefile.OpenIn(dir, filepath.Join("blobs", "sha256", d.hex()))
	}}
	ids, err = s.importIndex(ctx, src, index, o)
	return ids, coded(err)
}

// spooled is an archive whose files have been written to the disk.
type spooled struct {
	dir   string
	files map[string]spooledFile // by path in the archive
	links map[string]string      // symbolic and hard links of old archives, by path
}

// spooledFile is a regular file of an archive, with the digest of its content.
type spooledFile struct {
	name   string // in dir
	digest digest
	size   int64
}

// spool writes the files of an archive into a directory, under new names. Names in the archive
// are only used as map keys and never as paths.
func (s *Store) spool(ctx context.Context, dir string, archive io.Reader) (*spooled, error) {
	plain, done, err := decompress(&contextReader{ctx, archive})
	if err != nil {
		return nil, err
	}
	defer done()
	a := &spooled{dir: dir, files: map[string]spooledFile{}, links: map[string]string{}}
	tr := tar.NewReader(&bounded{r: plain, left: s.cfg.MaxLayerBytes, what: "archive"})
	// The limit of the stream includes padding. This limit is for the sizes in the headers, so
	// that a file is rejected before it is written.
	budget := s.cfg.MaxLayerBytes
	var names remembered
	for n := 0; ; n++ {
		h, err := tr.Next()
		if n == 0 && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader)) {
			return nil, errNoArchive
		}
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return nil, invalid(ctx, err)
		}
		if n >= maxFiles {
			return nil, fmt.Errorf("%w: archive has more than %d files", errLimit, maxFiles)
		}
		path, err := cleanName(h.Name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errInvalid, err)
		}
		// Other entries, such as directories and devices, contain no blobs.
		switch h.Typeflag {
		case tar.TypeReg:
			if h.Size > budget {
				return nil, fmt.Errorf("%w: archive has more than %d bytes", errLimit, s.cfg.MaxLayerBytes)
			}
			budget -= h.Size
			f, err := s.spoolFile(dir, fmt.Sprint("f", n), tr)
			if err != nil {
				return nil, invalid(ctx, err)
			}
			a.files[path] = f
			if err := names.add(path); err != nil {
				return nil, err
			}
		case tar.TypeSymlink:
			// docker save wrote symbolic links for layers that several images share. A link that
			// leads out of the archive is ignored: its layer is then missing.
			if dir, _ := split(path); !strings.HasPrefix(h.Linkname, "/") {
				if err := a.link(&names, path, dir+"/"+h.Linkname); err != nil {
					return nil, err
				}
			}
		case tar.TypeLink:
			if err := a.link(&names, path, h.Linkname); err != nil {
				return nil, err
			}
		}
	}
}

var errNoArchive = fmt.Errorf("%w: it is no archive of images; want one of docker save, or a tar of an OCI layout, which may be compressed", errInvalid)

// link stores a link of the archive, unless its target cannot be a file name.
func (a *spooled) link(names *remembered, path, to string) error {
	to, err := cleanName(to)
	if err != nil {
		return nil //nolint:nilerr // a missing layer is an error of the image that needs it
	}
	a.links[path] = to
	return names.add(path, to)
}

// invalid converts an error in reading an archive to errInvalid, unless it has another
// cause, such as the disk or ctx.
func invalid(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, errLimit) || errors.Is(err, errFull) || isErrno(err) {
		return err
	}
	return fmt.Errorf("%w: read archive: %w", errInvalid, err)
}

// contextReader makes a copy end with a context. It cannot interrupt a blocked read.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (c *contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// spoolFile writes the rest of r into a new file, and computes its digest. The file is not
// synced: it is useless after a crash.
func (s *Store) spoolFile(dir, name string, r io.Reader) (spooledFile, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:forbidigo // made here
	if err != nil {
		return spooledFile{}, err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	size := int64(0)
	// 16 MiB at a time, to check the free space in between.
	for {
		if err := s.space(); err != nil {
			return spooledFile{}, err
		}
		n, err := io.CopyN(io.MultiWriter(f, sum), r, 16<<20)
		size += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return spooledFile{}, err
		}
	}
	return spooledFile{name, digest(fmt.Sprintf("%s%x", digestPrefix, sum.Sum(nil))), size}, f.Close()
}

// find follows the links of the archive, at most five in a row, so that a loop ends.
func (a *spooled) find(path string) (spooledFile, bool) {
	path = filepath.Clean(path)
	for range 5 {
		if f, ok := a.files[path]; ok {
			return f, true
		}
		path = a.links[path]
	}
	return spooledFile{}, false
}

// read returns the content of a file. If the file has more than limit bytes, the error is
// errLimit.
func (a *spooled) read(f spooledFile, limit int64) ([]byte, error) {
	b, err := safefile.ReadIn(a.dir, f.name, limit)
	if errors.Is(err, safefile.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", errLimit, err)
	}
	return b, err
}

// importFiles installs the images of an archive in the format of OCI or Docker.
func (s *Store) importFiles(ctx context.Context, a *spooled, o ImportOptions) ([]string, error) {
	// By content: names like blobs/sha256/... are not verified.
	byDigest := map[digest]string{}
	for _, f := range a.files {
		byDigest[f.digest] = f.name
	}
	src := &localBlobs{extra: map[digest][]byte{}, open: func(d digest) (*os.File, error) {
		if byDigest[d] == "" {
			return nil, fs.ErrNotExist
		}
		return safefile.OpenIn(a.dir, byDigest[d])
	}}
	// First, since docker save writes both since version 25, and only the index has digests that
	// registries know.
	if f, ok := a.find("index.json"); ok {
		b, err := a.read(f, maxManifest)
		if err != nil {
			return nil, err
		}
		return s.importIndex(ctx, src, b, o)
	}
	f, ok := a.find("manifest.json")
	if !ok {
		return nil, fmt.Errorf("%w: import: archive has neither index.json nor manifest.json", errInvalid)
	}
	b, err := a.read(f, maxManifest)
	if err != nil {
		return nil, err
	}
	return s.importDocker(ctx, a, src, b, o)
}

// dockerImage is an item of manifest.json in docker save. Config and Layers are paths in the
// archive, the lowest layer first.
type dockerImage struct {
	Config   string `json:"Config"`
	RepoTags words  `json:"RepoTags"`
	Layers   words  `json:"Layers"`
}

// dockerImages is the content of manifest.json, with a limited number of images.
type dockerImages struct{ list[dockerImage] }

// UnmarshalJSON implements json.Unmarshaler.
func (l *dockerImages) UnmarshalJSON(b []byte) error { return l.decode(b, maxImages) }

// importDocker installs the images of a manifest.json, and returns the IDs of those it installed,
// also if it returns an error.
func (s *Store) importDocker(ctx context.Context, a *spooled, src *localBlobs, b []byte, o ImportOptions) (ids []string, err error) {
	var images dockerImages
	if err := json.Unmarshal(b, &images); err != nil {
		return nil, fmt.Errorf("%w: manifest.json: %w", errInvalid, err)
	}
	for i, img := range images.items {
		m, err := dockerToOCI(a, img)
		if err != nil {
			return ids, fmt.Errorf("%w: manifest.json[%d]: %w", errInvalid, i, err)
		}
		d := digestOf(m)
		// From here on it is installed like any other, by digest.
		src.extra[d] = m
		names, err := importNames(img.RepoTags.items, o)
		if err != nil {
			return ids, err
		}
		// Without a name with digest: no registry has this manifest.
		if ids, err = s.importOne(ctx, src, d, names, "", o, ids); err != nil {
			return ids, err
		}
	}
	return ids, nil
}

// dockerToOCI creates a manifest for an image of docker save, which has none.
func dockerToOCI(a *spooled, img dockerImage) ([]byte, error) {
	if len(img.Layers.items) > maxLayers {
		return nil, fmt.Errorf("%w: %d layers; want at most %d", errLimit, len(img.Layers.items), maxLayers)
	}
	// The three fields that a descriptor must have (OCI image specification).
	type plain struct {
		MediaType string `json:"mediaType"`
		Digest    digest `json:"digest"`
		Size      int64  `json:"size"`
	}
	c, ok := a.find(img.Config)
	if !ok {
		return nil, fmt.Errorf("config %s is not in the archive", shown(img.Config))
	}
	layers := []plain{}
	for _, path := range img.Layers.items {
		l, ok := a.find(path)
		if !ok {
			return nil, fmt.Errorf("layer %s is not in the archive", shown(path))
		}
		// Also if it is compressed: unpacking does not rely on the media type.
		layers = append(layers, plain{"application/vnd.oci.image.layer.v1.tar", l.digest, l.size})
	}
	return json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": ociManifest, "config": plain{ociConfig, c.digest, c.size}, "layers": layers,
	})
}

// importNames normalises the names of an image in an archive. The results have the long form,
// with registry and tag.
func importNames(names []string, o ImportOptions) (out []reference.Named, err error) {
	if len(names) > maxImages {
		return nil, fmt.Errorf("%w: image has %d names; want at most %d", errLimit, len(names), maxImages)
	}
	// The option applies only to an image without a name.
	if len(names) == 0 && o.Name != "" {
		names = []string{o.Name}
	}
	for _, n := range names {
		ref, err := parseRef(n)
		if err != nil {
			return nil, err
		}
		out = append(out, ref)
	}
	return out, nil
}

// importIndex installs the images in the index of an OCI layout.
func (s *Store) importIndex(ctx context.Context, src *localBlobs, b []byte, o ImportOptions) (ids []string, err error) {
	// index.json often has no mediaType, so the type is passed.
	m, err := parseManifest(b, ociIndex)
	if err == nil && !m.isIndex() {
		err = errors.New("is not an image index")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: index.json: %w", errInvalid, err)
	}
	if len(m.Manifests.items) > maxImages {
		return nil, fmt.Errorf("%w: index.json has %d manifests; want at most %d", errLimit, len(m.Manifests.items), maxImages)
	}
	// Images for other platforms are of no use to this node, and their blobs often missing.
	entries, err := s.onePlatform(m.Manifests.items)
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		if err := e.Digest.check(); err != nil {
			return ids, fmt.Errorf("%w: index.json: manifests[%d]: %w", errInvalid, i, err)
		}
		var names []string
		// containerd's annotation has a complete name; the specification's mostly has only a tag,
		// and the options have the repository.
		switch tag := e.Annotations[annotationRef]; {
		case e.Annotations[annotationName] != "":
			names = []string{e.Annotations[annotationName]}
		case strings.ContainsAny(tag, "/:"):
			names = []string{tag}
		case tag != "" && o.Name != "":
			names = []string{o.Name + ":" + tag}
		}
		refs, err := importNames(names, o)
		if err != nil {
			return ids, err
		}
		if ids, err = s.importOne(ctx, src, e.Digest, refs, e.Digest, o, ids); err != nil {
			return ids, err
		}
	}
	return ids, nil
}

// onePlatform selects the entry for this platform among those with the same name. It keeps all
// entries without a platform, since the platform is in the image's configuration.
func (s *Store) onePlatform(entries []descriptor) (out []descriptor, err error) {
	groups := map[string][]descriptor{}
	for _, e := range entries {
		name := e.Annotations[annotationName] + " " + e.Annotations[annotationRef]
		if e.Platform == nil {
			out = append(out, e)
		} else {
			groups[name] = append(groups[name], e)
		}
	}
	// Sorted, so that Import returns IDs in the same order each time.
	for _, name := range sortedKeys(groups) {
		chosen, err := choose(s.platform(), groups[name])
		if err != nil {
			return nil, err
		}
		out = append(out, chosen[0])
	}
	return out, nil
}

// importOne installs an image under each of its names, and appends its ID to ids if it is not the
// last one there. top is the digest for names with a digest. If top is "", the image gets no such
// names.
func (s *Store) importOne(ctx context.Context, src source, d digest, names []reference.Named, top digest, o ImportOptions, ids []string) ([]string, error) {
	// nil means an image without a name, stored under its ID.
	if len(names) == 0 {
		names = []reference.Named{nil}
	}
	for _, n := range names {
		ord := order{ref: string(d), pinned: o.Pinned}
		if _, ok := n.(reference.Tagged); ok {
			ord.tag = n.String()
		}
		if n != nil && top != "" {
			ord.repo = n.Name()
		}
		// Once for each name; after the first the layers exist, and only the record changes.
		id, err := s.install(ctx, src, ord)
		if err != nil {
			return ids, fmt.Errorf("import %s: %w", d, err)
		}
		if len(ids) == 0 || ids[len(ids)-1] != string(id) {
			ids = append(ids, string(id))
		}
	}
	return ids, nil
}

// preload installs the archives and layouts in Config.PreloadDir, one after the other. A failure
// is logged and does not affect the others.
func (s *Store) preload(ctx context.Context) {
	if s.cfg.PreloadDir == "" {
		return
	}
	entries, err := safefile.Entries(s.cfg.PreloadDir, maxFiles)
	if err != nil {
		s.cfg.Log.Error("failed to list preloaded images", zap.Error(err))
		return
	}
	// One at a time: the disk is busy at the start of a node.
	for _, e := range entries {
		path := filepath.Join(s.cfg.PreloadDir, e.Name())
		var ids []string
		var err error
		switch {
		case e.IsDir():
			ids, err = s.ImportLayout(ctx, path, ImportOptions{Pinned: true})
		case isArchive(e.Name()):
			ids, err = s.preloadArchive(ctx, e.Name(), path)
		default:
			continue
		}
		// The end of the store is no fault of the archive.
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.cfg.Log.Error("failed to preload images", zap.String("path", path), zap.Error(err))
			continue
		}
		s.cfg.Log.Info("preloaded images", zap.String("path", path), zap.Strings("images", ids))
	}
}

// isArchive reports whether a file is an archive by its name.
func isArchive(name string) bool {
	return slices.ContainsFunc([]string{".tar", ".tar.gz", ".tgz", ".tar.zst"}, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// preloadMark identifies a version of an archive whose images are installed, so that large
// archives are not read again at each start of the agent.
type preloadMark struct {
	Inode  uint64   `json:"inode"`
	Size   int64    `json:"size"`
	Time   int64    `json:"time"` // time of the last change, in nanoseconds
	Images []string `json:"images"`
}

// preloadArchive installs an archive, unless its images exist and it has not changed since. If
// the mark cannot be read or written, the only effect is another import.
func (s *Store) preloadArchive(ctx context.Context, name, path string) ([]string, error) {
	f, err := safefile.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var st unix.Stat_t
	// The open file is used, so that the mark belongs to the content that is read even if the file
	// is replaced.
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	now := preloadMark{Inode: st.Ino, Size: st.Size, Time: st.Mtim.Nano()}
	key := "preload-" + digestOf([]byte(name)).hex()
	var was preloadMark
	if b, err := s.marks.ReadContext(ctx, key); err == nil && json.Unmarshal(b, &was) == nil &&
		// An image may have been removed, or a damaged layer be missing.
		was.Inode == now.Inode && was.Size == now.Size && was.Time == now.Time && s.allThere(was.Images) {
		return was.Images, nil
	}
	// A failed import leaves no mark, so the next start tries again.
	ids, err := s.Import(ctx, f, ImportOptions{Pinned: true})
	if err != nil {
		return ids, err
	}
	now.Images = ids
	b, err := json.Marshal(now)
	if err != nil {
		return ids, err
	}
	return ids, s.marks.WriteContext(ctx, key, b)
}

// allThere reports whether all images with these IDs exist and are complete.
func (s *Store) allThere(ids []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if s.find(id) == nil {
			return false
		}
	}
	return len(ids) > 0
}
