// Package slowfile reads files of file systems that may hang, such as a network file
// system whose server is dead. Each call has a time limit. For each key at most one
// goroutine waits for a hanging call, for any number of readers.
package slowfile

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/nodewright/nodewright/internal/detached"
)

// System is one reader's access to a file system.
type System struct {
	Context context.Context //nolint:containedctx // methods of io.Reader have no context
	Calls   *detached.Queue // shared by all readers
	Key     string          // a path; calls with the same key run one after the other
	Answer  time.Duration   // time limit of each call
}

// Call calls f and returns its result. If f takes longer than s.Answer, or if s.Context
// ends, Call returns an error while f may continue. Therefore f and the caller must not
// share data that one of them changes.
func Call[T any](s *System, f func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(s.Context, s.Answer, fmt.Errorf("%s: the file system did not answer within %v", s.Key, s.Answer))
	defer cancel()
	return detached.Next(ctx, s.Calls, s.Key, f)
}

// Open calls open and returns the opened file. If open returns only after the time limit, Open
// returns an error, and the file is closed.
func (s *System) Open(open func() (*os.File, error)) (*File, error) {
	type opened struct {
		f    *os.File
		info fs.FileInfo
	}
	var hand handover
	o, err := Call(s, func() (opened, error) {
		f, err := open()
		if err != nil {
			return opened{}, err
		}
		info, err := f.Stat()
		if err != nil {
			_ = f.Close()
			return opened{}, err
		}
		return opened{f, info}, hand.give(f)
	})
	if err != nil {
		hand.leave()
		return nil, err
	}
	return &File{system: s, f: o.f, info: o.info}, nil
}

// handover closes a file if open returns it only after the reader has stopped waiting.
type handover struct {
	mu   sync.Mutex
	gone bool
	f    *os.File
}

func (h *handover) give(f *os.File) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return f.Close()
	}
	h.f = f
	return nil
}

func (h *handover) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = true
	if h.f != nil {
		_ = h.f.Close()
	}
}

// File is an open file. It is for one goroutine at a time.
type File struct {
	system *System
	f      *os.File
	info   fs.FileInfo
}

// Info returns the file information at the time of Open.
func (f *File) Info() fs.FileInfo { return f.info }

// Read implements io.Reader.
func (f *File) Read(p []byte) (int, error) {
	b, err := f.fetch(len(p), f.f.Read)
	return copy(p, b), err
}

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, at int64) (int, error) {
	b, err := f.fetch(len(p), func(p []byte) (int, error) { return f.f.ReadAt(p, at) })
	return copy(p, b), err
}

// fetch calls read with a new buffer of n bytes, and returns the data. It does not use the
// caller's buffer, which must not change after a timeout.
func (f *File) fetch(n int, read func([]byte) (int, error)) ([]byte, error) {
	type result struct {
		b   []byte
		err error
	}
	r, err := Call(f.system, func() (result, error) {
		b := make([]byte, n)
		n, err := read(b)
		return result{b[:n], err}, nil
	})
	if err != nil {
		return nil, err
	}
	return r.b, r.err
}

// Seek implements io.Seeker.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	return Call(f.system, func() (int64, error) { return f.f.Seek(offset, whence) })
}

// Close closes the file in the background and returns nil at once, since close may hang,
// too.
func (f *File) Close() error {
	go func() { _ = f.f.Close() }()
	return nil
}
