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
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// wanted is a layer of an image that is being pulled.
type wanted struct {
	descriptor
	diff  digest
	chain []digest // chain IDs, the lowest first; the last is its own
	diffs []digest // the same of diff IDs
}

// id is the chain ID, which names the layer together with all below it.
func (w wanted) id() digest { return w.chain[len(w.chain)-1] }

// flight gets one layer, for all pulls that want it. A flight belongs to none of them:
// it ends when the last waiter has gone, or with the store.
type flight struct {
	done    chan struct{}
	cancel  context.CancelCauseFunc
	waiters int // guarded by Store.mu
	// err is written before done is closed, and read after it.
	err error
}

// have is the key of a layer, "" if it is not there. s.mu is held. The diff ID comes
// first: a layer that stands alone serves every chain.
func (s *Store) have(diff, chain digest) string {
	for _, d := range []digest{diff, chain} {
		if s.layers[d.hex()] != nil {
			return d.hex()
		}
	}
	return ""
}

// ensure gets a layer, if it is not there, and holds it: release must be called
// with its key. The flight of another pull may fail for reasons of that pull's
// own: then it is tried again with src.
func (s *Store) ensure(ctx context.Context, src source, w wanted) (key string, err error) {
	const tries = 20
	for range tries {
		// Look and join are one step under the lock: no two flights get one layer.
		s.mu.Lock()
		if key := s.have(w.diff, w.id()); key != "" {
			s.layers[key].held++
			s.mu.Unlock()
			return key, nil
		}
		// Keyed by chain ID: what a layer needs of those below differs from chain to
		// chain.
		f, lead := s.flights[w.id()], false
		if f == nil {
			// Run has ended, or is waiting for s.work: nothing new may begin.
			if s.base.Err() != nil {
				s.mu.Unlock()
				return "", errClosed
			}
			// From the store's context and not the caller's: other pulls may join, and
			// the first caller may leave before them.
			fctx, cancel := context.WithCancelCause(s.base)
			f, lead = &flight{done: make(chan struct{}), cancel: cancel}, true
			s.flights[w.id()] = f
			s.work.Go(func() {
				f.err = s.fly(fctx, src, w)
				s.mu.Lock()
				// An abandoned flight may have a successor under the same key by now.
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
			if s.flights[w.id()] == f { // nobody joins what is being cancelled
				delete(s.flights, w.id())
			}
		}
		s.mu.Unlock()
		// The flight's result counts even if the caller's context ended meanwhile.
		select {
		case <-f.done:
			// Failure of a flight of our own is the answer. One of another pull may be
			// a matter of its credentials or its mirrors: once more, with src.
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

// release lets go of layers that ensure holds. It is called once for each hold. A layer
// that was set aside meanwhile is not in the table.
func (s *Store) release(keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		if l := s.layers[k]; l != nil {
			l.held--
		}
	}
}

// fly downloads and unpacks a layer. It returns nil also if the layer has come by other
// means; ensure looks for it.
func (s *Store) fly(ctx context.Context, src source, w wanted) error {
	// By diff ID: a layer that may stand alone is unpacked once, though several chains
	// want it.
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
	// The one before in the lane may have unpacked it.
	s.mu.Lock()
	key := s.have(w.diff, w.id())
	s.mu.Unlock()
	if key != "" {
		return nil
	}
	var dir string
	var out *unpacked
	// Each round asks one endpoint less for the blob; distrust ends the loop.
	for {
		dir, out, err = s.extract(ctx, src, w)
		if !errors.Is(err, errWrongBytes) || !src.distrust(w.descriptor) {
			break
		}
		s.cfg.Log.Warn("failed to get blob, ask elsewhere", zap.Error(err))
	}
	if err != nil {
		return fmt.Errorf("layer %s: %w", w.Digest, err)
	}
	s.cfg.step("extracted")
	if out.alone() {
		return s.stage(dir, w.diff, w.diff, out)
	}
	// Without this, an image that has the same layer twice would wait for itself: the
	// upper one for the lower one, and that for the lane.
	leave() // others with other layers below need their own
	left = true
	if err := s.completeOn(ctx, dir, out, w); err != nil {
		s.discard(dir)
		return fmt.Errorf("layer %s: %w", w.Digest, err)
	}
	return s.stage(dir, w.id(), w.diff, out)
}

// extract makes a layer's directory in ingest: it is removed again on failure. The
// directory has the tree and no record yet. The blob's file is
// removed once it is of no more use; after a lost connection it stays for the next try.
func (s *Store) extract(ctx context.Context, src source, w wanted) (dir string, out *unpacked, err error) {
	b, err := src.blob(ctx, w.descriptor)
	if err != nil {
		return "", nil, err
	}
	whole := false
	defer func() { b.close(whole || errors.Is(err, errWrongBytes)) }()
	// The slot is taken and given back by the reads themselves.
	slot := &slotted{ctx: ctx, b: b, slots: s.unpackSlots}
	defer slot.release()
	begin := time.Now()
	// Less the waits for bytes: a slow network must not look like a slow disk.
	defer func() { s.observe(OpUnpack, begin, slot.waited, err) }()
	in := newVerified(slot, w.descriptor)

	// A random name: remains of a crash are never in the way, and go at the next start.
	dir = s.path(ingestDir, "layer-"+rand.Text())
	// The root of the tree is 0755 whatever the umask is; archives often do not mention
	// it.
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(filepath.Join(dir, treeDir), 0o700), os.Chmod(filepath.Join(dir, treeDir), 0o755)); err != nil {
		s.discard(dir)
		return "", nil, err
	}
	out, err = s.extractTo(ctx, dir, in, w.diff)
	if err == nil {
		whole = true
		return dir, out, nil
	}
	s.discard(dir)
	// Why it ended is more useful than the read error that followed.
	if ctx.Err() != nil {
		return "", nil, context.Cause(ctx)
	}
	// Bytes that were changed on their way make an archive that cannot be read:
	// the cause is what counts.
	if _, derr := io.Copy(io.Discard, in); derr != nil {
		return "", nil, derr
	}
	// The bytes are those of the manifest, so that the archive itself is bad: another
	// download would bring the same.
	whole = true
	if errors.Is(err, errFull) || errors.Is(err, errLimit) || errors.Is(err, errWrongBytes) || isErrno(err) {
		return "", nil, err
	}
	return "", nil, fmt.Errorf("%w: %w", errInvalid, err)
}

// isErrno reports whether the file system said no for a reason of its own. Such an
// error is not held against the image or its registry.
func isErrno(err error) bool {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS, unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// extractTo unpacks a compressed stream into dir and compares the digest of the plain
// one with diff. in is read to its end, where its own digest is compared.
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
	// The digest is of exactly the bytes that were unpacked; a bomb of a few kilobytes
	// ends at the bound of the plain stream.
	stream := io.TeeReader(&bounded{r: plain, left: s.cfg.MaxLayerBytes, what: "layer"}, sum)
	out, err := unpack(ctx, filepath.Join(dir, treeDir), filepath.Join(dir, "times"), stream, unpackLimits{
		bytes: s.cfg.MaxLayerBytes, entries: s.cfg.MaxLayerEntries, space: s.space,
	})
	if err != nil {
		return nil, err
	}
	// tar stops at two zero blocks, while the diff ID covers everything after them as
	// well.
	if _, err := io.Copy(io.Discard, stream); err != nil { // padding
		return nil, err
	}
	if _, err := io.Copy(io.Discard, in); err != nil { // what follows the compressed stream
		return nil, err
	}
	if got := digest(fmt.Sprintf("%s%x", digestPrefix, sum.Sum(nil))); got != diff {
		return nil, fmt.Errorf("%w: the unpacked layer's digest is %s; want %s", errWrongBytes, got, diff)
	}
	return out, nil
}

// completeOn waits for the layers below and takes from them what the layer needs.
func (s *Store) completeOn(ctx context.Context, dir string, out *unpacked, w wanted) error {
	below, keys, err := s.awaitBelow(ctx, w)
	defer s.release(keys)
	defer closeAll(below)
	// The layers below are held to the end: they are read here.
	if err != nil {
		return err
	}
	// After the wait: a slot that is held while others unpack the layers below might be
	// the one that they need.
	if err := take(ctx, s.unpackSlots); err != nil {
		return err
	}
	defer func() { <-s.unpackSlots }()
	// Neither the clock nor the number of entries limits it: maxSteps does.
	if err := complete(filepath.Join(dir, treeDir), out, below, unpackLimits{bytes: s.cfg.MaxLayerBytes, space: s.space}); err != nil {
		if isErrno(err) || errors.Is(err, errLimit) || errors.Is(err, errFull) {
			return err
		}
		return fmt.Errorf("%w: %w", errInvalid, err)
	}
	return nil
}

// awaitBelow waits until all layers below are there, and holds them. It returns
// descriptors of their trees, the topmost first, which the caller closes: commits of
// other pulls rename staged layers at any time. keys has what is held also together
// with an error.
// Who gets those layers are other flights of the same pull; if one fails, the pull
// ends, and with it ctx.
func (s *Store) awaitBelow(ctx context.Context, w wanted) (trees []int, keys []string, err error) {
	for i := range len(w.chain) - 1 {
		for {
			s.mu.Lock()
			// Taken under the same lock as the look, so that a layer that comes now is
			// not missed.
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
	// Nobody renames them until they are open.
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

// discard removes a directory that nobody else knows of. What cannot be removed is in
// ingest, which goes at the next start.
func (s *Store) discard(dir string) { _ = os.RemoveAll(dir) }

// stage has a layer known that is whole, and not yet safe from a power cut. The layer
// is usable by other layers at once, and by images once it is committed.
func (s *Store) stage(dir string, key, diff digest, out *unpacked) error {
	// The record is the last file of the directory. It is synced with all others by
	// commit.
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
		// If the pull fails before an image's record names the layer, the next one
		// finds it here.
		s.layers[m.Key] = &layer{layerMeta: m, dir: dir, keep: time.Now().Add(keepPartial)}
		// Those in awaitBelow look again.
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.mu.Unlock()
	if there {
		s.discard(dir)
	}
	return nil
}

// commit makes all layers that are staged outlast a power cut: their files are
// synced before they get their names, and those before it returns.
func (s *Store) commit(ctx context.Context, keys []string) error {
	if err := take(ctx, s.disk); err != nil {
		return err
	}
	defer func() { <-s.disk }()
	s.mu.Lock()
	needed := false
	for _, k := range keys {
		// Somebody else may have committed these layers along with others.
		needed = needed || s.layers[k] != nil && !s.layers[k].committed
	}
	// All that are staged, whoever's they are: one sync of the file system is paid for
	// once.
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
	// Its descriptor serves both to sync the file system and the directory.
	dir, err := openTree(s.path(layersDir))
	if err != nil {
		return err
	}
	defer dir.Close()
	// One call instead of an fsync for each of many thousands of files. It also waits
	// for writes of others on the same file system.
	if err := unix.Syncfs(dir.fd); err != nil {
		return fmt.Errorf("sync layers: %w", err)
	}
	s.cfg.step("synced")
	for k, from := range staged {
		to := s.path(layersDir, k)
		// The name is what counts at the next start: under it there is only what is on
		// the disk.
		err := os.Rename(from, to)
		// A directory of that name which is in no table: one that could not be put
		// away.
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			err = errors.Join(s.putAway(filepath.Join(layersDir, k)), os.Rename(from, to))
		}
		if err != nil {
			return err
		}
		// At once, so that a failure of the next rename leaves the table right.
		s.mu.Lock()
		if l := s.layers[k]; l != nil {
			l.dir = to
		}
		s.mu.Unlock()
	}
	// The names themselves must last before an image's record may use them.
	if err := unix.Fsync(dir.fd); err != nil {
		return fmt.Errorf("sync directory of layers: %w", err)
	}
	s.cfg.step("renamed")
	// From here on images that have these layers can be whole.
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range staged {
		if l := s.layers[k]; l != nil {
			l.committed = true
		}
	}
	return nil
}
