package portforward

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// drain is how long the client may send nothing after the pod has ended its side,
// until both are closed.
const drain = time.Second

// halfCloser is a connection whose writing side can be closed alone.
type halfCloser interface{ CloseWrite() error }

// relay copies both ways until both have ended, and closes both. The end of one
// side is passed on where the other can be told, and then the other way goes on:
// from the pod for as long as it likes, to the pod while the client sends. An error
// of the pod's side is returned; that the client went is none.
func relay(ctx context.Context, client io.ReadWriteCloser, pod io.ReadWriteCloser) error {
	defer func() {
		_ = client.Close()
		_ = pod.Close()
	}()
	fromPod, fromClient := make(chan error, 1), make(chan struct{})
	var sent atomic.Uint64
	go func() {
		defer close(fromClient)
		_, _ = io.Copy(counting{pod, &sent}, client) // one that went is none to tell it
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

// counting counts the bytes that are written.
type counting struct {
	io.Writer
	n *atomic.Uint64
}

func (c counting) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n.Add(uint64(max(n, 0)))
	return n, err
}

// remember keeps the error that reading ended with, to tell it from one of writing.
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
