//go:build linux

package image

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// wanted is a layer of an image that is being pulled.
type wanted struct {
	descriptor
	diff  digest
	chain []digest // chain IDs of the layers up to this one, the lowest first
	diffs []digest // their diff IDs
}

// id returns the chain ID, which identifies the layer together with all below it.
func (w wanted) id() digest { return w.chain[len(w.chain)-1] }

// flight is the download and unpacking of one layer, for all pulls that need it. It does
// not belong to one of the pulls: it ends early only if no pull waits for it any more, or
// with the store.
type flight struct {
	done    chan struct{}
	cancel  context.CancelCauseFunc
	waiters int // guarded by Store.mu
	// download is the last download of the layer. It is nil before, and for a layer of an archive.
	download atomic.Pointer[download]
	// err is written before done is closed, and read after it.
	err error
}

// have returns the key of a layer. It returns "" if the layer does not exist. It tries the diff
// ID first, since a layer that does not depend on others can be used in every chain. The caller
// holds s.mu.
func (s *Store) have(diff, chain digest) string {
	for _, d := range []digest{diff, chain} {
		if s.layers[d.hex()] != nil {
			return d.hex()
		}
	}
	return ""
}

// ensure gets a layer if it does not exist, and holds it, so that it is not collected. The caller
// must call release with the returned key. If the layer is being pulled by another pull and that
// fails, ensure tries again with src, since the reason may concern only the other pull.
func (s *Store) ensure(ctx context.Context, src source, w wanted) (key string, err error) {
	const tries = 20
	for range tries {
		// Check and join are one step under the lock, so that no two flights get the same layer.
		s.mu.Lock()
		if key := s.have(w.diff, w.id()); key != "" {
			s.layers[key].held++
			s.mu.Unlock()
			return key, nil
		}
		// The key is the chain ID: what a layer needs of lower ones depends on the chain.
		f, lead := s.flights[w.id()], false
		if f == nil {
			// Run has ended, or is waiting for s.work: no new work may begin.
			if s.base.Err() != nil {
				s.mu.Unlock()
				return "", errClosed
			}
			// Derived from the store's context and not the caller's: other pulls may join, and
			// the first caller may leave before them.
			fctx, cancel := context.WithCancelCause(s.base)
			f, lead = &flight{done: make(chan struct{}), cancel: cancel}, true
			s.flights[w.id()] = f
			s.work.Go(func() {
				f.err = s.fly(fctx, f, src, w)
				s.mu.Lock()
				// An abandoned flight may already have a successor with the same key.
				if s.flights[w.id()] == f {
					delete(s.flights, w.id())
				}
				s.mu.Unlock()
				close(f.done)
				cancel(nil)
			})
		}
		f.waiters++
		s.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
		}
		s.mu.Lock()
		// After a normal end the cancel has no effect.
		if f.waiters--; f.waiters == 0 {
			f.cancel(context.Canceled)
			if s.flights[w.id()] == f { // nobody may join a cancelled flight
				delete(s.flights, w.id())
			}
		}
		s.mu.Unlock()
		// The flight's result counts even if the caller's context ended meanwhile.
		select {
		case <-f.done:
			// The error of this caller's own flight is final. Another pull's flight may have
			// failed because of its credentials or mirrors: try again with src.
			if f.err != nil && lead {
				return "", f.err
			}
			err = f.err
		default:
			return "", context.Cause(ctx)
		}
	}
	return "", err
}

// release ends one hold on each of the layers with these keys. It ignores keys that are not in
// the table: such a layer was damaged and set aside after the caller had got it.
func (s *Store) release(keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		l := s.layers[k]
		if l == nil {
			continue
		}
		if l.held--; l.held == 0 && !l.keep.IsZero() { // zero: an image has it
			l.keep = time.Now().Add(keepPartial)
		}
	}
}

