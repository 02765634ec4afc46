package node

import (
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nodewright/nodewright/kubeapi/apiclient"
)

// Heartbeat is a client for Config.API and LeaseConfig.API: one that no bound on
// calls holds up, whose calls end within the time between two renewals of the
// lease, 10s if lease is 0, and whose connections are no others'. The time
// between two reports does not count: a server that takes seconds to answer
// would not do so sooner if it was asked more often. change may set more; it may
// be nil.
func Heartbeat(cfg *rest.Config, lease time.Duration, change func(*apiclient.Config)) (*apiclient.Client, error) {
	if lease <= 0 {
		lease = defaultLease
	}
	own := rest.CopyConfig(cfg)
	own.QPS, own.Burst, own.RateLimiter = -1, 0, nil
	client := apiclient.Config{REST: own, Timeout: renewal(lease)}
	if change != nil {
		change(&client)
	}
	c, err := apiclient.New(client)
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	return c, nil
}
