//go:build linux

package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"
)

// source is where an image comes from. Its methods may be called by several goroutines
// at once, one for each layer.
type source interface {
	// manifest returns a manifest or an index, by a tag or a digest, at most
	// maxManifest bytes of it, and its media type if that is known.
	manifest(ctx context.Context, ref string) (b []byte, mediaType string, err error)
	// config returns a blob of at most maxConfig bytes.
	config(ctx context.Context, d descriptor) ([]byte, error)
	// blob opens a blob. Its bytes are not verified.
	blob(ctx context.Context, d descriptor) (blob, error)
	// distrust is told that a blob has not the bytes that it should have. It
	// reports whether they may be had elsewhere.
	distrust(d descriptor) bool
}

// blob is read by one goroutine.
type blob interface {
	io.Reader
	// wait returns when Read does not wait for the network any more.
	wait(ctx context.Context) error
	// close ends reading. What was downloaded is of no more use if done is set.
	close(done bool)
}

// verified reads a blob and compares its size and digest at its end. Until Read has
// returned io.EOF nothing is known of the bytes: whoever uses them earlier must be able
// to throw the result away.
type verified struct {
	r    io.Reader
	want descriptor
	sum  hash.Hash
	n    int64
	// err is returned again: a blob that was wrong once never becomes right.
	err error
}

// newVerified returns a reader of r that ends with errWrongBytes if r is not the blob
// want.
func newVerified(r io.Reader, want descriptor) *verified {
	return &verified{r: r, want: want, sum: sha256.New()}
}

// Read implements io.Reader. An error of r itself is passed on: a connection that
// breaks is not damage.
func (v *verified) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n, err := v.r.Read(p)
	v.n += int64(n)
	v.sum.Write(p[:n])
	switch {
	// As soon as it is known, and not after an endless stream.
	case v.n > v.want.Size:
		err = fmt.Errorf("%w: blob %s has more than its %d bytes", errWrongBytes, v.want.Digest, v.want.Size)
	case errors.Is(err, io.EOF):
		if got := digest(fmt.Sprintf("%s%x", digestPrefix, v.sum.Sum(nil))); got != v.want.Digest || v.n != v.want.Size {
			err = fmt.Errorf("%w: blob has %d bytes and digest %s; want %d and %s", errWrongBytes, v.n, got, v.want.Size, v.want.Digest)
		}
	}
	v.err = err
	return n, err
}

// checkBytes compares a small document with its descriptor.
func checkBytes(b []byte, want digest) error {
	if got := digestOf(b); got != want {
		return fmt.Errorf("%w: digest is %s; want %s", errWrongBytes, got, want)
	}
	return nil
}

// slotted reads a blob with one of the slots for unpacking, and gives it back
// while it waits for the network. Slots are for the CPU and the disk: a layer that
// waits for a slow server must not keep others from being unpacked.
type slotted struct {
	ctx   context.Context
	b     blob
	slots chan struct{}
	held  bool
	// waited is the time that was spent in waiting for bytes and for a slot.
	waited time.Duration
}

// readier is a blob that can report whether the next read returns without waiting.
type readier interface{ ready() bool }

// Read implements io.Reader. A blob that does not implement readier is read as if every read
// may wait.
func (s *slotted) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, context.Cause(s.ctx)
	}
	// The usual case, bytes that are there and a slot that is held, costs no channel.
	w, ok := s.b.(readier)
	ready := ok && w.ready()
	if !ready || !s.held {
		if err := s.await(ready); err != nil {
			return 0, err
		}
	}
	return s.b.Read(p)
}

// await waits for bytes, unless they are ready, and for a slot.
func (s *slotted) await(ready bool) error {
	begin := time.Now()
	defer func() { s.waited += time.Since(begin) }()
	if !ready {
		// The slot is given back before the wait, and asked for again after it, behind
		// others.
		s.release()
		if err := s.b.wait(s.ctx); err != nil {
			return err
		}
	}
	if !s.held {
		if err := take(s.ctx, s.slots); err != nil {
			return err
		}
		s.held = true
	}
	return nil
}

// release gives the slot back, if it is held. It may be called again.
func (s *slotted) release() {
	if s.held {
		<-s.slots
		s.held = false
	}
}
