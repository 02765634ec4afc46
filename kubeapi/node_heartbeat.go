package kubeapi

import (
	"fmt"
	"time"

	"k8s.io/client-go/rest"
)

// HeartbeatClient returns a client for NodeConfig.API and LeaseConfig.API. It has no rate limit,
// and its own connections. lease is the duration of the lease. The timeout of the client's calls
// is the time between two renewals of the lease, or 10 s if lease is 0. It is not the time
// between two reports: a slow server would not answer sooner if it was called more often. change
// may modify the client's configuration; it may be nil.
func HeartbeatClient(cfg *rest.Config, lease time.Duration, change func(*Config)) (*Client, error) {
	if lease <= 0 {
		lease = defaultLease
	}
	own := rest.CopyConfig(cfg)
	own.QPS, own.Burst, own.RateLimiter = -1, 0, nil
	client := Config{REST: own, Timeout: renewal(lease)}
	if change != nil {
		change(&client)
	}
	c, err := New(client)
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	return c, nil
}
