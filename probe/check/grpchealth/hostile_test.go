package grpchealth_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/nodewright/nodewright/probe/check"
	"github.com/nodewright/nodewright/probe/check/grpchealth"
)

// The types and flags of frames (RFC 9113, 6).
const (
	data, headers, settings, ping, continuation = 0, 1, 4, 6, 9
	ack, endHeaders                             = 1, 4
)

// frame is one of HTTP/2.
func frame(kind, flags byte, stream uint32, payload string) string {
	b := make([]byte, 0, 9+len(payload))
	b = append(b, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
	return string(binary.BigEndian.AppendUint32(b, stream)) + payload
}

// field is a header that is written out (RFC 7541, 6.2.2).
func field(name, value string) string {
	return "\x00" + string(rune(len(name))) + name + string(rune(len(value))) + value
}

// raw is a server that speaks HTTP/2 as far as that it takes a call, as its
// stream 1, and goes on as it wants.
func raw(t *testing.T, goOn func(w io.Writer) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, err := io.WriteString(c, frame(settings, 0, 0, "")+frame(settings, ack, 0, ""))
				if err == nil {
					b := make([]byte, 4<<10) // the preface, the settings and the call
					for n := 0; n < 100 && err == nil; {
						var m int
						m, err = c.Read(b)
						n += m
					}
				}
				for err == nil {
					err = goOn(c)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// Whatever a server sends, and however much, costs a check bounded memory and
// no more than its time.
func TestHostileServers(t *testing.T) {
	answer := frame(headers, endHeaders, 1, "\x88"+field("content-type", "application/grpc")) // 0x88 is :status 200
	long := strings.Repeat("x", 100)
	first := func(once string, then string) func(io.Writer) error {
		begun := false
		return func(w io.Writer) error {
			if !begun {
				begun = true
				_, err := io.WriteString(w, once)
				return err
			}
			_, err := io.WriteString(w, then)
			return err
		}
	}
	for name, goOn := range map[string]func(io.Writer) error{
		"settings": first("", strings.Repeat(frame(settings, 0, 0, "\x00\x04\x00\x00\xff\xff"), 100)),
		"pings":    first("", strings.Repeat(frame(ping, 0, 0, "12345678"), 100)),
		"headers that do not end": first(frame(headers, 0, 1, "\x88"),
			frame(continuation, 0, 1, strings.Repeat(field("x", long), 100))),
		"a message that does not end":       first(answer, frame(data, 0, 1, "\x00\xff\xff\xff\xff"+strings.Repeat(long, 100))),
		"a message above the limit":         first(answer+frame(data, 0, 1, "\x00\x00\x10\x00\x00"), frame(data, 0, 1, strings.Repeat(long, 100))),
		"messages that do not end":          first(answer, frame(data, 0, 1, strings.Repeat("\x00\x00\x00\x00\x00", 1000))),
		"data of streams that nobody asked": first("", frame(data, 0, 7, strings.Repeat(long, 100))),
		"noise":                             first("", strings.Repeat("noise", 1000)),
	} {
		t.Run(name, func(t *testing.T) {
			addr := raw(t, goOn)
			// The heap is about what lives, and not what waits to be collected.
			defer debug.SetGCPercent(debug.SetGCPercent(10))
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			began, most := time.Now(), uint64(0)
			done := make(chan struct{})
			go func() {
				defer close(done)
				o, out, err := grpchealth.Check{Addr: addr}.Check(ctx)
				if o != check.Failure || err != nil || len(out) > check.MaxOutput {
					t.Errorf("%v, %d bytes %.80q, %v; want a failure", o, len(out), out, err)
				}
			}()
			for ended := false; !ended; {
				select {
				case <-done:
					ended = true
				case <-time.After(10 * time.Millisecond):
				}
				runtime.ReadMemStats(&after)
				most = max(most, after.HeapInuse)
			}
			if d := time.Since(began); d > time.Minute {
				t.Errorf("it took %v, want 0.5s", d)
			}
			if most > before.HeapInuse+32<<20 {
				t.Errorf("%d MiB in use, %d before", most>>20, before.HeapInuse>>20)
			}
		})
	}
}

// talkative says why at length.
type talkative struct {
	healthpb.UnimplementedHealthServer
}

func (talkative) Check(_ context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if r.GetService() == "answer" {
		m := &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}
		m.ProtoReflect().SetUnknown(append([]byte{0x7a, 0x80, 0x80, 0x40}, make([]byte, 1<<20)...)) // a field 15 of 1 MiB
		return m, nil
	}
	return nil, status.Error(codes.Internal, strings.Repeat("x", 40<<10))
}

func TestLongAnswers(t *testing.T) {
	addr := serve(t, func(s *grpc.Server) { healthpb.RegisterHealthServer(s, talkative{}) })
	for _, service := range []string{"answer", "error"} {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		o, out, err := grpchealth.Check{Addr: addr, Service: service}.Check(ctx)
		cancel()
		if o != check.Failure || err != nil || len(out) > check.MaxOutput || !strings.HasPrefix(out, "error: health rpc probe failed") {
			t.Errorf("%s: %v, %d bytes %.80q, %v; want a failure of %d bytes at most", service, o, len(out), out, err, check.MaxOutput)
		}
	}
}
