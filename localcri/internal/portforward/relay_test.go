package portforward

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// side is one end of a connection in memory, with halves that close apart.
type side struct {
	*io.PipeReader
	w    *io.PipeWriter
	once sync.Once
}

func pair() (a, b *side) {
	r1, w1 := io.Pipe()
	r2, w2 := io.Pipe()
	return &side{PipeReader: r1, w: w2}, &side{PipeReader: r2, w: w1}
}

func (s *side) Write(p []byte) (int, error) { return s.w.Write(p) }
func (s *side) CloseWrite() error           { return s.w.Close() }
func (s *side) Close() error {
	s.once.Do(func() { _ = s.w.Close(); _ = s.PipeReader.Close() })
	return nil
}

// whole hides that a side has halves.
type whole struct{ io.ReadWriteCloser }

func TestTheClientsEndReachesThePodAndTheAnswerTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, near := pair()
		pod, far := pair()
		done := make(chan error, 1)
		go func() { done <- relay(t.Context(), near, pod) }()
		go func() {
			b, _ := io.ReadAll(far) // until the client's half has ended
			time.Sleep(time.Hour)   // the pod may take its time
			_, _ = far.Write(append([]byte("got "), b...))
			_ = far.Close()
		}()
		_, _ = client.Write([]byte("question"))
		_ = client.CloseWrite()
		if b, err := io.ReadAll(client); string(b) != "got question" || err != nil {
			t.Errorf("the client read %q, %v", b, err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestAfterThePodsEndASilentClientIsCutOff(t *testing.T) {
	for _, halves := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			client, near := pair()
			pod, far := pair()
			var to io.ReadWriteCloser = near
			if !halves {
				to = whole{near}
			}
			done := make(chan error, 1)
			go func() { done <- relay(t.Context(), to, pod) }()
			_ = far.CloseWrite()
			begun := time.Now()
			go func() { // sends something each half second, for five
				for range 10 {
					time.Sleep(drain / 2)
					_, _ = client.Write([]byte("x"))
				}
			}()
			got := make(chan int, 1)
			go func() {
				b, _ := io.ReadAll(far)
				got <- len(b)
			}()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if n := <-got; n != 10 {
				t.Errorf("the pod got %d bytes; want 10", n)
			}
			if took := time.Since(begun); took < 5*time.Second || took > 7*time.Second {
				t.Errorf("cut after %v", took)
			}
			if _, err := client.Write([]byte("x")); err == nil {
				t.Error("the client can still write")
			}
		})
	}
}

func TestContextEndsBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, near := pair()
		pod, far := pair()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- relay(ctx, near, pod) }()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("relay: %v", err)
		}
		for name, s := range map[string]*side{"client": client, "pod": far} {
			if _, err := io.ReadAll(s); err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestAnErrorOfThePodIsReturned(t *testing.T) {
	bad := errors.New("bad")
	for _, tt := range []struct{ of, want error }{
		{bad, bad},
		{&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, nil}, // the end of one connection
	} {
		synctest.Test(t, func(t *testing.T) {
			client, near := pair()
			pod, far := pair()
			_ = far.w.CloseWithError(tt.of)
			if err := relay(t.Context(), near, pod); !errors.Is(err, tt.want) {
				t.Errorf("relay: %v; want %v", err, tt.want)
			}
			if _, err := client.Write([]byte("x")); err == nil {
				t.Errorf("%v: the client can still write", tt.of)
			}
		})
	}
}

// A client that goes away in the middle ends it without an error.
func TestClientThatGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, near := pair()
		pod, far := pair()
		done := make(chan error, 1)
		go func() { done <- relay(t.Context(), near, pod) }()
		_ = client.Close()
		go func() {
			for {
				if _, err := far.Write([]byte("x")); err != nil {
					return
				}
			}
		}()
		if err := <-done; err != nil {
			t.Errorf("relay: %v", err)
		}
	})
}
