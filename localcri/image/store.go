//go:build linux

package image

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/nodewright/nodewright/checkpoint"
	"github.com/nodewright/nodewright/internal/ownerlock"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/internal/wake"
)

// maxStored is the maximum number of layers, images and leases that are read at the start.
const maxStored = 100_000

// Store stores the images of a node. All methods may be called concurrently; they wait until Run
// has read the directory.
type Store struct {
	// cfg has all defaults set and does not change.
	cfg Config

	ready chan struct{} // closed when the directory has been read
	over  chan struct{} // closed when Run has returned
	// base is Run's context, set before ready is closed. Flights and pulls end with it.
	base context.Context
	// The directories of records, opened by Run before ready is closed.
	records *checkpoint.Store
	leased  *checkpoint.Store
	marks   *checkpoint.Store // of preloaded archives

	// Channels used as semaphores, with take: unlike a mutex, the wait ends with a context. A
	// goroutine that holds disk or writes may lock s.mu, but a goroutine that holds s.mu must
	// not wait for disk or writes.
	unpackSlots chan struct{}
	bandwidth   *rate.Limiter // of downloads, in bytes
	absent      absent        // servers that could not be connected to
	disk        chan struct{} // has a token while layers are renamed
	writes      chan struct{} // has a token while image records are written
	work        sync.WaitGroup
	preloaded   chan struct{} // closed when the preloaded images have been imported
	purge       wake.Signal   // the trash may have files

	mu sync.Mutex // never held during disk I/O
	// images has each image by its ID, also incomplete ones.
	images map[digest]*record
	tags   map[string]digest // image by name with tag
	// seq is the highest number given to a tag. It grows with each pull by tag.
	seq     uint64
	layers  map[string]*layer // by key
	leases  map[string]*lease // by owner
	hung    bool              // a record could not be read: no layer is collected
	flights map[digest]*flight
	pulls   map[string]*[]wanted // layers of the images that are being pulled, by the name in the request
	lanes   map[string]*lane
	changed chan struct{}   // closed when a layer is added
	purged  []chan struct{} // to be closed once the present trash is deleted
	// partial has the files of interrupted downloads in ingest, by name.
	partial map[string]partial
}

// layer is a layer on the disk. Store.mu guards the fields other than layerMeta.
type layer struct {
	layerMeta
	dir       string // path: in layers, or in ingest until it is committed
	committed bool
	held      int       // number of pulls that need it
	keep      time.Time // until then it is kept even if nobody needs it
}

// layerVersion is the version of layer records. A layer with another version, for example after a
// downgrade, is removed at the start and pulled again.
const layerVersion = 1

// layerMeta is a layer's record. It is written once, into the layer's directory, before that is
// renamed to its final name.
type layerMeta struct {
	Version    int       `json:"version"`
	Key        string    `json:"key"`
	DiffID     digest    `json:"diffID"`
	Size       int64     `json:"size"` // of its files, in bytes
	Entries    int64     `json:"entries"`
	OpaqueRoot bool      `json:"opaqueRoot,omitempty"` // hides all layers below
	Root       *rootAttr `json:"root,omitempty"`
}

// record is the record of an image. It does not change after publish.
type record struct {
	ID          digest            `json:"id"`
	Tags        map[string]uint64 `json:"tags,omitempty"`    // names with tags; if several images have a name, the highest number wins
	Digests     []string          `json:"digests,omitempty"` // names with digests
	Config      []byte            `json:"config"`
	Layers      []string          `json:"layers"` // keys, the lowest first
	Annotations map[string]string `json:"annotations,omitempty"`
	Pinned      bool              `json:"pinned,omitempty"`
	// Verified has what Config.Verify required when it accepted the image, by repository.
	Verified map[string]string `json:"verified,omitempty"`

	config *configFile
}

// lease records the layers that a container uses.
type lease struct {
	Image  digest   `json:"image"`
	Layers []string `json:"layers"` // keys, the topmost first
	// Unknown is set if the record was damaged: any layer may be in use.
	Unknown bool `json:"unknown,omitempty"`
}

