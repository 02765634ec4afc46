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
	"time"

	"github.com/distribution/reference"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/safefile"
)

// Bounds of an archive of images. maxFiles also bounds the entries of
// Config.PreloadDir.
const (
	maxFiles  = 10_000
	maxImages = 100
)

// Annotations that name an image in an OCI layout: the specification's, and the
// one that containerd writes, which is a whole name.
const (
	annotationRef  = "org.opencontainers.image.ref.name"
	annotationName = "io.containerd.image.name"
)

// localBlobs is a source that is on the disk.
type localBlobs struct {
	// open returns fs.ErrNotExist for a blob that is not there. Digests were checked
	// before, by form and not by content.
	open  func(d digest) (*os.File, error)
	extra map[digest][]byte // manifests that were made here
}

// read returns a blob of at most so many bytes; a larger one is an errLimit.
func (l *localBlobs) read(d digest, most int64) ([]byte, error) {
	if b, ok := l.extra[d]; ok {
		return b, nil
	}
	f, err := l.open(d)
	if err != nil {
		return nil, missing(d, err)
	}
	defer func() { _ = f.Close() }()
	b, err := safefile.Read(f, most)
	if errors.Is(err, safefile.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", errLimit, err)
	}
	return b, err
}

// missing gives the code of NotFound to a blob that is not there. The archive may hold
// other platforms' manifests without their blobs.
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

// blob implements source. Each caller has a file of its own.
func (l *localBlobs) blob(_ context.Context, d descriptor) (blob, error) {
	f, err := l.open(d.Digest)
	if err != nil {
		return nil, missing(d.Digest, err)
	}
	return &fileBlob{f}, nil
}

// distrust implements source: there is no other place to have the blob from.
func (*localBlobs) distrust(descriptor) bool { return false }

// fileBlob is a blob that never waits. Its file is not removed by close.
type fileBlob struct{ *os.File }

func (*fileBlob) ready() bool                { return true }
func (*fileBlob) wait(context.Context) error { return nil }
func (f *fileBlob) close(bool)               { _ = f.Close() }

// ImportOptions say how images get their names.
type ImportOptions struct {
	// Name is given to an image that has none in its archive, or only a tag,
	// which is put behind it then: "registry/app". Images without any name are
	// kept by their IDs.
	Name string
	// Pinned has the images reported as not to be removed by collectors.
	Pinned bool
}

