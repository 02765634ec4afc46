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
	"time"

	"golang.org/x/sys/unix"
)

// download downloads a blob into a file, which can be read while it grows.
type download struct {
	file *os.File
	path string
	want descriptor
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
	name := "blob-" + d.Digest.hex()
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
	dl := &download{file: f, path: f.Name(), want: d, leave: leave, cancel: cancel, ended: make(chan struct{}), written: size, more: make(chan struct{})}
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
		// PullJobs limits the downloads of one pull; the wait for it does not count as time of
		// the download.
		err := take(ctx, r.slots)
		if err == nil {
			begin := time.Now()
			err = dl.run(ctx, r)
			<-r.slots
			s.observe(OpDownload, begin, 0, err)
		}
		dl.grow(0, err)
	}()
	return dl, nil
}

// openPartial opens the file of a blob and returns it with the number of bytes that it has
// already. It creates the file if it is missing. If the file has more than blobSize bytes, it is
// not a part of the blob, and is emptied.
func (s *Store) openPartial(name string, blobSize int64) (*os.File, int64, error) {
	fd, err := unix.Open(s.path(ingestDir, name), unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, 0, err
	}
	f := os.NewFile(uintptr(fd), s.path(ingestDir, name))
	info, err := f.Stat()
	size := int64(0)
	if err == nil {
		size = info.Size()
		// Longer than the blob: a remainder of something else with that name. The download begins
		// again.
		if size > blobSize {
			size, err = 0, f.Truncate(0)
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	s.mu.Lock()
	// keepPartial is counted from the last use.
	s.partial[name] = time.Now()
	s.mu.Unlock()
	return f, size, nil
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

// run downloads from one endpoint after the other.
func (d *download) run(ctx context.Context, r *registry) error {
	return r.each(ctx, r.trusted(d.want.Digest), func(e *endpoint, last bool) error {
		// Each endpoint has its own number of tries without progress; every byte resets it.
		back := backoff()
		for tries := 0; ; {
			before, _, _ := d.state()
			err := d.from(ctx, r, e)
			// Another try at the same endpoint would not help: the bytes are wrong, or the disk
			// has failed.
			if err == nil || ctx.Err() != nil || errors.Is(err, errWrongBytes) || errors.Is(err, errFull) || isErrno(err) {
				return err
			}
			// So a large layer can be downloaded even if the connection breaks every few minutes.
			if now, _, _ := d.state(); now > before {
				tries = 0
				back.Reset()
			}
			if tries++; tries == maxTries || tries == 1 && !last { // the next one may answer
				return err
			}
			// persist handles answers with a status, and waits as long as the server's
			// Retry-After says.
			var st *statusError
			if errors.As(err, &st) {
				return err // each decides
			}
			if perr := pause(ctx, err, back); perr != nil {
				return perr
			}
		}
	})
}

// from downloads the missing bytes from one endpoint. It does not compare the digest; the
// reader of the blob does.
func (d *download) from(ctx context.Context, r *registry, e *endpoint) error {
	at, _, _ := d.state()
	if at == d.want.Size && at > 0 {
		return nil
	}
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
	// The server does not support the range: request everything, and let copy skip the beginning.
	if at > 0 && errors.As(err, &st) && st.code == http.StatusRequestedRangeNotSatisfiable {
		resp, err = e.get(ctx, w, "blobs", string(d.want.Digest), nil)
	}
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	skip := at
	if resp.StatusCode == http.StatusPartialContent {
		// A proxy that answers with another range would corrupt the file.
		if first, total := contentRange(resp.Header.Get("Content-Range")); first != at || total != d.want.Size {
			return fmt.Errorf("%w: %s answers with bytes %d- of %d; want %d- of %d", errUnavailable, e.repo.RegistryStr(), first, total, at, d.want.Size)
		}
		skip = 0
	} else if resp.ContentLength >= 0 && resp.ContentLength != d.want.Size {
		// Detected before a byte is written; -1 would be an unknown length.
		return fmt.Errorf("%w: %s has %d bytes; want %d", errWrongBytes, e.repo.RegistryStr(), resp.ContentLength, d.want.Size)
	}
	return d.copy(ctx, r.store, e, w, resp.Body, skip)
}

// copy appends a response body to the file. A server without range support sends the existing
// bytes again. copy skips these (skip is their number), since they are in the file already.
func (d *download) copy(ctx context.Context, s *Store, e *endpoint, w *watch, body io.Reader, skip int64) error {
	buf := make([]byte, 64<<10)
	// So large that the free space is checked before the first write.
	sinceSpace := int64(1 << 62)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			// Skipped bytes are progress, too: the server is alive.
			w.seen()
		}
		b := buf[:n]
		cut := min(int64(len(b)), skip)
		skip -= cut
		b = b[cut:]
		at, _, _ := d.state()
		// More bytes than in the manifest would fill the disk before the digest is known.
		if int64(len(b)) > d.want.Size-at {
			return fmt.Errorf("%w: %s sends more than %d bytes", errWrongBytes, e.repo.RegistryStr(), d.want.Size)
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
			s.counters.downloaded.Add(uint64(len(b)))
			d.grow(int64(len(b)), nil)
		}
		switch {
		case errors.Is(err, io.EOF):
			// A connection that was closed early does no damage: the next try continues from
			// here.
			if at, _, _ := d.state(); at != d.want.Size {
				return fmt.Errorf("%w: %s sends %d bytes; want %d", errUnavailable, e.repo.RegistryStr(), at, d.want.Size)
			}
			return nil
		case err != nil:
			return e.explain(ctx, err)
		}
	}
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
func (d *download) close(done bool) {
	d.cancel()
	<-d.ended
	// Removed before the next download may start: it must not open a file that is then deleted.
	if done {
		_ = os.Remove(d.path)
	}
	_ = d.file.Close()
	d.leave()
}