// New checks cfg and returns a Store. It has no side effects.
func New(cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	bandwidth := rate.NewLimiter(rate.Inf, 0)
	if n := cfg.PullBytesPerSecond; n > 0 {
		// A burst of a tenth of a second, so that a late wake-up does not slow down a fast line.
		bandwidth = rate.NewLimiter(rate.Limit(n), int(min(max(n/10, copyBuffer), 1<<30)))
	}
	return &Store{
		cfg: cfg, bandwidth: bandwidth, ready: make(chan struct{}), over: make(chan struct{}),
		unpackSlots: make(chan struct{}, unpackJobs()), disk: make(chan struct{}, 1), writes: make(chan struct{}, 1), purge: wake.New(), preloaded: make(chan struct{}),
		images: map[digest]*record{}, tags: map[string]digest{}, layers: map[string]*layer{}, leases: map[string]*lease{},
		flights: map[digest]*flight{}, pulls: map[string]*[]wanted{}, lanes: map[string]*lane{}, changed: make(chan struct{}), partial: map[string]partial{},
	}, nil
}

// Names below Config.RootDir. The last two are in the directory of each layer.
const (
	imagesDir = "images"
	leasesDir = "leases"
	marksDir  = "preloaded"
	layersDir = "layers"
	ingestDir = "ingest"
	trashDir  = "trash"
	lockFile  = "lock"

	treeDir  = "tree"
	metaFile = "meta"
)

// path returns a path below Config.RootDir. The elements must be constants or checked digests.
func (s *Store) path(elements ...string) string {
	return filepath.Join(append([]string{s.cfg.RootDir}, elements...)...)
}

// Run locks and reads the directory, and works until ctx ends. It may be called once. If it
// returns an error before ctx ends, the directory cannot be used; if another Store uses it, the
// error names the process.
func (s *Store) Run(ctx context.Context) error {
	// So that callers of await do not wait for a store whose start has failed.
	defer close(s.over)
	// The lock is held until the end: a second agent would collect the layers of the first.
	unlock, err := s.prepare()
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.base = ctx
	// No concurrent use yet: read takes no locks.
	if err := s.read(); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	// Needed after a crash between writing an image's record and those of images that lost a name
	// to it.
	s.dropStale(ctx)
	close(s.ready)
	defer func() {
		s.mu.Lock()   // flights begin under s.mu, so later ones see that the store has ended
		s.mu.Unlock() //nolint:staticcheck // only for this order
		s.work.Wait()
		// For the next process. The store's own context has ended.
		if err := s.syncStaged(context.WithoutCancel(ctx)); err != nil {
			s.cfg.Log.Warn("failed to sync layers of interrupted pulls", zap.Error(err))
		}
	}()
	// In parallel, since importing gigabytes must not delay the rest.
	s.work.Go(func() {
		defer close(s.preloaded)
		s.preload(ctx)
	})
	// Leftovers of the last process.
	s.tidy(ctx)
	tick := time.NewTicker(tidyInterval)
	defer tick.Stop()
	for {
		// Only here, so that no call waits for the deletion of a tree.
		s.emptyTrash(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-s.purge:
		case <-tick.C:
			s.tidy(ctx)
		}
	}
}

// emptyDirs stand in for missing layers: overlayfs needs at least two for a read-only mount.
var emptyDirs = []string{"empty/a", "empty/b"}