// fly downloads and unpacks a layer. It returns nil without a download if the store got the
// layer meanwhile.
func (s *Store) fly(ctx context.Context, f *flight, src source, w wanted) error {
	// By diff ID: a layer that may not depend on others is unpacked once, even for several
	// chains.
	leave, err := s.enter(ctx, "layer-"+w.diff.hex())
	if err != nil {
		return err
	}
	left := false
	defer func() {
		if !left {
			leave()
		}
	}()
	// An earlier user of the lane may have unpacked it.
	s.mu.Lock()
	key := s.have(w.diff, w.id())
	s.mu.Unlock()
	if key != "" {
		return nil
	}
	var dir string
	var out *unpacked
	for again := false; ; {
		dir, out, err = s.extract(ctx, f, src, w)
		if !errors.Is(err, errWrongDigest) {
			break
		}
		// The file may have been damaged by a power failure, or one of several answers was wrong: the
		// endpoints may be good.
		if d := f.download.Load(); d != nil && d.pieced && !again {
			again = true
			s.cfg.Log.Warn("resumed blob has a wrong digest; downloading it from the start", zap.Error(err))
			continue
		}
		// Each round has one endpoint less for the blob; distrust ends the loop.
		if !src.distrust(w.descriptor) {
			break
		}
		s.cfg.Log.Warn("blob has a wrong digest; getting it from another endpoint", zap.Error(err))
	}
	if err != nil {
		return fmt.Errorf("layer %s: %w", w.Digest, err)
	}
	s.cfg.step("extracted")
	if out.alone() {
		return s.stage(dir, w.diff, w.diff, out)
	}
	// Otherwise an image that contains a layer twice would deadlock: the upper one waits for the
	// lower one, which waits for the lane.
	leave() // other chains need copies of their own
	left = true
	if err := s.completeOn(ctx, dir, out, w); err != nil {
		s.discard(dir)
		return fmt.Errorf("layer %s: %w", w.Digest, err)
	}
	return s.stage(dir, w.id(), w.diff, out)
}

// extract unpacks a layer into a new directory in ingest, which is removed on failure. The
// directory has the tree, but no record yet. The file of the blob is removed once it is no longer
// needed, or known to be wrong; after a lost connection it is kept for the next try. errWrongDigest
// means that the blob has been removed because its content is wrong.
func (s *Store) extract(ctx context.Context, f *flight, src source, w wanted) (dir string, out *unpacked, err error) {
	b, err := src.blob(ctx, w.descriptor)
	if err != nil {
		return "", nil, err
	}
	d, ok := b.(*download)
	if ok {
		f.download.Store(d)
	}
	keep := true
	defer func() { b.close(keep) }()
	// Reads take the slot, and release it while they wait.
	slot := &slotted{ctx: ctx, b: b, slots: s.unpackSlots}
	defer slot.release()
	in := newVerified(slot, w.descriptor)

	// A random name: leftovers of a crash never conflict, and are removed at the next start.
	dir = s.path(ingestDir, "layer-"+rand.Text())
	// The root of the tree has mode 0755, regardless of the umask: archives often have no entry
	// for it.
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(filepath.Join(dir, treeDir), 0o700), os.Chmod(filepath.Join(dir, treeDir), 0o755)); err != nil {
		s.discard(dir)
		return "", nil, err
	}
	out, err = s.extractTo(ctx, dir, in, w.diff)
	if err == nil {
		// A layer that depends on lower ones is unpacked once for each chain.
		keep = !out.alone() && s.shared("layer-"+w.diff.hex())
		return dir, out, nil
	}
	s.discard(dir)
	// The reason for the end is more useful than the read error that followed.
	if ctx.Err() != nil {
		return "", nil, context.Cause(ctx)
	}
	// The blob may be right, and the next try needs it, unless the disk cannot read it.
	if errors.Is(err, errFull) || isErrno(err) {
		keep = !errors.Is(err, unix.EIO)
		return "", nil, err
	}
	// The archive cannot be read, and not all of it is here: a file that a power failure has damaged
	// is not worth the rest.
	if in.err == nil && d != nil && d.resumed && !d.complete() {
		keep = false
		return "", nil, fmt.Errorf("%w: resumed blob %s: %w", errWrongDigest, w.Digest, err)
	}
	// Corrupt bytes make an archive that cannot be read: report the wrong digest, which is the
	// cause.
	if _, derr := io.Copy(io.Discard, in); derr != nil {
		keep = !errors.Is(derr, errWrongDigest)
		return "", nil, derr
	}
	// The bytes match the manifest, so the archive itself is bad: another download would have the
	// same bytes.
	keep = false
	if errors.Is(err, errLimit) || errors.Is(err, errWrongBytes) {
		return "", nil, err
	}
	return "", nil, fmt.Errorf("%w: %w", errInvalid, err)
}

