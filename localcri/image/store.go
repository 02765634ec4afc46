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

	"github.com/nodewright/nodewright/checkpoint"
	"github.com/nodewright/nodewright/internal/ownerlock"
	"github.com/nodewright/nodewright/internal/safefile"
)

// maxStored bounds how many layers, images and leases are read at the start.
const maxStored = 100_000

// Store is the images of a node. All methods may be called at the same time;
// those before Run has read what is there wait for it.
type Store struct {
	// cfg has all defaults and does not change.
	cfg Config

	ready chan struct{} // closed when what is there was read
	over  chan struct{} // closed when Run has returned
	// base is Run's context, which is set before ready is closed. Flights and pulls end
	// with it.
	base context.Context
	// The directories of records, opened by Run before ready is closed.
	records *checkpoint.Store
	leased  *checkpoint.Store
	marks   *checkpoint.Store // of what was preloaded

	// Channels that stand for semaphores, taken with take: a wait can end with a
	// context, which it cannot for a mutex. disk and writes may be held while s.mu is
	// taken, and never the other way round.
	unpackSlots chan struct{}
	disk        chan struct{} // has a token while layers are renamed
	writes      chan struct{} // has a token while image records are written
	work        sync.WaitGroup
	preloaded   chan struct{} // closed when the preloaded images were read
	purge       chan struct{} // there may be something in the trash

	mu sync.Mutex // held for no call of the disk
	// images has each image by its ID, those that are not whole included.
	images map[digest]*record
	tags   map[string]digest // names with tags
	// seq is the largest number that a tag has got. It grows with each pull of a tag.
	seq     uint64
	layers  map[string]*layer // by key
	leases  map[string]*lease // by owner
	hung    bool              // a record could not be read: nothing is collected
	flights map[digest]*flight
	lanes   map[string]*lane
	changed chan struct{}   // closed when a layer comes
	purged  []chan struct{} // to be closed once what is in the trash now is gone
	// partial has the files of downloads in ingest, by name, and when they were last
	// used.
	partial map[string]time.Time

	counters counters
}

// layer is a layer that is on the disk. All fields but those of layerMeta are guarded
// by Store.mu.
type layer struct {
	layerMeta
	dir       string // where it is: in layers, or in ingest as long as it is not committed
	committed bool
	held      int       // pulls that need it
	keep      time.Time // until when it is kept, though nobody needs it
}

// layerVersion is that of the record of a layer. A layer of another version is put away
// at the start, as after a downgrade: it is pulled again.
const layerVersion = 1

// layerMeta is a layer's own record. It is written once, into the layer's directory,
// before that gets its name.
type layerMeta struct {
	Version    int       `json:"version"`
	Key        string    `json:"key"`
	DiffID     digest    `json:"diffID"`
	Size       int64     `json:"size"` // of its files, in bytes
	Entries    int64     `json:"entries"`
	OpaqueRoot bool      `json:"opaqueRoot,omitempty"` // hides all that is below
	Root       *rootAttr `json:"root,omitempty"`
}

// record is an image, as it is kept. It is not changed once it is published.
type record struct {
	ID          digest            `json:"id"`
	Tags        map[string]uint64 `json:"tags,omitempty"`    // names with tags; the largest number has a name that several claim
	Digests     []string          `json:"digests,omitempty"` // names with digests
	Config      []byte            `json:"config"`
	Layers      []string          `json:"layers"` // keys, the lowest first
	Annotations map[string]string `json:"annotations,omitempty"`
	Pinned      bool              `json:"pinned,omitempty"`

	config *configFile
}

// lease is what a container uses.
type lease struct {
	Image  digest   `json:"image"`
	Layers []string `json:"layers"` // keys, the topmost first
	// Unknown is set where the record was damaged: any layer may be in use.
	Unknown bool `json:"unknown,omitempty"`
}

