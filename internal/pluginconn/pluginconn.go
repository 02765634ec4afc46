// Package pluginconn connects to plugins: gRPC servers of other projects behind unix sockets. It
// refuses answers that are too large before they are decoded.
package pluginconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/nodewright/nodewright/internal/callerror"
)

const (
	// MaxHeader limits the bytes of an answer's headers, which contain the error of a call.
	MaxHeader = 64 << 10
	// MaxText limits the bytes of a plugin's message in an error: statuses and events of pods
	// contain it.
	MaxText = 1 << 10
	// maxReconnect is the longest pause between attempts to connect.
	maxReconnect = 10 * time.Second
)

// Dial returns a connection to the plugin behind a socket, without waiting for it: gRPC connects at
// the first call, and again after a disconnect. It repeats no call, since only the caller knows
// whether that is allowed. An error is about the options.
func Dial(socket string, l Limits, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	// The scheme prevents gRPC from resolving the path, and the authority from sending the path as a
	// host name, which some servers reject. The kubelet sends the same name.
	return grpc.NewClient("passthrough:///"+socket, append([]grpc.DialOption{
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}),
		grpc.WithMaxHeaderListSize(MaxHeader),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(l.Bytes), grpc.ForceCodecV2(l)),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0), // an idle connection would look like a lost one
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: time.Second / 2, Multiplier: 2, Jitter: 0.2, MaxDelay: maxReconnect},
			MinConnectTimeout: maxReconnect,
		}),
	}, more...)...)
}

// Error returns the error of a call without gRPC's own words, and with at most MaxText bytes of the
// plugin's message. The code Unavailable becomes an error that wraps away, since the plugin may come
// back. An error that does not come from a call is returned unchanged.
func Error(err, away error) error {
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	text := callerror.Cut(st.Message(), MaxText)
	switch st.Code() {
	case codes.Unavailable:
		return fmt.Errorf("%w: %s", away, text)
	case codes.DeadlineExceeded:
		return fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)
	// An ordinary error of a plugin that is written in Go has this code, which says nothing.
	case codes.Unknown:
		return errors.New(text)
	default:
		return fmt.Errorf("%s (%s)", text, st.Code())
	}
}
