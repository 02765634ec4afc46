//go:build linux

package localcri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

const (
	// headerTimeout limits how long a client may take to send a request, and idleTime how long a
	// stream may be idle, as in containerd and CRI-O.
	headerTimeout = 30 * time.Second
	idleTime      = 4 * time.Hour
	// maxHeader limits the bytes of a request's headers.
	maxHeader = 64 << 10
)

// streamServer serves streams over HTTP.
type streamServer struct {
	urls     streaming.Server
	http     *http.Server
	listener net.Listener
	cancel   context.CancelFunc
}

// newStreamServer serves streams on the listener l, which it closes at the end. Streams end with
// ctx. Over TCP, URLs are http://ADDRESS/METHOD/TOKEN; over a unix socket,
// unix://SOCKET/METHOD/TOKEN.
func newStreamServer(ctx context.Context, l net.Listener, streams Streams, log *zap.Logger) (*streamServer, error) {
	ctx, cancel := context.WithCancel(ctx)
	conf := streaming.DefaultConfig
	conf.Addr, conf.StreamIdleTimeout = l.Addr().String(), idleTime
	if l.Addr().Network() == "unix" {
		conf.BaseURL = &url.URL{Scheme: "unix", Path: l.Addr().String() + "/"}
	}
	urls, err := streaming.NewServer(conf, &serverStreams{to: streams, log: log})
	if err != nil {
		cancel()
		_ = l.Close()
		return nil, err
	}
	return &streamServer{
		urls: urls, listener: &heldListener{l}, cancel: cancel,
		http: &http.Server{
			Handler: urls, ReadHeaderTimeout: headerTimeout, IdleTimeout: headerTimeout, MaxHeaderBytes: maxHeader,
			ErrorLog:    zap.NewStdLog(log),
			BaseContext: func(net.Listener) context.Context { return ctx },
			// A request's own context does not end with a hijacked connection.
			ConnContext: func(ctx context.Context, c net.Conn) context.Context {
				h, ok := c.(*heldConn)
				if !ok {
					return ctx
				}
				return h.hold(ctx)
			},
		},
	}, nil
}

// listenLoopback listens at an address or, if it is "", at the first available one of
// usualStreamAddresses.
func listenLoopback(address string) (net.Listener, error) {
	if address != "" {
		return net.Listen("tcp", address)
	}
	var errs []error
	for _, a := range usualStreamAddresses {
		l, err := net.Listen("tcp", a)
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (s *streamServer) run() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// stop ends all streams.
func (s *streamServer) stop() {
	s.cancel()
	_ = s.http.Close()
}

// serverStreams adapts Streams to the interface of the streaming server.
type serverStreams struct {
	to  Streams
	log *zap.Logger
}

var _ streaming.Runtime = (*serverStreams)(nil)

// Exec runs a command. As the streaming server expects, an exit status other than 0 is an error.
// If the program is missing or cannot be run, the status is the one that a shell returns, and the
// reason is written to standard error or to the terminal.
func (s *serverStreams) Exec(ctx context.Context, id string, cmd []string, stdin io.Reader, stdout, stderr io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) (err error) {
	defer s.caught("exec", &err)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := ExecOptions{Command: cmd, TTY: tty, Stdin: stdin, Stdout: writer(stdout), Stderr: errorWriter(stderr, tty), Resize: sizes(ctx, resize)}
	errOut := &heard{Writer: o.Stderr}
	switch {
	case tty:
		errOut.Writer = o.Stdout
	case o.Stderr != nil:
		o.Stderr = errOut
	}
	code, err := s.to.Exec(ctx, id, o)
	var reason notRun
	if errors.As(err, &reason) && reason.exitCode() != 0 {
		code, err = reason.exitCode(), nil
		if errOut.Writer != nil && !errOut.written.Load() {
			_, _ = fmt.Fprintf(errOut, "%s\r\n", strings.TrimSpace(string(reason)))
		}
	}
	if err == nil && code != 0 {
		return &ExitError{Code: code}
	}
	return err
}

// Attach attaches to a container.
func (s *serverStreams) Attach(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) (err error) {
	defer s.caught("attach", &err)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return s.to.Attach(ctx, id, AttachOptions{
		Stdin: stdin, Stdout: writer(stdout), Stderr: errorWriter(stderr, tty), Resize: sizes(ctx, resize),
	})
}

// PortForward connects a stream with a port.
func (s *serverStreams) PortForward(ctx context.Context, sandbox string, port int32, stream io.ReadWriteCloser) (err error) {
	defer s.caught("port forward", &err)
	return s.to.PortForward(ctx, sandbox, port, stream)
}

func (s *serverStreams) caught(what string, err *error) {
	if p := recover(); p != nil {
		s.log.Error("stream panicked", zap.String("stream", what), zap.String("panic", fmt.Sprint(p)), zap.Stack("stack"))
		*err = fmt.Errorf("%s panicked: %v", what, p)
	}
}

// writer returns w as an io.Writer. A nil w means that there is no stream; the result is then
// nil, too.
func writer(w io.WriteCloser) io.Writer {
	if w == nil {
		return nil
	}
	return w
}

// errorWriter returns the writer for standard error. If tty is true, it returns nil, since a
// terminal has one stream for both outputs. Over WebSockets, the streaming server passes a writer
// for standard error anyway.
func errorWriter(w io.WriteCloser, tty bool) io.Writer {
	if tty {
		return nil
	}
	return writer(w)
}

// heard is a writer that remembers whether anything was written.
type heard struct {
	io.Writer
	written atomic.Bool
}

func (h *heard) Write(b []byte) (int, error) {
	if len(b) > 0 {
		h.written.Store(true)
	}
	return h.Writer.Write(b)
}

// sizes passes on the sizes of a terminal until ctx ends. A slow reader gets only the
// latest size.
func sizes(ctx context.Context, from <-chan remotecommand.TerminalSize) <-chan Size {
	if from == nil {
		return nil
	}
	to := make(chan Size)
	go func() {
		defer close(to)
		var last Size
		var out chan Size // nil if there is no size to send
		for {
			select {
			case z, ok := <-from:
				if !ok {
					from = nil
					if out == nil {
						return
					}
					continue
				}
				last, out = Size{Width: z.Width, Height: z.Height}, to
			case out <- last:
				if out = nil; from == nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return to
}
