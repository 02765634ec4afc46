package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"
)

// socketPath parses an endpoint: unix:///path or an absolute path, as in the kubelet's
// containerRuntimeEndpoint. field is the name of the endpoint's field in the error.
func socketPath(field, endpoint string) (string, error) {
	path := endpoint
	if scheme, rest, ok := strings.Cut(endpoint, "://"); ok {
		if scheme != "unix" {
			return "", fmt.Errorf("%s %q: scheme %q is not supported; want unix:///path or an absolute path", field, endpoint, scheme)
		}
		path = rest
	}
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("%s %q: want unix:///path or an absolute path", field, endpoint)
	}
	return path, nil
}

// Find returns the first of the sockets that accepts a connection, as an endpoint for
// Config. The error has the result of each socket. Find waits at most two seconds for each,
// and does not check that the program behind it is a container runtime.
func Find(ctx context.Context, sockets []string) (string, error) {
	errs := []error{errors.New("no container runtime found")}
	for _, s := range sockets {
		d := net.Dialer{Timeout: 2 * time.Second}
		c, err := d.DialContext(ctx, "unix", s)
		if err == nil {
			_ = c.Close()
			return "unix://" + s, nil
		}
		// The path is in the line already.
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		errs = append(errs, fmt.Errorf("  tried %s: %w", s, err))
	}
	return "", errors.Join(errs...)
}
