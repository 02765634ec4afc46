package node

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

	"github.com/nodewright/nodewright/kubeapi/apiclient"
)

// The kubelet's figures of a lease.
const (
	defaultLease = 40 * time.Second
	renewPart    = 0.25 // of the duration, between two renewals
	leaseTries   = 5    // of one renewal
	firstEnsure  = 200 * time.Millisecond
)

// LeaseConfig holds what a Lease needs. Name and API are required; the zero
// value of every other field means the default named beside it.
type LeaseConfig struct {
	Name     string            // of the node
	API      *apiclient.Client // see Heartbeat
	Duration time.Duration     // 40s; whole seconds
	// Owner is the UID of the Node, "" while that is not known: the lease is
	// held without it until then. No owner.
	Owner func() types.UID
	Log   *zap.Logger // silent
}

// Lease is the node's sign of life, in the namespace kube-node-lease.
type Lease struct {
	cfg    LeaseConfig
	latest *coordinationv1.Lease // as the API server has it; nil: to be read
	told   string
}

// NewLease checks cfg and returns a Lease that is not held.
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
	if cfg.Owner == nil {
		cfg.Owner = func() types.UID { return "" }
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Lease{cfg: cfg}, nil
}

// Run renews the lease until ctx ends, and returns nil then. The lease stays. It
// may be called once. Give it a ctx that ends last, so that a node that takes
// its time to shut down lives meanwhile.
func (l *Lease) Run(ctx context.Context) error {
	renew := renewal(l.cfg.Duration)
	for ctx.Err() == nil {
		err := l.renew(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != l.told {
			l.told = err.Error()
			l.cfg.Log.Error("the lease cannot be renewed, trying again", zap.Error(err))
		} else if err == nil {
			l.told = ""
		}
		pause(ctx, spread(renew))
	}
	return nil
}

// renewal is the time between two renewals of a lease.
func renewal(lease time.Duration) time.Duration { return time.Duration(renewPart * float64(lease)) }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// renew updates what is known of the lease, or reads and makes it first.
func (l *Lease) renew(ctx context.Context) error {
	if l.latest != nil && l.update(ctx) == nil {
		return nil
	}
	var err error
	for try := range leaseTries {
		if try > 0 {
			pause(ctx, firstEnsure<<try)
		}
		if try > 1 {
			l.cfg.API.CloseConnections()
		}
		var made bool
		if made, err = l.ensure(ctx); err == nil && !made {
			err = l.update(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (l *Lease) key() apiclient.Key {
	return apiclient.Key{Namespace: v1.NamespaceNodeLease, Name: l.cfg.Name}
}

// ensure reads the lease, or makes it if there is none.
func (l *Lease) ensure(ctx context.Context) (made bool, err error) {
	l.latest = nil
	got := &coordinationv1.Lease{}
	err = l.cfg.API.Get(ctx, apiclient.Leases, l.key(), got)
	if apierrors.IsNotFound(err) {
		got, made = l.next(nil), true
		err = l.cfg.API.Create(ctx, apiclient.Leases, l.key(), got, got)
	}
	if err != nil {
		return false, err
	}
	l.latest = got
	return made, nil
}

func (l *Lease) update(ctx context.Context) error {
	next := l.next(l.latest)
	if err := l.cfg.API.Update(ctx, apiclient.Leases, l.key(), next, next); err != nil {
		return err
	}
	l.latest = next
	return nil
}

// next is the lease as it is to be now: what others have put there stays.
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
	if uid := l.cfg.Owner(); uid != "" && len(out.OwnerReferences) == 0 {
		out.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: l.cfg.Name, UID: uid}}
	}
	return out
}