// Import reads an archive, as docker save and OCI tools write it, also with gzip
// or zstd, and installs the images that are for this platform. It returns their
// IDs. At most Config.MaxLayerBytes of the archive are read. Errors are gRPC
// statuses; images that came before an error stay.
func (s *Store) Import(ctx context.Context, archive io.Reader, o ImportOptions) (ids []string, err error) {
	if err := s.await(ctx); err != nil {
		return nil, coded(err)
	}
	begin := time.Now()
	defer func() { s.observe(OpImport, begin, 0, err) }()
	// The end of the store ends the import as well.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.base, cancel)()
	// A tar stream names its images anywhere, mostly at its end: the blobs before are
	// kept on the disk until then. An import that crashes leaves this directory, which
	// goes at the next start.
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

// ImportLayout installs the images of an OCI layout, a directory. It follows no
// links below it. Otherwise it is as [Store.Import].
func (s *Store) ImportLayout(ctx context.Context, dir string, o ImportOptions) (ids []string, err error) {
	if err := s.await(ctx); err != nil {
		return nil, coded(err)
	}
	begin := time.Now()
	defer func() { s.observe(OpImport, begin, 0, err) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.base, cancel)()
	index, err := safefile.ReadIn(dir, "index.json", maxManifest)
	if err != nil {
		return nil, coded(fmt.Errorf("%w: import %s: %w", errInvalid, dir, err))
	}
	// The digest becomes a path, and is checked first: "../" in it would lead out of
	// the layout.
	src := &localBlobs{open: func(d digest) (*os.File, error) {
		if err := d.check(); err != nil {
			return nil, err
		}
		return safefile.OpenIn(dir, filepath.Join("blobs", "sha256", d.hex()))
	}}
	ids, err = s.importIndex(ctx, src, index, o)
	return ids, coded(err)
}

// spooled is an archive whose files were put on the disk.
type spooled struct {
	dir   string
	files map[string]spooledFile // by path in the archive
	links map[string]string      // symbolic and hard links, which old archives have, by path
}

// spooledFile is one regular file of an archive, with the digest of the bytes that were
// read.
type spooledFile struct {
	name   string // in dir
	digest digest
	size   int64
}

// spool writes the files of an archive into a directory, under names of its own. Names
// of the archive are keys of maps only and never reach the file system.
func (s *Store) spool(ctx context.Context, dir string, archive io.Reader) (*spooled, error) {
	plain, done, err := decompress(&contextReader{ctx, archive})
	if err != nil {
		return nil, err
	}
	defer done()
	a := &spooled{dir: dir, files: map[string]spooledFile{}, links: map[string]string{}}
	tr := tar.NewReader(&bounded{r: plain, left: s.cfg.MaxLayerBytes, what: "archive"})
	// The bound of the stream counts padding, too, while this one counts sizes that
	// headers claim: it stops a file before it is written.
	budget := s.cfg.MaxLayerBytes
	var names remembered
	for n := 0; ; n++ {
		h, err := tr.Next()
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
		// Directories, devices and whatever else there is have no blobs.
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
			// docker save had symbolic links for layers that several images share. One
			// that leads out of the archive is dropped: its layer is then missing.
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

// link keeps a link of the archive, unless its target is no name that a file could have.
func (a *spooled) link(names *remembered, path, to string) error {
	to, err := cleanName(to)
	if err != nil {
		return nil //nolint:nilerr // a missing layer is an error of the image that needs it
	}
	a.links[path] = to
	return names.add(path, to)
}

// invalid is an error of reading an archive: the archive's fault, if nobody else's.
func invalid(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, errLimit) || errors.Is(err, errFull) || isErrno(err) {
		return err
	}
	return fmt.Errorf("%w: read archive: %w", errInvalid, err)
}

// contextReader ends a copy when the context does. It cannot end a read that hangs.
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

// spoolFile writes what r has left into a new file, and sums it up while it goes by.
// The file is not synced: it is gone after a crash anyway.
func (s *Store) spoolFile(dir, name string, r io.Reader) (spooledFile, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:forbidigo // made here
	if err != nil {
		return spooledFile{}, err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	size := int64(0)
	// 16 MiB at a time, so that the space is looked at in between.
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

// find follows the links of the archive. Five links in a row are allowed, so that a
// loop ends.
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

// read returns the content of a file; one of more than so many bytes is an errLimit.
func (a *spooled) read(f spooledFile, most int64) ([]byte, error) {
	b, err := safefile.ReadIn(a.dir, f.name, most)
	if errors.Is(err, safefile.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", errLimit, err)
	}
	return b, err
}

// importFiles installs the images of an archive: an OCI layout, or Docker's format.
func (s *Store) importFiles(ctx context.Context, a *spooled, o ImportOptions) ([]string, error) {
	// By content: names like blobs/sha256/... are claims that nobody has checked.
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
	// First, since docker save writes both since version 25, and only the index has
	// digests that registries know.
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

// dockerImage is an item of the manifest.json of docker save. Config and Layers are
// paths in the archive, the lowest layer first.
type dockerImage struct {
	Config   string `json:"Config"`
	RepoTags words  `json:"RepoTags"`
	Layers   words  `json:"Layers"`
}

// dockerImages is the whole file, with a bounded number of images.
type dockerImages struct{ list[dockerImage] }

// UnmarshalJSON implements json.Unmarshaler.
func (l *dockerImages) UnmarshalJSON(b []byte) error { return l.decode(b, maxImages) }

// importDocker installs the images of a manifest.json. ids has those that came before
// an error.
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
		// Installed like any other from here on, by digest.
		src.extra[d] = m
		names, err := importNames(img.RepoTags.items, o)
		if err != nil {
			return ids, err
		}
		// Without a digest as a name: no registry has this manifest.
		if ids, err = s.importOne(ctx, src, d, names, "", o, ids); err != nil {
			return ids, err
		}
	}
	return ids, nil
}

// dockerToOCI writes the manifest that an image of docker save does not have.
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
		// Also if it is compressed: the media type is not relied on when it is
		// unpacked.
		layers = append(layers, plain{"application/vnd.oci.image.layer.v1.tar", l.digest, l.size})
	}
	return json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": ociManifest, "config": plain{ociConfig, c.digest, c.size}, "layers": layers,
	})
}

