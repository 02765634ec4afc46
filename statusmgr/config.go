package statusmgr

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
)

// Sink publishes statuses. Calls for one pod never overlap; calls for different pods do. They
// must return when ctx ends. A call that returns an error is repeated with back-off, except
// for [ErrGone].
type Sink interface {
	// Update publishes a pod's status. pod and status are shared and must not be
	// changed. After a restart, pod may have its metadata only.
	Update(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error
	// Delete deletes a pod whose deletion was requested and of which nothing is left
	// on the node.
	Delete(ctx context.Context, pod *v1.Pod) error
}

// ErrGone is returned by a [Sink] if the pod does not exist or has another UID. The pod is then
// published again only when its status changes.
var ErrGone = errors.New("the sink does not have the pod")

// Config configures a Manager. A comment after a field names the default for its zero value.
type Config struct {
	// Sink publishes the statuses. If Sink is nil, they are not published.
	Sink Sink
	// Store keeps unpublished statuses over a crash of the agent. If Store is nil, a crash loses
	// them.
	Store Store

	Parallel   int           // writes to the sink at a time; the default is 8
	MaxBackoff time.Duration // longest delay after failed writes; the default is 1 min

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

const (
	// writeTimeout limits one write.
	writeTimeout = 30 * time.Second
	// firstBackoff is the delay after a first failed write. Each further failure doubles it.
	firstBackoff = time.Second
)

func (c Config) withDefaults() Config {
	if c.Parallel == 0 {
		c.Parallel = 8
	}
	if c.MaxBackoff == 0 {
		c.MaxBackoff = time.Minute
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	// The defaults have replaced zeros: what is left is what somebody wrote.
	if c.Parallel < 0 {
		errs = append(errs, fmt.Errorf("Config.Parallel is %d; want a positive number", c.Parallel))
	}
	if c.MaxBackoff < firstBackoff {
		errs = append(errs, fmt.Errorf("Config.MaxBackoff is %v; want at least %v", c.MaxBackoff, firstBackoff))
	}
	return errors.Join(errs...)
}
