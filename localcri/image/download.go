//go:build linux

package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
)

// download downloads a blob into a file, which can be read while it grows.
type download struct {
	store *Store
	file  *os.File
	want  descriptor
	// resumed means that the file had bytes before this download. pieced means that the content is
	// not that of one response. Once ended is closed, both do not change.
	resumed, pieced bool
	// leave lets the next download of the same blob begin. cancel stops run. ended is closed when
	// run has returned.
	leave  func()
	cancel context.CancelFunc
	ended  chan struct{}

	// mu guards the three fields below. The goroutine of run changes them, and the reader of the
	// blob waits for changes.
	mu      sync.Mutex
	written int64
	err     error         // io.EOF when complete
	more    chan struct{} // closed when written or err change

	// read is the reader's offset; only the reader uses it.
	read int64
}

// blob begins the download of a blob, or continues one that was interrupted. It waits until no
// other download of the same blob is running.
func (r *registry) blob(ctx context.Context, d descriptor) (blob, error) {
	s := r.store
	// Checked before the first byte: the manifest has the size of the blob.
	if d.Size > s.cfg.MaxLayerBytes {
		return nil, fmt.Errorf("%w: blob has %d bytes; want at most %d", errLimit, d.Size, s.cfg.MaxLayerBytes)
	}
	name := blobPrefix + d.Digest.hex()
	// Two layers may have the same blob: the second waits, and then finds it on the disk,
	// complete or in part.
	leave, err := s.enter(ctx, name)
	if err != nil {
		return nil, err
	}
	f, size, err := s.openPartial(name, d.Size)
	if err != nil {
		leave()
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	dl := &download{
		store: s, file: f, want: d, resumed: size > 0, pieced: size > 0,
		leave: leave, cancel: cancel, ended: make(chan struct{}), written: size, more: make(chan struct{}),
	}
	// The file is complete from an earlier try. Its digest is compared at reading, like that of
	// any other: a wrong file is removed.
	if size == d.Size && size > 0 {
		dl.err = io.EOF
		close(dl.ended)
		return dl, nil
	}
	// The download runs concurrently with the reader, so that unpacking begins with the first
	// bytes.
	go func() {
		defer close(dl.ended)
		// pullJobs limits the downloads of one pull.
		err := take(ctx, r.slots)
		if err == nil {
			err = dl.run(ctx, r)
			<-r.slots
		}
		dl.grow(0, err)
	}()
	return dl, nil
}

// grow tells the reader about n more bytes in the file. If n is 0, err is the end of the
// download: io.EOF if the blob is complete.
func (d *download) grow(n int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.written += n
	if n == 0 {
		d.err = err
		if err == nil {
			d.err = io.EOF
		}
	}
	// All waiters wake up, and read the state under the lock.
	close(d.more)
	d.more = make(chan struct{})
}

// state returns the number of bytes in the file and the error that ended the download. end is nil
// while the download runs. The channel more is closed at the next change of either.
func (d *download) state() (written int64, more chan struct{}, end error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.written, d.more, d.err
}

// received returns the number of bytes in the file.
func (d *download) received() int64 {
	written, _, _ := d.state()
	return written
}

// complete reports whether the file has as many bytes as the blob.
func (d *download) complete() bool { return d.received() == d.want.Size }

// run downloads from one endpoint after the other.
func (d *download) run(ctx context.Context, r *registry) error {
	return r.each(ctx, r.trusted(d.want.Digest), d.received, func(e *endpoint) error { return d.from(ctx, e) })
}

// from downloads the missing bytes from one endpoint. It does not compare the digest; the
// reader of the blob does.
func (d *download) from(ctx context.Context, e *endpoint) error {
	at := d.received()
	if d.complete() && at > 0 {
		return nil
	}
	d.pieced = d.pieced || at > 0
	// The mark in the context removes the size limit of small answers.
	ctx, w := newWatch(context.WithValue(ctx, blobKey{}, true), progressTimeout)
	defer w.stop()
	header := http.Header{}
	// Range requests are RFC 9110, section 14; the OCI distribution specification
	// leaves them to the registry.
	if at > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", at))
	}
	resp, err := e.get(ctx, w, "blobs", string(d.want.Digest), header)
	var st *statusError
	rejected := errors.As(err, &st) && st.code == http.StatusRequestedRangeNotSatisfiable
	if err == nil && d.checkRange(resp, at, e) != nil {
		_ = resp.Body.Close()
		rejected = true
	}
	// Request everything, and let copy skip the beginning.
	if rejected {
		resp, err = e.get(ctx, w, "blobs", string(d.want.Digest), nil)
	}
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := d.checkRange(resp, at, e); err != nil {
		return err
	}
	skip := at
	if resp.StatusCode == http.StatusPartialContent {
		skip = 0
	} else if resp.ContentLength >= 0 && resp.ContentLength != d.want.Size {
		// Detected before a byte is written; -1 would be an unknown length.
		return fmt.Errorf("%w: %s has %d bytes; want %d", errWrongLength, e.repo.RegistryStr(), resp.ContentLength, d.want.Size)
	}
	return d.copy(ctx, e, w, resp.Body, skip)
}

