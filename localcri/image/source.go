//go:build linux

package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
)

// source provides an image. Its methods may be called concurrently, once for each layer.
type source interface {
	// manifest returns a manifest or an index, by tag or digest, with at most maxManifest bytes,
	// and its media type if known.
	manifest(ctx context.Context, ref string) (b []byte, mediaType string, err error)
	// config returns a blob of at most maxConfig bytes.
	config(ctx context.Context, d descriptor) ([]byte, error)
	// blob opens a blob. Its bytes are not verified.
	blob(ctx context.Context, d descriptor) (blob, error)
	// distrust tells the source that a blob has wrong content. It returns true if another place
	// may have the right content.
	distrust(d descriptor) bool
}

// blob is the content of a blob. Only one goroutine reads it.
type blob interface {
	io.Reader
	// wait waits until Read can return without waiting for the network.
	wait(ctx context.Context) error
	// close ends the use of the blob. keep means that a downloaded file is kept for another pull.
	close(keep bool)
}

// verified reads a blob, and compares its size and digest at its end. Until Read has returned
// io.EOF, the bytes are not verified: a caller that uses them before must be able to discard the
// result.
type verified struct {
	r    io.Reader
	want descriptor
	sum  hash.Hash
	n    int64
	// err is the result of all calls of Read after the first error. A blob with wrong content is
	// never read again.
	err error
}

// newVerified returns a reader of r. If r does not have the size and digest in d,
// Read fails with errWrongBytes.
func newVerified(r io.Reader, d descriptor) *verified {
	return &verified{r: r, want: d, sum: sha256.New()}
}

// Read implements io.Reader. It returns an error of r unchanged, since a broken connection
// does not mean that the content is wrong.
func (v *verified) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n, err := v.r.Read(p)
	v.n += int64(n)
	v.sum.Write(p[:n])
	switch {
	// As soon as it is known: the stream could be endless.
	case v.n > v.want.Size:
		err = fmt.Errorf("%w: blob %s has more than its %d bytes", errWrongBytes, v.want.Digest, v.want.Size)
	case errors.Is(err, io.EOF):
		if got := digest(fmt.Sprintf("%s%x", digestPrefix, v.sum.Sum(nil))); got != v.want.Digest || v.n != v.want.Size {
			err = fmt.Errorf("%w: blob has %d bytes and digest %s; want %d and %s", errWrongDigest, v.n, got, v.want.Size, v.want.Digest)
		}
	}
	v.err = err
	return n, err
}

// checkBytes compares a small document with its digest.
func checkBytes(b []byte, expected digest) error {
	if got := digestOf(b); got != expected {
		return fmt.Errorf("%w: digest is %s; want %s", errWrongBytes, got, expected)
	}
	return nil
}

// slotted reads a blob while it holds one of the slots for unpacking. It releases the slot while
// it waits for the network: slots limit the use of CPU and disk, and a layer from a slow server
// must not prevent that other layers are unpacked.
type slotted struct {
	ctx   context.Context
	b     blob
	slots chan struct{}
	held  bool
}

// readier is a blob that reports whether the next read returns without waiting.
type readier interface{ ready() bool }

// Read implements io.Reader. If the blob is not a readier, every read is assumed to wait.
func (s *slotted) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, context.Cause(s.ctx)
	}
	// In the usual case, with bytes available and the slot held, no channel is used.
	w, ok := s.b.(readier)
	ready := ok && w.ready()
	if !ready || !s.held {
		if err := s.await(ready); err != nil {
			return 0, err
		}
	}
	return s.b.Read(p)
}

// await waits until bytes can be read, and then for a slot. ready means that bytes can be read
// already.
func (s *slotted) await(ready bool) error {
	if !ready {
		// The slot is released before the wait, and requested again afterwards, behind other
		// requests.
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

// release releases the slot if it is held.
func (s *slotted) release() {
	if s.held {
		<-s.slots
		s.held = false
	}
}
