package portforward

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"time"
)

// drain is how long the client may be silent after the pod has closed its side, until both sides
// are closed.
const drain = time.Second

// halfCloser is a connection whose write side can be closed separately.
type halfCloser interface{ CloseWrite() error }

// relay copies in both directions until both have ended, and closes both connections. When one
// direction has ended, it closes the write side of the other connection, if that is possible. The
// other direction continues: from the pod to the client without a limit, and from the client to
// the pod as long as the client sends. relay returns an error only if the pod's side fails, and
// not if the client disconnects. A reset by the pod is not an error: programs reset a connection
// that they close with data unread, and after an error, kubectl ends all its forwarding.
func relay(ctx context.Context, client io.ReadWriteCloser, pod io.ReadWriteCloser) error {
	defer func() {
		_ = client.Close()
		_ = pod.Close()
	}()
	fromPod, fromClient := make(chan error, 1), make(chan struct{})
	var sent atomic.Uint64
	go func() {
		defer close(fromClient)
		_, _ = io.Copy(counting{pod, &sent}, client) // a client that has disconnected cannot be told of an error
		if half, ok := pod.(halfCloser); ok {
			_ = half.CloseWrite()
		}
	}()
	go func() {
		from := &remember{Reader: pod}
		_, _ = io.Copy(client, from)
		if half, ok := client.(halfCloser); ok {
			_ = half.CloseWrite()
		}
		fromPod <- from.err
	}()
	select {
	case err := <-fromPod:
		if errors.Is(err, syscall.ECONNRESET) {
			return nil
		}
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	tick := time.NewTicker(drain)
	defer tick.Stop()
	for before := sent.Load(); ; {
		select {
		case <-fromClient:
			return nil
		case <-tick.C:
			now := sent.Load()
			if now == before {
				return nil
			}
			before = now
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// counting is a writer that counts the bytes written.
type counting struct {
	io.Writer
	n *atomic.Uint64
}

func (c counting) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n.Add(uint64(max(n, 0)))
	return n, err
}

// remember is a reader that stores its error, so that it can be distinguished from an error
// of writing.
type remember struct {
	io.Reader
	err error // nil at the end of file
}

func (r *remember) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