// await waits until Run has read the directory. It returns errClosed if that has failed, or if
// Run's context has ended.
func (s *Store) await(ctx context.Context) error {
	select {
	case <-s.ready:
	case <-s.over:
		return errClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// Run's context may have ended while flights have not.
	if s.base.Err() != nil {
		return errClosed
	}
	return nil
}

// awaitPreloaded waits until the preloaded images have been imported: a missing image may be
// among them.
func (s *Store) awaitPreloaded(ctx context.Context) error {
	select {
	case <-s.preloaded:
		return nil
	case <-s.over:
		return errClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// prepare creates the directories, takes the lock and checks the file system. If another process
// has the lock, the error names it.
func (s *Store) prepare() (unlock func(), err error) {
	// Accessible for root only: layers have setuid files, which no user may execute from here.
	for _, d := range append([]string{"", layersDir, ingestDir, trashDir}, emptyDirs...) {
		if err := os.MkdirAll(s.path(d), 0o700); err != nil {
			return nil, err
		}
	}
	// These become parts of a container's root, which all users may enter.
	for _, d := range emptyDirs {
		if err := os.Chmod(s.path(d), 0o755); err != nil {
			return nil, err
		}
	}
	// O_CLOEXEC: a child process that outlives the agent must not inherit the lock.
	fd, err := unix.Open(s.path(lockFile), unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: s.path(lockFile), Err: err}
	}
	f := os.NewFile(uintptr(fd), s.path(lockFile))
	unlock = func() { _ = ownerlock.Release(f) }
	if err := ownerlock.Take(f); err != nil {
		unlock()
		return nil, fmt.Errorf("%s: %w", s.cfg.RootDir, err)
	}
	if err := s.probe(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// probe checks that the file system supports layers, with an example of each operation, so that
// no layer fails halfway.
func (s *Store) probe() error {
	dir, err := os.MkdirTemp(s.path(ingestDir), "probe-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	t, err := openTree(dir)
	if err != nil {
		return err
	}
	defer t.Close()
	// Trusted attributes need CAP_SYS_ADMIN (xattr(7)). tmpfs has user attributes since Linux 6.6.
	if err := setOpaque(t.fd); err != nil {
		return fmt.Errorf("%s cannot have the extended attribute %s: %w", s.cfg.RootDir, opaqueXattr(), err)
	}
	// A whiteout is a character device 0/0 (overlayfs.rst, "whiteouts and opaque
	// directories").
	if err := unix.Mknodat(t.fd, "whiteout", unix.S_IFCHR, 0); err != nil {
		return fmt.Errorf("%s cannot have device files: %w", s.cfg.RootDir, err)
	}
	// Older kernels return ENOSYS, and some seccomp filters EPERM.
	if _, err := openBeneath(t.fd, "none"); !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("kernel has no openat2, want 5.6 or later: %w", err)
	}
	return nil
}

// read reads the directory, and removes leftovers of a crash. After an error Run ends, since
// the content is not known, and so nothing may be collected.
func (s *Store) read() error {
	if err := s.readLayers(); err != nil {
		return err
	}
	if err := s.readIngest(); err != nil {
		return err
	}
	if err := s.readRecords(); err != nil {
		return err
	}
	if err := s.readLeases(); err != nil {
		return err
	}
	// A lost mark only causes an import.
	marks, err := checkpoint.Open(checkpoint.Config{Dir: s.path(marksDir), NoSync: true})
	s.marks = marks
	return err
}

// readLayers fills the table of layers from the directories of layers. It does not read their
// files.
func (s *Store) readLayers() error {
	names, err := safefile.Names(s.path(layersDir), maxStored)
	if err != nil {
		return err
	}
	for _, key := range names {
		m, err := readMeta(s.path(layersDir, key), key)
		switch {
		case err == nil:
			s.layers[key] = &layer{layerMeta: *m, dir: s.path(layersDir, key), committed: true}
		// With these errors the directory is damaged. Any other error, such as EIO, may be
		// temporary: an intact layer must not be deleted for it.
		case errors.Is(err, errMeta), errors.Is(err, fs.ErrNotExist), errors.Is(err, safefile.ErrNotRegular), errors.Is(err, safefile.ErrTooLarge), errors.Is(err, unix.ENOTDIR):
			s.cfg.Log.Warn("removed damaged layer; pulling it again on use", zap.String("layer", key), zap.Error(err))
			if err := s.putAway(filepath.Join(layersDir, key)); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return nil
}

// errMeta means that the record of a layer cannot be used.
var errMeta = errors.New("record of layer")

// readMeta reads the record of a layer from the layer's directory.
func readMeta(dir, key string) (*layerMeta, error) {
	b, err := safefile.ReadIn(dir, metaFile, 64<<10)
	if err != nil {
		return nil, err
	}
	m, err := parseMeta(b, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMeta, err)
	}
	return m, nil
}

// parseMeta parses the record of the layer with a key. If it returns an error, the layer cannot
// be used.
func parseMeta(b []byte, key string) (*layerMeta, error) {
	var m layerMeta
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	if m.Version != layerVersion {
		return nil, fmt.Errorf("version is %d; want %d", m.Version, layerVersion)
	}
	if m.Key != key || m.Size < 0 || m.Entries < 0 || digest(digestPrefix+key).check() != nil {
		return nil, errors.New("record is for another layer")
	}
	return &m, nil
}

// readRecords reads the images. A damaged record is set aside and affects only its image.
func (s *Store) readRecords() (err error) {
	s.records, err = checkpoint.Open(checkpoint.Config{Dir: s.path(imagesDir), OnCorrupt: func(key, aside string, err error) {
		s.cfg.Log.Warn("set aside damaged record of image", zap.String("image", key), zap.String("file", aside), zap.Error(err))
	}})
	if err != nil {
		return err
	}
	keys, err := s.records.Keys()
	if err != nil {
		return err
	}
	for _, key := range keys[:min(len(keys), maxStored)] {
		// For a damaged record the store calls OnCorrupt, and then reports it as missing.
		b, err := s.records.Read(key)
		if errors.Is(err, fs.ErrNotExist) {
			continue // damaged, and set aside
		}
		if err != nil {
			// The record exists, but which layers it names is not known: sweep collects none.
			s.hung = true
			s.cfg.Log.Error("failed to read record of image", zap.String("image", key), zap.Error(err))
			continue
		}
		r, err := parseRecord(b)
		if err == nil && r.ID.hex() != key {
			err = errors.New("record is for another image")
		}
		if err != nil {
			// The record is well-formed but does not belong here: a file that was copied or
			// edited.
			if err := s.records.SetAside(key, err); err != nil {
				s.cfg.Log.Error("failed to set aside record of image", zap.String("image", key), zap.Error(err))
			}
			continue
		}
		s.publish(r)
	}
	return nil
}

// parseRecord parses an image's record. It has the same limits as a pull, since the file may have
// been edited.
func parseRecord(b []byte) (*record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, err
	}
	if err := r.ID.check(); err != nil {
		return nil, err
	}
	if len(r.Layers) > maxLayers || len(r.Tags) > maxNames || len(r.Digests) > maxNames {
		return nil, errors.New("record has too many layers or names")
	}
	for _, k := range r.Layers {
		if err := digest(digestPrefix + k).check(); err != nil {
			return nil, err
		}
	}
	c, err := parseConfig(r.Config)
	if err != nil {
		return nil, err
	}
	// The configuration determines what containers run: its digest must be the ID.
	if digestOf(r.Config) != r.ID {
		return nil, errors.New("the config's digest is not the image's ID")
	}
	r.config = c
	return &r, nil
}

// readLeases reads the users of layers. It keeps even damaged leases, since their
// containers may be running.
func (s *Store) readLeases() (err error) {
	s.leased, err = checkpoint.Open(checkpoint.Config{Dir: s.path(leasesDir), NoSync: true, OnCorrupt: func(key, aside string, err error) {
		s.cfg.Log.Warn("renamed damaged record of image lease", zap.String("owner", key), zap.String("file", aside), zap.Error(err))
	}})
	if err != nil {
		return err
	}
	keys, err := s.leased.Keys()
	if err != nil {
		return err
	}
	for _, key := range keys[:min(len(keys), maxStored)] {
		b, err := s.leased.Read(key)
		l := &lease{}
		// A lease that was set aside is reported as missing.
		if err == nil {
			err = json.Unmarshal(b, l)
		}
		if err != nil {
			// The layers of this owner are not known any more: no layer is collected until the
			// owner releases them, also after a restart.
			l = &lease{Unknown: true}
			if b, merr := json.Marshal(l); merr == nil {
				err = errors.Join(err, s.leased.Write(key, b))
			}
			s.cfg.Log.Warn("failed to read record of image lease", zap.String("owner", key), zap.Error(err))
		}
		s.leases[key] = l
	}
	return nil
}

// publish adds an image to the tables. If another image has one of its names with a lower
// number, the name moves to this image. The caller holds s.mu, or there is no concurrent use
// yet.
func (s *Store) publish(r *record) {
	s.images[r.ID] = r
	for t, seq := range r.Tags {
		s.seq = max(s.seq, seq)
		old := s.images[s.tags[t]]
		// Equal numbers are the same claim: the first one read keeps the tag.
		if old == nil || old.ID == r.ID || old.Tags[t] < seq {
			s.tags[t] = r.ID
		}
	}
}

// tagsOf returns the names with tags of an image. The caller holds s.mu.
func (s *Store) tagsOf(r *record) []string {
	var out []string
	for t := range r.Tags {
		if s.tags[t] == r.ID {
			out = append(out, t)
		}
	}
	slices.Sort(out)
	return out
}

// whole reports whether all layers of an image exist. The caller holds s.mu.
func (s *Store) whole(r *record) bool {
	for _, k := range r.Layers {
		if l := s.layers[k]; l == nil || !l.committed {
			return false
		}
	}
	return true
}

// putAway moves a file or directory to the trash, under a random name. It is not an error if the
// file does not exist. A rename within a file system is atomic: a half-deleted layer never has
// its old name.
func (s *Store) putAway(name string) error {
	err := os.Rename(s.path(name), s.path(trashDir, rand.Text()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// emptyTrash deletes the files in the trash, and closes the channels in purged. It may take
// minutes; only Run calls it. It tries again the next time to delete what it cannot delete now.
func (s *Store) emptyTrash(ctx context.Context) {
	s.mu.Lock()
	waiting := s.purged
	s.purged = nil
	s.mu.Unlock()
	defer func() {
		for _, w := range waiting {
			close(w)
		}
	}()
	// Too many names are no error: the rest is deleted in the next round.
	names, err := safefile.Names(s.path(trashDir), maxStored)
	if err != nil && !errors.Is(err, safefile.ErrTooMany) {
		s.cfg.Log.Warn("failed to list removed layers that are still on disk", zap.Error(err))
	}
	for _, n := range names {
		if ctx.Err() != nil {
			return
		}
		if err := os.RemoveAll(s.path(trashDir, n)); err != nil {
			s.cfg.Log.Warn("failed to delete removed layer from disk", zap.String("name", n), zap.Error(err))
		}
	}
}

// take puts a token into a channel that is used as a semaphore, and waits if it is full. The
// caller releases it by receiving from the channel. If ctx ends first, take returns the cause of
// ctx.
func take(ctx context.Context, tokens chan struct{}) error {
	select {
	case tokens <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// margin is the space above the reserve at which pulls end, in bytes. Downloads check the space
// every 16 MiB, and a pull that lacks space must not use the reserve, which would cause evictions.
const margin = 64 << 20

// space returns an errFull if pulls may not use more of the disk.
func (s *Store) space() error { return s.free(margin) }

// free returns an errFull if less than the reserve and this number of bytes is free.
func (s *Store) free(more int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.cfg.RootDir, &st); err != nil {
		return err
	}
	// The space available to non-root users, to be on the safe side.
	block := int64(st.Bsize) //nolint:unconvert // 32 bits on some machines
	free, bytes, inodes := int64(st.Bavail)*block, s.cfg.Reserve, int64(1024)
	if s.cfg.ReserveOf != nil {
		b, n := s.cfg.ReserveOf(int64(st.Blocks)*block, int64(st.Files))
		bytes, inodes = max(bytes, b), max(inodes, n)
	}
	// File systems without a fixed inode table, such as btrfs, report no inodes.
	if free-more < bytes || st.Files > 0 && int64(st.Ffree) < inodes {
		return fmt.Errorf("%w: %s has %d bytes and %d inodes left; want at least %d and %d", errFull, s.cfg.RootDir, free, st.Ffree, bytes+more, inodes)
	}
	return nil
}
