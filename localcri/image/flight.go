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

func (w wanted) id() digest { return w.chain[len(w.chain)-1] }

// flight gets one layer, for all pulls that want it.
type flight struct {
	done    chan struct{}
	cancel  context.CancelCauseFunc
	waiters int // guarded by Store.mu
	err     error
}

// have is the key of a layer, "" if it is not there. s.mu is held.
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
		s.mu.Lock()
		if key := s.have(w.diff, w.id()); key != "" {
			s.layers[key].held++
			s.mu.Unlock()
			return key, nil
		}
		f, lead := s.flights[w.id()], false
		if f == nil {
			if s.base.Err() != nil {
				s.mu.Unlock()
				return "", errClosed
			}
			fctx, cancel := context.WithCancelCause(s.base)
			f, lead = &flight{done: make(chan struct{}), cancel: cancel}, true
			s.flights[w.id()] = f
			s.work.Go(func() {
				f.err = s.fly(fctx, src, w)
				s.mu.Lock()
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
		if f.waiters--; f.waiters == 0 {
			f.cancel(context.Canceled)
			if s.flights[w.id()] == f { // nobody joins what is being cancelled
				delete(s.flights, w.id())
			}
		}
		s.mu.Unlock()
		select {
		case <-f.done:
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

// release lets go of layers that ensure holds.
func (s *Store) release(keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		if l := s.layers[k]; l != nil {
			l.held--
		}
	}
}

// fly downloads and unpacks a layer.
func (s *Store) fly(ctx context.Context, src source, w wanted) error {
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
	s.mu.Lock()
	key := s.have(w.diff, w.id())
	s.mu.Unlock()
	if key != "" {
		return nil
	}
	var dir string
	var out *unpacked
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
	leave() // others with other layers below need their own
	left = true
	if err := s.completeOn(ctx, dir, out, w); err != nil {
		s.discard(dir)
		return fmt.Errorf("layer %s: %w", w.Digest, err)
	}
	return s.stage(dir, w.id(), w.diff, out)
}

// extract makes a layer's directory in ingest: it is removed again on failure.
func (s *Store) extract(ctx context.Context, src source, w wanted) (dir string, out *unpacked, err error) {
	b, err := src.blob(ctx, w.descriptor)
	if err != nil {
		return "", nil, err
	}
	whole := false
	defer func() { b.close(whole || errors.Is(err, errWrongBytes)) }()
	slot := &slotted{ctx: ctx, b: b, slots: s.unpackSlots}
	defer slot.release()
	begin := time.Now()
	defer func() { s.observe(OpUnpack, begin, slot.waited, err) }()
	in := newVerified(slot, w.descriptor)

	dir = s.path(ingestDir, "layer-"+rand.Text())
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
	if ctx.Err() != nil {
		return "", nil, context.Cause(ctx)
	}
	// Bytes that were changed on their way make an archive that cannot be read:
	// the cause is what counts.
	if _, derr := io.Copy(io.Discard, in); derr != nil {
		return "", nil, derr
	}
	whole = true
	if errors.Is(err, errFull) || errors.Is(err, errLimit) || errors.Is(err, errWrongBytes) || isErrno(err) {
		return "", nil, err
	}
	return "", nil, fmt.Errorf("%w: %w", errInvalid, err)
}

// isErrno reports whether the file system said no for a reason of its own.
func isErrno(err error) bool {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS, unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (s *Store) extractTo(ctx context.Context, dir string, in io.Reader, diff digest) (*unpacked, error) {
	if err := s.space(); err != nil {
		return nil, err
	}
	sums, err := os.OpenFile(filepath.Join(dir, sumsFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:forbidigo // made here
	if err != nil {
		return nil, err
	}
	defer func() { _ = sums.Close() }()
	plain, done, err := decompress(in)
	if err != nil {
		return nil, err
	}
	defer done()
	sum := sha256.New()
	stream := io.TeeReader(&bounded{r: plain, left: s.cfg.MaxLayerBytes, what: "layer"}, sum)
	out, err := unpack(ctx, filepath.Join(dir, treeDir), filepath.Join(dir, "times"), stream, sums, unpackLimits{
		bytes: s.cfg.MaxLayerBytes, entries: s.cfg.MaxLayerEntries, space: s.space,
	})
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, stream); err != nil { // padding
		return nil, err
	}
	if _, err := io.Copy(io.Discard, in); err != nil { // what follows the compressed stream
		return nil, err
	}
	if got := digest(fmt.Sprintf("%s%x", digestPrefix, sum.Sum(nil))); got != diff {
		return nil, fmt.Errorf("%w: the unpacked layer's digest is %s; want %s", errWrongBytes, got, diff)
	}
	return out, sums.Close()
}

// completeOn waits for the layers below and takes from them what the layer needs.
func (s *Store) completeOn(ctx context.Context, dir string, out *unpacked, w wanted) error {
	below, keys, err := s.awaitBelow(ctx, w)
	defer s.release(keys)
	if err != nil {
		return err
	}
	if err := take(ctx, s.unpackSlots); err != nil {
		return err
	}
	defer func() { <-s.unpackSlots }()
	fd, err := unix.Open(filepath.Join(dir, sumsFile), unix.O_WRONLY|unix.O_APPEND|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	sums := os.NewFile(uintptr(fd), sumsFile)
	defer func() { _ = sums.Close() }()
	if err := complete(filepath.Join(dir, treeDir), sums, out, below, unpackLimits{bytes: s.cfg.MaxLayerBytes, space: s.space}); err != nil {
		if isErrno(err) || errors.Is(err, errLimit) || errors.Is(err, errFull) {
			return err
		}
		return fmt.Errorf("%w: %w", errInvalid, err)
	}
	return sums.Close()
}

// awaitBelow waits until all layers below are there, and holds them. It returns
// their trees, the topmost first.
func (s *Store) awaitBelow(ctx context.Context, w wanted) (trees, keys []string, err error) {
	for i := range len(w.chain) - 1 {
		for {
			s.mu.Lock()
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
	// Nobody renames them meanwhile.
	if err := take(ctx, s.disk); err != nil {
		return nil, keys, err
	}
	defer func() { <-s.disk }()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range slices.Backward(keys) {
		trees = append(trees, filepath.Join(s.layers[k].dir, treeDir))
	}
	return trees, keys, nil
}

func (s *Store) discard(dir string) { _ = os.RemoveAll(dir) }

// stage has a layer known that is whole, and not yet safe from a power cut.
func (s *Store) stage(dir string, key, diff digest, out *unpacked) error {
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
		s.layers[m.Key] = &layer{layerMeta: m, dir: dir, keep: time.Now().Add(keepPartial)}
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
		needed = needed || s.layers[k] != nil && !s.layers[k].committed
	}
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
	dir, err := openTree(s.path(layersDir))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Syncfs(dir.fd); err != nil {
		return fmt.Errorf("sync layers: %w", err)
	}
	s.cfg.step("synced")
	for k, from := range staged {
		to := s.path(layersDir, k)
		err := os.Rename(from, to)
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			err = errors.Join(s.putAway(filepath.Join(layersDir, k)), os.Rename(from, to))
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		if l := s.layers[k]; l != nil {
			l.dir = to
		}
		s.mu.Unlock()
	}
	if err := unix.Fsync(dir.fd); err != nil {
		return fmt.Errorf("sync directory of layers: %w", err)
	}
	s.cfg.step("renamed")
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range staged {
		if l := s.layers[k]; l != nil {
			l.committed = true
		}
	}
	return nil
}