// renameLayers renames layers with the given keys and paths to their keys with a prefix, in a
// directory of the store. The files of the layers are synced: the next start uses the names. The
// caller holds s.disk.
func (s *Store) renameLayers(layers map[string]string, dir, prefix string) error {
	for k, from := range layers {
		name := filepath.Join(dir, prefix+k)
		err := os.Rename(from, s.path(name))
		// A directory with this name that is not in the table: one that could not be moved away.
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			err = errors.Join(s.putAway(name), os.Rename(from, s.path(name)))
		}
		if err != nil {
			return err
		}
		// At once, so that the table stays right if the next rename fails.
		s.mu.Lock()
		if l := s.layers[k]; l != nil {
			l.dir = s.path(name)
		}
		s.mu.Unlock()
	}
	return nil
}

// isErrno reports whether the error comes from the file system, and not from the image or its
// registry.
func isErrno(err error) bool {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS, unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// extractTo decompresses and unpacks a layer into dir, and compares the digest of the
// uncompressed bytes with diff. It reads in to its end, so that the reader in can compare
// its own digest.
func (s *Store) extractTo(ctx context.Context, dir string, in io.Reader, diff digest) (*unpacked, error) {
	if err := s.space(); err != nil {
		return nil, err
	}
	plain, done, err := decompress(in)
	if err != nil {
		return nil, err
	}
	defer done()
	sum := sha256.New()
	// The digest covers exactly the unpacked bytes; a decompression bomb is stopped at the limit
	// of the uncompressed stream.
	stream := io.TeeReader(&bounded{r: plain, left: s.cfg.MaxLayerBytes, what: "layer"}, sum)
	out, err := unpack(ctx, filepath.Join(dir, treeDir), filepath.Join(dir, "times"), stream, unpackLimits{
		bytes: s.cfg.MaxLayerBytes, entries: maxLayerEntries, space: s.space,
	})
	if err != nil {
		return nil, err
	}
	// tar stops at two zero blocks, but the diff ID covers the bytes after them as well.
	if _, err := io.Copy(io.Discard, stream); err != nil { // padding
		return nil, err
	}
	if _, err := io.Copy(io.Discard, in); err != nil { // bytes after the compressed stream
		return nil, err
	}
	if got := digest(fmt.Sprintf("%s%x", digestPrefix, sum.Sum(nil))); got != diff {
		return nil, fmt.Errorf("%w: the unpacked layer's digest is %s; want %s", errWrongBytes, got, diff)
	}
	return out, nil
}

// completeOn waits for the layers below, and calls complete with them.
func (s *Store) completeOn(ctx context.Context, dir string, out *unpacked, w wanted) error {
	below, keys, err := s.awaitBelow(ctx, w)
	defer s.release(keys)
	defer closeAll(below)
	// The layers below are held until the end, since they are read here.
	if err != nil {
		return err
	}
	// After the wait: otherwise this slot could be the one that is missing to unpack the layers
	// below.
	if err := take(ctx, s.unpackSlots); err != nil {
		return err
	}
	defer func() { <-s.unpackSlots }()
	// Neither a timeout nor a number of entries limits it, but maxSteps does.
	if err := complete(filepath.Join(dir, treeDir), out, below, unpackLimits{bytes: s.cfg.MaxLayerBytes, space: s.space}); err != nil {
		if isErrno(err) || errors.Is(err, errLimit) || errors.Is(err, errFull) {
			return err
		}
		return fmt.Errorf("%w: %w", errInvalid, err)
	}
	return nil
}

// awaitBelow waits until all layers below exist, and holds them. Other flights of the same pull
// get these layers; if one of them fails, the pull ends, and so does ctx. trees has descriptors
// of the layers' trees, the topmost first, which the caller closes. They are not paths, since
// commits of other pulls rename staged layers. keys has the held layers, which the caller
// releases, even after an error.
func (s *Store) awaitBelow(ctx context.Context, w wanted) (trees []int, keys []string, err error) {
	for i := range len(w.chain) - 1 {
		for {
			s.mu.Lock()
			// Both under the same lock, so that a layer that arrives now is not missed.
			key, changed := s.have(w.diffs[i], w.chain[i]), s.changed
			if key != "" {
				s.layers[key].held++
				keys = append(keys, key)
			}
			s.mu.Unlock()
			if key != "" {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, keys, context.Cause(ctx)
			}
		}
	}
	// No renames until the trees are open.
	if err := take(ctx, s.disk); err != nil {
		return nil, keys, err
	}
	defer func() { <-s.disk }()
	var paths []string
	s.mu.Lock()
	for _, k := range slices.Backward(keys) {
		paths = append(paths, filepath.Join(s.layers[k].dir, treeDir))
	}
	s.mu.Unlock()
	for _, p := range paths {
		t, err := openTree(p)
		if err != nil {
			closeAll(trees)
			return nil, keys, err
		}
		trees = append(trees, t.fd)
	}
	return trees, keys, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// discard removes a directory in ingest that no other goroutine uses. If files cannot be removed,
// they stay in ingest, which is emptied at the next start.
func (s *Store) discard(dir string) { _ = os.RemoveAll(dir) }

// stage adds a complete layer to the table. The layer does not survive a power failure yet. Other
// layers can use it at once; images can use it once it is committed.
func (s *Store) stage(dir string, key, diff digest, out *unpacked) error {
	// The record is the last file of the directory. commit syncs it with all others.
	m := layerMeta{Version: layerVersion, Key: key.hex(), DiffID: diff, Size: out.size, Entries: out.entries, OpaqueRoot: out.opaqueRoot, Root: out.root}
	b, err := json.Marshal(m)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, metaFile), b, 0o600)
	}
	if err != nil {
		s.discard(dir)
		return err
	}
	s.mu.Lock()
	there := s.layers[m.Key] != nil
	if !there {
		// If the pull fails before a record names the layer, the next pull finds it here.
		s.layers[m.Key] = &layer{layerMeta: m, dir: dir, keep: time.Now().Add(keepPartial)}
		// Wakes the callers in awaitBelow.
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.mu.Unlock()
	if there {
		s.discard(dir)
	}
	return nil
}

