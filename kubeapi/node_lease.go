package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/retry"
)

// The kubelet's values for a lease.
const (
	defaultLease = 40 * time.Second
	renewPart    = 0.25 // of the duration, between two renewals
	leaseTries   = 5    // of one renewal
	firstEnsure  = 400 * time.Millisecond
	lastEnsure   = 3200 * time.Millisecond
)

// ownerPause is the time between two checks for the owner of the lease.
const ownerPause = time.Second

// errNoNode means that the lease waits for its Node.
var errNoNode = errors.New("the Node does not exist yet")

// LeaseConfig configures a [Lease]. Name and API are required; the zero value of
// every other field means the default named beside it.
type LeaseConfig struct {
	Name     string        // of the node
	API      *Client       // see HeartbeatClient
	Duration time.Duration // whole seconds; the default is 40 s
	// Owner returns the UID of the Node, or "" if it is not known. The creation of the lease
	// waits for the UID, but no longer than the time between two renewals. If Owner is nil, the
	// lease has no owner.
	Owner func() types.UID
	Log   *zap.Logger // if nil, nothing is logged
}

// Lease is the node's Lease in the namespace kube-node-lease.
type Lease struct {
	cfg    LeaseConfig
	latest *coordinationv1.Lease // at the API server; nil: has to be read
	told   string
	begun  time.Time
}

// NewLease checks cfg and returns a Lease; call Run to create and renew it.
func NewLease(cfg LeaseConfig) (*Lease, error) {
	var errs []error
	if cfg.Name == "" {
		errs = append(errs, errors.New("field LeaseConfig.Name is required"))
	}
	if cfg.API == nil {
		errs = append(errs, errors.New("field LeaseConfig.API is required"))
	}
	if cfg.Duration != 0 && cfg.Duration < time.Second {
		errs = append(errs, fmt.Errorf("field LeaseConfig.Duration: %v: must be 1s or more", cfg.Duration))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	if cfg.Duration == 0 {
		cfg.Duration = defaultLease
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Lease{cfg: cfg}, nil
}

// Run renews the lease until ctx ends, and returns nil then. The lease is not deleted. It may be
// called once. Use a ctx that ends after everything else: otherwise a node that needs time to shut
// down would count as dead.
func (l *Lease) Run(ctx context.Context) error {
	l.begun = time.Now()
	for ctx.Err() == nil {
		err, wait := l.renew(ctx), renewal(l.cfg.Duration)
		if errors.Is(err, errNoNode) {
			err, wait = nil, ownerPause
		}
		if err != nil && ctx.Err() == nil && err.Error() != l.told {
			l.told = err.Error()
			l.cfg.Log.Error("failed to renew lease, trying again", zap.Error(err))
		} else if err == nil {
			l.told = ""
		}
		retry.Sleep(ctx, spread(wait))
	}
	return nil
}

// renewal returns the time between two renewals of a lease.
func renewal(lease time.Duration) time.Duration { return time.Duration(renewPart * float64(lease)) }

// renew updates the known lease, or reads or creates it first.
func (l *Lease) renew(ctx context.Context) error {
	if l.latest != nil && l.update(ctx) == nil {
		return nil
	}
	var err error
	wait := retry.Backoff{First: firstEnsure, Max: lastEnsure}
	for try := range leaseTries {
		if try > 0 {
			wait.Wait(ctx)
		}
		if try > 1 {
			l.cfg.API.CloseConnections()
		}
		var made bool
		if made, err = l.ensure(ctx); err == nil && !made {
			err = l.update(ctx)
		}
		if err == nil || ctx.Err() != nil || errors.Is(err, errNoNode) {
			return err
		}
	}
	return err
}

func (l *Lease) key() Key {
	return Key{Namespace: v1.NamespaceNodeLease, Name: l.cfg.Name}
}

// ensure reads the lease, or creates it if there is none. Before the creation it waits
// for the Node: a lease without an owner is not removed with the Node. If the Node
// cannot be read, the lease is created nevertheless.
func (l *Lease) ensure(ctx context.Context) (made bool, err error) {
	l.latest = nil
	got := &coordinationv1.Lease{}
	err = l.cfg.API.Get(ctx, Leases, l.key(), got)
	if apierrors.IsNotFound(err) {
		if l.cfg.Owner != nil && l.cfg.Owner() == "" && time.Since(l.begun) < renewal(l.cfg.Duration) {
			return false, errNoNode
		}
		got, made = l.next(nil), true
		err = l.cfg.API.Create(ctx, Leases, l.key(), got, got)
	}
	if err != nil {
		return false, err
	}
	l.latest = got
	return made, nil
}

func (l *Lease) update(ctx context.Context) error {
	next := l.next(l.latest)
	if err := l.cfg.API.Update(ctx, Leases, l.key(), next, next); err != nil {
		return err
	}
	l.latest = next
	return nil
}

// next returns a copy of base with the new values; fields that other clients have set
// are kept.
func (l *Lease) next(base *coordinationv1.Lease) *coordinationv1.Lease {
	var out *coordinationv1.Lease
	if base != nil {
		out = base.DeepCopy()
	} else {
		out = &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: l.cfg.Name, Namespace: v1.NamespaceNodeLease},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &l.cfg.Name},
		}
	}
	seconds, now := int32(l.cfg.Duration/time.Second), metav1.NowMicro()
	out.Spec.LeaseDurationSeconds, out.Spec.RenewTime = &seconds, &now
	if l.cfg.Owner == nil || len(out.OwnerReferences) > 0 {
		return out
	}
	if uid := l.cfg.Owner(); uid != "" {
		out.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: l.cfg.Name, UID: uid}}
	}
	return out
}