// New checks a configuration and returns a Store for it. It has no effects.
func New(cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Store{
		cfg: cfg, ready: make(chan struct{}), over: make(chan struct{}),
		unpackSlots: make(chan struct{}, cfg.UnpackJobs), disk: make(chan struct{}, 1), writes: make(chan struct{}, 1), purge: make(chan struct{}, 1), preloaded: make(chan struct{}),
		images: map[digest]*record{}, tags: map[string]digest{}, layers: map[string]*layer{}, leases: map[string]*lease{},
		flights: map[digest]*flight{}, lanes: map[string]*lane{}, changed: make(chan struct{}), partial: map[string]time.Time{},
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

// path returns a path below Config.RootDir. Elements come from constants and checked
// digests only.
func (s *Store) path(elements ...string) string {
	return filepath.Join(append([]string{s.cfg.RootDir}, elements...)...)
}

// Run makes the directory ready, reads what is there, and works until ctx ends.
// It is called once. An error before that means that the directory cannot be
// used, as one that another Store has: its process is named.
func (s *Store) Run(ctx context.Context) error {
	// Callers of await must not wait for a store that never became ready.
	defer close(s.over)
	// The lock is held for as long as the process uses the directory: a second agent
	// would collect the layers of the first.
	unlock, err := s.prepare()
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.base = ctx
	// Nobody else is there yet: read takes no locks.
	if err := s.read(); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	// A crash may have come between the record of an image and those that lost a name
	// to it.
	s.dropStale(ctx)
	close(s.ready)
	defer func() {
		s.mu.Lock()   // what begins a flight holds it, and sees from here on that all is over
		s.mu.Unlock() //nolint:staticcheck // all that is wanted is the order
		s.work.Wait()
	}()
	// Beside the loop, since a preload of gigabytes must not keep the others waiting.
	s.work.Go(func() {
		defer close(s.preloaded)
		s.preload(ctx)
	})
	// What the last process did not get to.
	s.collect(ctx)
	// Nothing expires in less than keepPartial.
	tick := time.NewTicker(keepPartial)
	defer tick.Stop()
	for {
		// Here and nowhere else, so that no call waits for the removal of a tree.
		s.emptyTrash(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-s.purge:
		case <-tick.C:
			s.dropPartial()
			s.collect(ctx)
		}
	}
}

// emptyDirs stand for layers that an image does not have: overlayfs mounts no
// fewer than two read-only.
var emptyDirs = []string{"empty/a", "empty/b"}

// await waits until the store runs. It returns errClosed if the start has failed, or
// once Run's context has ended.
func (s *Store) await(ctx context.Context) error {
	select {
	case <-s.ready:
	case <-s.over:
		return errClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// The context of Run may have ended while flights are still on their way down.
	if s.base.Err() != nil {
		return errClosed
	}
	return nil
}

// awaitPreloaded waits until the preloaded images have been read: one that is not
// there before that may be among them.
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

// prepare makes the directories, takes the lock and looks at the file system. The error
// of a second user names its process.
func (s *Store) prepare() (unlock func(), err error) {
	// For root alone: layers have setuid files, which nobody may run from here.
	for _, d := range append([]string{"", layersDir, ingestDir, trashDir}, emptyDirs...) {
		if err := os.MkdirAll(s.path(d), 0o700); err != nil {
			return nil, err
		}
	}
	// These are mounted as parts of a container's root, which others may enter.
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

// probe looks whether layers can be kept here. An answer now is worth more than a layer
// that fails in the middle: each step is one that every layer needs.
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
	// Trusted attributes need CAP_SYS_ADMIN (xattr(7)).
	if err := setOpaque(t.fd); err != nil {
		return fmt.Errorf("%s cannot have trusted extended attributes: %w", s.cfg.RootDir, err)
	}
	// A whiteout is a character device 0/0 (overlayfs.rst, "whiteouts and opaque
	// directories").
	if err := unix.Mknodat(t.fd, "whiteout", unix.S_IFCHR, 0); err != nil {
		return fmt.Errorf("%s cannot have device files: %w", s.cfg.RootDir, err)
	}
	// An older kernel answers ENOSYS, and some seccomp filters EPERM.
	if _, err := openBeneath(t.fd, "none"); !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("kernel has no openat2, want 5.6 or later: %w", err)
	}
	return nil
}

// read learns what is there, and puts away what a crash left. An error means that
// nothing is known for sure, and that nothing may be collected: Run ends with it.
func (s *Store) read() error {
	// Renamed as a whole, and removed later: half-unpacked layers may be large.
	if err := s.putAway(ingestDir); err != nil {
		return err
	}
	if err := os.Mkdir(s.path(ingestDir), 0o700); err != nil {
		return err
	}
	if err := s.readLayers(); err != nil {
		return err
	}
	if err := s.readRecords(); err != nil {
		return err
	}
	if err := s.readLeases(); err != nil {
		return err
	}
	// A mark that is lost costs an import.
	marks, err := checkpoint.Open(checkpoint.Config{Dir: s.path(marksDir), NoSync: true})
	s.marks = marks
	return err
}

// readLayers makes the table of layers from the directories of layers. Contents are not
// read.
func (s *Store) readLayers() error {
	names, err := safefile.Names(s.path(layersDir), maxStored)
	if err != nil {
		return err
	}
	for _, key := range names {
		b, err := safefile.ReadIn(s.path(layersDir, key), metaFile, 64<<10)
		// With an error of the read, b is empty and perr is of no interest.
		m, perr := parseMeta(b, key)
		switch {
		case err == nil && perr == nil:
			s.layers[key] = &layer{layerMeta: *m, dir: s.path(layersDir, key), committed: true}
		// These say that the directory is damaged. Any other error, such as EIO, may be
		// the disk's of this moment: a good layer must not be thrown away for it.
		case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, safefile.ErrNotRegular), errors.Is(err, safefile.ErrTooLarge), errors.Is(err, unix.ENOTDIR):
			s.cfg.Log.Warn("put away damaged layer", zap.String("layer", key), zap.Error(errors.Join(err, perr)))
			if err := s.setLayerAside(filepath.Join(layersDir, key)); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return nil
}

// parseMeta reads the record of the layer with a key. An error means that the layer
// cannot be used.
func parseMeta(b []byte, key string) (*layerMeta, error) {
	var m layerMeta
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	if m.Version != layerVersion {
		return nil, fmt.Errorf("version is %d; want %d", m.Version, layerVersion)
	}
	if m.Key != key || m.Size < 0 || m.Entries < 0 || digest(digestPrefix+key).check() != nil {
		return nil, errors.New("record is of another layer")
	}
	return &m, nil
}

// readRecords reads the images. A damaged record is set aside and costs that image
// alone.
func (s *Store) readRecords() (err error) {
	s.records, err = checkpoint.Open(checkpoint.Config{Dir: s.path(imagesDir), OnCorrupt: func(key, aside string, err error) {
		s.counters.records.Add(1)
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
		// The store of records calls OnCorrupt for a damaged one, and then it is
		// missing.
		b, err := s.records.Read(key)
		if errors.Is(err, fs.ErrNotExist) {
			continue // damaged, and set aside
		}
		if err != nil {
			// The record is there and names layers, only which ones is unknown: sweep
			// collects none.
			s.hung = true
			s.cfg.Log.Error("failed to read record of image", zap.String("image", key), zap.Error(err))
			continue
		}
		r, err := parseRecord(b)
		if err == nil && r.ID.hex() != key {
			err = errors.New("record is of another image")
		}
		if err != nil {
			// Well written and yet not ours: a file that somebody has copied or edited.
			if err := s.records.SetAside(key, err); err != nil {
				s.cfg.Log.Error("failed to set aside record of image", zap.String("image", key), zap.Error(err))
			}
			continue
		}
		s.publish(r)
	}
	return nil
}

// parseRecord reads an image's record. It has the same bounds as a pull, since the file
// may have been edited.
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
	// The configuration says what containers run: it has to be that of the ID.
	if digestOf(r.Config) != r.ID {
		return nil, errors.New("config is not the image's")
	}
	r.config = c
	return &r, nil
}

// readLeases reads who uses which layers. None of them is ever forgotten: its container
// may be running.
func (s *Store) readLeases() (err error) {
	s.leased, err = checkpoint.Open(checkpoint.Config{Dir: s.path(leasesDir), NoSync: true, OnCorrupt: func(key, aside string, err error) {
		s.cfg.Log.Warn("set aside damaged record of lease", zap.String("owner", key), zap.String("file", aside), zap.Error(err))
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
		// A lease that was set aside reads as missing.
		if err == nil {
			err = json.Unmarshal(b, l)
		}
		if err != nil {
			// Whose layers these are is not known any more: none is collected
			// until the owner lets go, also after the next start.
			l = &lease{Unknown: true}
			if b, merr := json.Marshal(l); merr == nil {
				err = errors.Join(err, s.leased.Write(key, b))
			}
			s.counters.leases.Add(1)
			s.cfg.Log.Warn("lost record of lease", zap.String("owner", key), zap.Error(err))
		}
		s.leases[key] = l
	}
	return nil
}

// publish has an image known. Names that other images have go to it, if its
// claim is the later one. s.mu is held, or nobody else is there yet.
func (s *Store) publish(r *record) {
	s.images[r.ID] = r
	for t, seq := range r.Tags {
		s.seq = max(s.seq, seq)
		old := s.images[s.tags[t]]
		// Equal numbers are the same claim: the first that was read keeps the tag.
		if old == nil || old.ID == r.ID || old.Tags[t] < seq {
			s.tags[t] = r.ID
		}
	}
}

// tagsOf lists the names with tags that an image has. s.mu is held.
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

// whole reports whether all layers of an image are there. s.mu is held.
func (s *Store) whole(r *record) bool {
	for _, k := range r.Layers {
		if l := s.layers[k]; l == nil || !l.committed {
			return false
		}
	}
	return true
}

// putAway moves a file or directory to the trash. One that is not there is no error.
// Within one file system a rename is all or nothing: no half-removed layer is ever seen
// under its name. The name in the trash is random.
func (s *Store) putAway(name string) error {
	err := os.Rename(s.path(name), s.path(trashDir, rand.Text()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// emptyTrash removes what was put away, and tells who waits for that. It may take minutes,
// and is called by Run alone. What cannot be removed stays for the next time.
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
	// Too many names at once are no failure: the rest comes at the next round.
	names, err := safefile.Names(s.path(trashDir), maxStored)
	if err != nil && !errors.Is(err, safefile.ErrTooMany) {
		s.cfg.Log.Warn("failed to list removed images that are to be erased", zap.Error(err))
	}
	for _, n := range names {
		if ctx.Err() != nil {
			return
		}
		if err := os.RemoveAll(s.path(trashDir, n)); err != nil {
			s.cfg.Log.Warn("failed to remove what is in the trash", zap.String("name", n), zap.Error(err))
		}
	}
}

// take waits for a token. Reading one from the channel gives it back. It returns the
// cause of ctx if that ends first.
func take(ctx context.Context, tokens chan struct{}) error {
	select {
	case tokens <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// space is an errFull when less than the reserve is left.
func (s *Store) space() error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.cfg.RootDir, &st); err != nil {
		return err
	}
	// What is left for others than root, so that the reserve is on the safe side.
	block := int64(st.Bsize) //nolint:unconvert // 32 bits on some machines
	free, bytes, inodes := int64(st.Bavail)*block, s.cfg.Reserve, int64(1024)
	if s.cfg.ReserveOf != nil {
		b, n := s.cfg.ReserveOf(int64(st.Blocks)*block, int64(st.Files))
		bytes, inodes = max(bytes, b), max(inodes, n)
	}
	// File systems without a fixed table of inodes, such as btrfs, report none at all.
	if free < bytes || st.Files > 0 && int64(st.Ffree) < inodes {
		return fmt.Errorf("%w: %s has %d bytes and %d inodes left; want at least %d and %d", errFull, s.cfg.RootDir, free, st.Ffree, bytes, inodes)
	}
	return nil
}