// importNames normalises the names that an archive gives to an image. The results are
// in the long form, with the registry and the tag.
func importNames(names []string, o ImportOptions) (out []reference.Named, err error) {
	if len(names) > maxImages {
		return nil, fmt.Errorf("%w: image has %d names; want at most %d", errLimit, len(names), maxImages)
	}
	// Options name only an image that has no name of its own.
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

// importIndex installs what an OCI layout's index names.
func (s *Store) importIndex(ctx context.Context, src *localBlobs, b []byte, o ImportOptions) (ids []string, err error) {
	// An index.json without a mediaType is usual: the source says it here.
	m, err := parseManifest(b, ociIndex)
	if err == nil && !m.isIndex() {
		err = errors.New("is no index")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: index.json: %w", errInvalid, err)
	}
	if len(m.Manifests.items) > maxImages {
		return nil, fmt.Errorf("%w: index.json has %d manifests; want at most %d", errLimit, len(m.Manifests.items), maxImages)
	}
	// Other platforms of the same name are not for this node, and often not in the
	// archive.
	entries, err := s.onePlatform(m.Manifests.items)
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		if err := e.Digest.check(); err != nil {
			return ids, fmt.Errorf("%w: index.json: manifests[%d]: %w", errInvalid, i, err)
		}
		var names []string
		// containerd's annotation is a whole name; the specification's is most often a
		// bare tag, to which the repository has to come from the options.
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

// onePlatform chooses among entries that have one name and are for several platforms.
// Entries without a platform stand for themselves: the configuration of the image will
// say.
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
	// In order, so that the IDs that Import returns are the same each time.
	for _, name := range sortedKeys(groups) {
		chosen, err := choose(s.platform(), groups[name])
		if err != nil {
			return nil, err
		}
		out = append(out, chosen[0])
	}
	return out, nil
}

// importOne installs an image under each of its names, and appends its ID to ids, once.
// top is the digest that its names with digests have, "" for none.
func (s *Store) importOne(ctx context.Context, src source, d digest, names []reference.Named, top digest, o ImportOptions, ids []string) ([]string, error) {
	// nil is the image without a name, kept by its ID.
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
		// Once for each name; after the first the layers are there, and only the record
		// changes.
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

// preload installs what is in Config.PreloadDir, one file or directory after the
// other. What cannot be read is in the log, and costs nobody else anything.
func (s *Store) preload(ctx context.Context) {
	if s.cfg.PreloadDir == "" {
		return
	}
	entries, err := safefile.Entries(s.cfg.PreloadDir, maxFiles)
	if err != nil {
		s.cfg.Log.Error("failed to list preloaded images", zap.Error(err))
		return
	}
	// One after the other: at the start of a node the disk is busy enough.
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
		// The end of the store is not the fault of the archive.
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

// preloadMark is what an archive was when its images were installed. An archive of
// gigabytes is not read again at each start of the agent because of it.
type preloadMark struct {
	Inode  uint64   `json:"inode"`
	Size   int64    `json:"size"`
	Time   int64    `json:"time"` // of its last change, in nanoseconds
	Images []string `json:"images"`
}

// preloadArchive installs an archive, if its images are not there since it was
// changed last. A mark that cannot be read or written only costs another import.
func (s *Store) preloadArchive(ctx context.Context, name, path string) ([]string, error) {
	f, err := safefile.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var st unix.Stat_t
	// Of the open file, so that the mark is of what is read even if the path gets
	// another file.
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	now := preloadMark{Inode: st.Ino, Size: st.Size, Time: st.Mtim.Nano()}
	key := "preload-" + digestOf([]byte(name)).hex()
	var was preloadMark
	if b, err := s.marks.ReadContext(ctx, key); err == nil && json.Unmarshal(b, &was) == nil &&
		// Somebody may have removed an image, or a damaged layer may be gone.
		was.Inode == now.Inode && was.Size == now.Size && was.Time == now.Time && s.allThere(was.Images) {
		return was.Images, nil
	}
	// An import that fails leaves no mark, and is tried again at the next start.
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

// allThere reports whether there are such images, and all of them are whole.
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