// checkRange returns an error if a response has another part of the blob than that from at on. It
// would corrupt the file.
func (d *download) checkRange(resp *http.Response, at int64, e *endpoint) error {
	if resp.StatusCode != http.StatusPartialContent {
		return nil
	}
	if first, total := contentRange(resp.Header.Get("Content-Range")); first != at || total != d.want.Size {
		return fmt.Errorf("%w: %s answers with bytes %d- of %d; want %d- of %d", errUnavailable, e.repo.RegistryStr(), first, total, at, d.want.Size)
	}
	return nil
}

// copyBuffer is the size of a read from the network, in bytes.
const copyBuffer = 64 << 10

// copy appends a response body to the file. A server without range support sends the existing
// bytes again. copy skips these (skip is their number), since they are in the file already.
func (d *download) copy(ctx context.Context, e *endpoint, w *watch, body io.Reader, skip int64) error {
	s, buf := d.store, make([]byte, copyBuffer)
	// So large that the free space is checked before the first write.
	sinceSpace := int64(1 << 62)
	for {
		n, err := body.Read(buf)
		b := buf[:n]
		cut := min(int64(len(b)), skip)
		skip -= cut
		b = b[cut:]
		at := d.received()
		// More bytes than in the manifest would fill the disk before the digest is known.
		if int64(len(b)) > d.want.Size-at {
			return fmt.Errorf("%w: %s sends more than %d bytes", errWrongLength, e.repo.RegistryStr(), d.want.Size)
		}
		if len(b) > 0 {
			// statfs for every 64 KiB would cost more than the write.
			if sinceSpace >= 16<<20 {
				sinceSpace = 0
				if serr := s.space(); serr != nil {
					return serr
				}
			}
			sinceSpace += int64(len(b))
			// Written before it is reported, so that readers never see a hole.
			if _, werr := d.file.WriteAt(b, at); werr != nil {
				return werr
			}
			d.grow(int64(len(b)), nil)
		}
		// Skipped bytes are progress, too: the server is alive.
		if n > 0 {
			s.slowDown(ctx, w, n)
		}
		switch {
		case errors.Is(err, io.EOF):
			// A connection that was closed early does no damage: the next try continues from
			// here.
			if at := d.received(); at != d.want.Size {
				return fmt.Errorf("%w: %s sends %d bytes; want %d", errUnavailable, e.repo.RegistryStr(), at, d.want.Size)
			}
			return nil
		case err != nil:
			return e.explain(ctx, err)
		}
	}
}

// slowDown waits after n received bytes until the bandwidth limit allows more, or ctx ends. While this
// side does not read, the kernel's flow control slows down the server.
func (s *Store) slowDown(ctx context.Context, w *watch, n int) {
	w.pause()
	_ = s.bandwidth.WaitN(ctx, n) // the next read fails with ctx
	w.seen()
}

// contentRange parses a Content-Range header such as "bytes 5-9/10". A number that is missing is
// -1.
func contentRange(v string) (first, total int64) {
	// RFC 9110, section 14.4. An unknown total ("*") is -1, too.
	v, ok := strings.CutPrefix(v, "bytes ")
	span, all, ok2 := strings.Cut(v, "/")
	begin, _, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return -1, -1
	}
	first, err := strconv.ParseInt(begin, 10, 64)
	if err != nil || first < 0 {
		return -1, -1
	}
	total, err = strconv.ParseInt(all, 10, 64)
	if err != nil || total < 0 {
		return -1, -1
	}
	return first, total
}

// ready reports whether Read returns at once, because there are unread bytes or the download has
// ended.
func (d *download) ready() bool {
	written, _, err := d.state()
	return d.read < written || err != nil
}

// wait implements blob.
func (d *download) wait(ctx context.Context) error {
	for {
		// The channel is taken before the state is checked, so that no change is missed.
		_, more, _ := d.state()
		if d.ready() {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Read implements io.Reader. It does not wait: if there are no new bytes yet, it returns 0 and no
// error. Callers call wait first.
func (d *download) Read(p []byte) (int, error) {
	written, _, err := d.state()
	// io.EOF, or the error of the download: bytes received before it are read first.
	if d.read == written {
		return 0, err
	}
	if int64(len(p)) > written-d.read {
		p = p[:written-d.read]
	}
	n, rerr := d.file.ReadAt(p, d.read)
	d.read += int64(n)
	return n, rerr
}

// close implements blob. It waits for the goroutine of run.
func (d *download) close(keep bool) {
	d.cancel()
	<-d.ended
	// Before the next download may start: it must not open a file that is then deleted.
	d.store.closePartial(d.file, d.received(), keep)
	d.leave()
}