// commit makes the layers, and all other staged ones, survive a power failure: it syncs their
// files before it renames them, and the names before it returns.
func (s *Store) commit(ctx context.Context, keys []string) error {
	if err := take(ctx, s.disk); err != nil {
		return err
	}
	defer func() { <-s.disk }()
	s.mu.Lock()
	needed := false
	for _, k := range keys {
		// Another pull may have committed these layers along with its own.
		needed = needed || s.layers[k] != nil && !s.layers[k].committed
	}
	// All staged layers, including those of other pulls: one sync of the file system serves all.
	staged := map[string]string{}
	for k, l := range s.layers {
		if !l.committed {
			staged[k] = l.dir
		}
	}
	s.mu.Unlock()
	if !needed {
		return nil
	}
	// The descriptor is used to sync the file system and the directory.
	dir, err := openTree(s.path(layersDir))
	if err != nil {
		return err
	}
	defer dir.Close()
	// One call instead of an fsync for each of many thousands of files. It also waits for other
	// writes to the same file system.
	if err := unix.Syncfs(dir.fd); err != nil {
		return fmt.Errorf("sync layers: %w", err)
	}
	s.cfg.step("synced")
	if err := s.renameLayers(staged, layersDir, ""); err != nil {
		return err
	}
	// The names must be synced before an image's record uses them.
	if err := unix.Fsync(dir.fd); err != nil {
		return fmt.Errorf("sync directory of layers: %w", err)
	}
	s.cfg.step("renamed")
	// From here on images with these layers can be complete.
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range staged {
		if l := s.layers[k]; l != nil {
			l.committed = true
		}
	}
	return nil
}
