package kubeapitest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
)

// errUnreachable is the error of a server that does not exist.
var errUnreachable = errors.New("dial kubeapitest: connection refused")

// transport calls the server in this process.
type transport struct{ s *Server }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil {
		req.Body = io.NopCloser(bytes.NewReader(nil))
	}
	if t.s.prompt(req) {
		return t.now(req)
	}
	r, w := io.Pipe()
	answer := &writer{header: http.Header{}, body: w, begun: make(chan struct{})}
	go func() {
		defer func() {
			if p := recover(); p != nil {
				answer.refused = true
			}
			answer.begin(http.StatusOK)
			_ = w.Close()
			_ = req.Body.Close()
		}()
		t.s.ServeHTTP(answer, req)
	}()
	select {
	case <-req.Context().Done():
		_ = r.CloseWithError(req.Context().Err())
		return nil, req.Context().Err()
	case <-answer.begun:
	}
	if answer.refused {
		return nil, errUnreachable
	}
	stop := make(chan struct{})
	go func() { // reading the body fails after the call has ended
		select {
		case <-req.Context().Done():
			_ = r.CloseWithError(req.Context().Err())
		case <-stop:
		}
	}()
	return &http.Response{
		Status: http.StatusText(answer.code), StatusCode: answer.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: answer.header, Body: &body{PipeReader: r, stop: stop}, ContentLength: -1, Request: req,
	}, nil
}

// prompt reports whether the server answers a call at once, so that the call needs no goroutine
// of its own. Watches, handlers of creations, and all calls during a fault may block.
func (s *Server) prompt(req *http.Request) bool {
	if req.Method == http.MethodPost || req.URL.Query().Has("watch") {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.hang && len(s.faults) == 0
}

// now answers a request in the caller's goroutine.
func (t transport) now(req *http.Request) (_ *http.Response, err error) {
	if err := req.Context().Err(); err != nil {
		_ = req.Body.Close()
		return nil, err
	}
	answer := &recorder{header: http.Header{}}
	defer func() {
		if p := recover(); p != nil {
			err = errUnreachable
		}
		_ = req.Body.Close()
	}()
	t.s.ServeHTTP(answer, req)
	answer.WriteHeader(http.StatusOK)
	return &http.Response{
		Status: http.StatusText(answer.code), StatusCode: answer.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: answer.header, Body: io.NopCloser(&answer.body), ContentLength: -1, Request: req,
	}, nil
}

// recorder stores an answer.
type recorder struct {
	header http.Header
	code   int // 0: not yet
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// body ends its watch when it is closed.
type body struct {
	*io.PipeReader
	once sync.Once
	stop chan struct{}
}

func (b *body) Close() error {
	b.once.Do(func() { close(b.stop) })
	return b.PipeReader.Close()
}

// writer writes an answer to a pipe.
type writer struct {
	header  http.Header
	code    int
	body    *io.PipeWriter
	once    sync.Once
	begun   chan struct{}
	refused bool
}

func (w *writer) begin(code int) { w.once.Do(func() { w.code = code; close(w.begun) }) }

func (w *writer) Header() http.Header  { return w.header }
func (w *writer) WriteHeader(code int) { w.begin(code) }

func (w *writer) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.body.Write(b)
}

// Flush implements http.Flusher: nothing is buffered.
func (w *writer) Flush() {}
