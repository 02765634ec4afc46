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

// download is a blob that comes over the network: into a file, of which it is
// read while it grows.
type download struct {
	file *os.File
	path string
	want descriptor
	// leave lets the next one have the file; cancel stops run, and ended is closed once
	// run has returned.
	leave  func()
	cancel context.CancelFunc
	ended  chan struct{}

	// mu guards the three fields below. The goroutine of run writes them; the reader of
	// the blob waits for changes of them.
	mu      sync.Mutex
	written int64
	err     error         // io.EOF when all is there
	more    chan struct{} // closed when written or err change

	// read is how far the reader is, which only the reader touches.
	read int64
}

// blob begins to download a blob, or goes on with what an earlier download has
// left. Nobody else downloads it meanwhile.
func (r *registry) blob(ctx context.Context, d descriptor) (blob, error) {
	s := r.store
	// Before the first byte: the manifest says how large the blob is.
	if d.Size > s.cfg.MaxLayerBytes {
		return nil, fmt.Errorf("%w: blob has %d bytes; want at most %d", errLimit, d.Size, s.cfg.MaxLayerBytes)
	}
	name := "blob-" + d.Digest.hex()
	// Two layers may have the same blob: the second waits, and then finds it on the
	// disk, or what the first has left of it.
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
	// Complete from an earlier try. Its digest is compared while it is read, like that
	// of any other: a wrong one has the file removed.
	if size == d.Size && size > 0 {
		dl.err = io.EOF
		close(dl.ended)
		return dl, nil
	}
	// The download runs beside the reader, so that unpacking begins with the first
	// bytes.
	go func() {
		defer close(dl.ended)
		// PullJobs bounds the downloads of one pull; the time in line is not observed.
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

// openPartial opens what there is of a blob. most is the size of the blob in bytes. It
// returns the file, made if it was missing, and its size.
func (s *Store) openPartial(name string, most int64) (*os.File, int64, error) {
	fd, err := unix.Open(s.path(ingestDir, name), unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, 0, err
	}
	f := os.NewFile(uintptr(fd), s.path(ingestDir, name))
	info, err := f.Stat()
	size := int64(0)
	if err == nil {
		size = info.Size()
		// Longer than the blob: left by something else under that name. It begins
		// again.
		if size > most {
			size, err = 0, f.Truncate(0)
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	s.mu.Lock()
	// The hour of keepPartial counts from the last use.
	s.partial[name] = time.Now()
	s.mu.Unlock()
	return f, size, nil
}

// grow notes that there are n more bytes, or that it is over. An error of nil with
// no bytes means that all is there.
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
	// Everybody who waits wakes up, and looks at the state under the lock.
	close(d.more)
	d.more = make(chan struct{})
}

// state returns how many bytes are in the file, the channel that is closed at the next
// change, and how the download ended, nil while it runs.
func (d *download) state() (written int64, more chan struct{}, end error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.written, d.more, d.err
}

// run downloads from one endpoint after the other.
func (d *download) run(ctx context.Context, r *registry) error {
	return r.each(ctx, r.trusted(d.want.Digest), func(e *endpoint, last bool) error {
		// Each endpoint has its own patience: tries without progress, reset by every
		// byte.
		back := backoff()
		for tries := 0; ; {
			before, _, _ := d.state()
			err := d.from(ctx, r, e)
			// Another try at the same endpoint would not help: the bytes are wrong, or
			// the disk is the matter.
			if err == nil || ctx.Err() != nil || errors.Is(err, errWrongBytes) || errors.Is(err, errFull) || isErrno(err) {
				return err
			}
			// A connection that breaks every few minutes still gets a large layer down.
			if now, _, _ := d.state(); now > before {
				tries = 0
				back.Reset()
			}
			if tries++; tries == maxTries || tries == 1 && !last { // the next one may answer
				return err
			}
			// Answers with a status are persist's to wait for, with the server's
			// Retry-After.
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

// from downloads what is missing from one endpoint. The digest is not looked at here
// but where the blob is read.
func (d *download) from(ctx context.Context, r *registry, e *endpoint) error {
	at, _, _ := d.state()
	if at == d.want.Size && at > 0 {
		return nil
	}
	// The mark in the context takes the bound of small answers off.
	ctx, w := newWatch(context.WithValue(ctx, blobKey{}, true), r.store.cfg.ProgressTimeout)
	defer w.stop()
	header := http.Header{}
	// Range requests are RFC 9110, section 14; the OCI distribution specification
	// leaves them to the registry.
	if at > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", at))
	}
	resp, err := e.get(ctx, w, "blobs", string(d.want.Digest), header)
	var st *statusError
	// A server that does not have so many bytes, or knows no such ranges: all of it
	// then, of which copy leaves out the beginning.
	if at > 0 && errors.As(err, &st) && st.code == http.StatusRequestedRangeNotSatisfiable {
		resp, err = e.get(ctx, w, "blobs", string(d.want.Digest), nil)
	}
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	skip := at
	if resp.StatusCode == http.StatusPartialContent {
		// A proxy that answers with another range would shift the file's content.
		if first, total := contentRange(resp.Header.Get("Content-Range")); first != at || total != d.want.Size {
			return fmt.Errorf("%w: %s answers with bytes %d- of %d; want %d- of %d", errUnavailable, e.repo.RegistryStr(), first, total, at, d.want.Size)
		}
		skip = 0
	} else if resp.ContentLength >= 0 && resp.ContentLength != d.want.Size {
		// Known to be wrong before a byte is written; -1 would be an unknown length.
		return fmt.Errorf("%w: %s has %d bytes; want %d", errWrongBytes, e.repo.RegistryStr(), resp.ContentLength, d.want.Size)
	}
	return d.copy(ctx, r.store, e, w, resp.Body, skip)
}

// copy appends a body to the file. A server that knows no ranges sends again what
// is there: that is read and left out, since readers have it already.
func (d *download) copy(ctx context.Context, s *Store, e *endpoint, w *watch, body io.Reader, skip int64) error {
	buf := make([]byte, 64<<10)
	// So large that the space is looked at before the first write.
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
		// More bytes than the manifest says would fill the disk before the digest is
		// known.
		if int64(len(b)) > d.want.Size-at {
			return fmt.Errorf("%w: %s sends more than %d bytes", errWrongBytes, e.repo.RegistryStr(), d.want.Size)
		}
		if len(b) > 0 {
			// statfs at each 64 KiB would cost more than the write.
			if sinceSpace >= 16<<20 {
				sinceSpace = 0
				if serr := s.space(); serr != nil {
					return serr
				}
			}
			sinceSpace += int64(len(b))
			// Written before it is announced: readers never see a hole.
			if _, werr := d.file.WriteAt(b, at); werr != nil {
				return werr
			}
			s.counters.downloaded.Add(uint64(len(b)))
			d.grow(int64(len(b)), nil)
		}
		switch {
		case errors.Is(err, io.EOF):
			// A connection that was closed early is no damage: the next try goes on
			// from here.
			if at, _, _ := d.state(); at != d.want.Size {
				return fmt.Errorf("%w: %s sends %d bytes; want %d", errUnavailable, e.repo.RegistryStr(), at, d.want.Size)
			}
			return nil
		case err != nil:
			return e.explain(ctx, err)
		}
	}
}

// contentRange reads "bytes 5-9/10"; -1 is what it does not say.
func contentRange(v string) (first, total int64) {
	// RFC 9110, section 14.4. A total of "*", unknown, is -1 as well.
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

// ready reports whether Read returns at once: there are bytes, or the download is over.
func (d *download) ready() bool {
	written, _, err := d.state()
	return d.read < written || err != nil
}

// wait implements blob.
func (d *download) wait(ctx context.Context) error {
	for {
		// The channel is taken before the state is looked at, so that no change is
		// missed.
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

// Read implements io.Reader. It does not wait: with nothing new, before the end, it
// returns 0 bytes and no error. Callers wait first.
func (d *download) Read(p []byte) (int, error) {
	written, _, err := d.state()
	// io.EOF, or why the download failed: bytes that came before that are read first.
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
	// Removed before the lane is left: the next one must not open a file that then
	// goes.
	if done {
		_ = os.Remove(d.path)
	}
	_ = d.file.Close()
	d.leave()
}
