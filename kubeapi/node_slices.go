package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/wake"
)

// SliceClient makes the calls of a SliceWiper; [Client] implements it.
type SliceClient interface {
	DeleteAll(ctx context.Context, r Resource, namespace string, opts metav1.ListOptions) error
}

// wipeDelay is how long a driver may be disconnected, as in the kubelet.
const wipeDelay = 30 * time.Second

// backoff is the kubelet's pause after failures.
var backoff = retry.Backoff{First: time.Second, Max: 5 * time.Minute}

// SliceWiperConfig configures a [SliceWiper]. Client, NodeName and Connected are
// required; the zero value of every other field means the default named beside it.
type SliceWiperConfig struct {
	Client   SliceClient
	NodeName string
	// Connected returns the names of the connected drivers. It reads only memory.
	Connected func() []string
	Log       *zap.Logger // if nil, nothing is logged
}

// SliceWiper deletes the ResourceSlices of DRA drivers that are gone from the node,
// so that no scheduler counts on their devices.
//
//	w, err := kubeapi.NewSliceWiper(kubeapi.SliceWiperConfig{Client: client, NodeName: "edge-7", Connected: drivers})
//	go w.Run(ctx)
//	w.Changed() // drivers have come or gone
//
// A driver publishes its devices itself, and may disappear without notice. Its
// slices of this node are deleted when it has not been connected for
// 30 s, also after the start of the agent. A driver that returns
// publishes its devices again.
//
// # Faults
//
// One call deletes the slices of all drivers except those that are or were recently
// connected; it names the node, since a node may delete only its own. A failed call
// is repeated after 1 s, 2 s and so on up to 5 min. Names of drivers are escaped.
//
// Its methods may be called from any goroutine.
type SliceWiper struct {
	cfg     SliceWiperConfig
	changed wake.Signal
}

// NewSliceWiper checks cfg and returns a SliceWiper, which Run starts.
func NewSliceWiper(cfg SliceWiperConfig) (*SliceWiper, error) {
	var errs []error
	if cfg.Client == nil {
		errs = append(errs, errors.New("SliceWiperConfig.Client is required"))
	}
	if cfg.NodeName == "" {
		errs = append(errs, errors.New("SliceWiperConfig.NodeName is required"))
	}
	if cfg.Connected == nil {
		errs = append(errs, errors.New("SliceWiperConfig.Connected is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &SliceWiper{cfg: cfg, changed: wake.New()}, nil
}

// Changed makes Run read the drivers again. It never blocks.
func (w *SliceWiper) Changed() {
	w.changed.Set()
}

// Run deletes slices until ctx ends, and returns nil.
func (w *SliceWiper) Run(ctx context.Context) error {
	s := state{started: time.Now(), lost: map[string]time.Time{}, delay: wipeDelay}
	var failed time.Duration // the last pause after a failure
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		keep, due := s.look(w.cfg.Connected(), now)
		if !due.IsZero() && !due.After(now) && !now.Before(s.notBefore) {
			err := w.cfg.Client.DeleteAll(ctx, ResourceSlices, "", metav1.ListOptions{FieldSelector: w.selector(keep)})
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil && !apierrors.IsNotFound(err): // a server without them has none to delete
				if failed == 0 {
					w.cfg.Log.Warn("failed to delete ResourceSlices of drivers that are gone", zap.Strings("kept", keep), zap.Error(err))
				}
				failed = backoff.Following(failed)
				s.notBefore = time.Now().Add(failed)
			default:
				failed = 0
				s.wiped(now)
				w.cfg.Log.Info("deleted ResourceSlices of drivers that are gone", zap.Strings("kept", keep))
			}
			continue
		}
		if due.Before(s.notBefore) && !due.IsZero() {
			due = s.notBefore
		}
		var wait <-chan time.Time
		if !due.IsZero() {
			timer.Reset(time.Until(due))
			wait = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.changed:
		case <-wait:
		}
	}
}

// selector selects the slices of this node of all drivers except those to keep.
func (w *SliceWiper) selector(keep []string) string {
	all := []fields.Selector{fields.OneTermEqualSelector("spec.nodeName", w.cfg.NodeName)}
	for _, driver := range keep {
		all = append(all, fields.OneTermNotEqualSelector("spec.driver", driver))
	}
	return fields.AndSelectors(all...).String()
}

// state is Run's state of the drivers.
type state struct {
	delay     time.Duration
	started   time.Time // start of the agent; zero after the first deletion
	notBefore time.Time // earliest next try after a failure
	seen      []string
	lost      map[string]time.Time
}

// look records which drivers are connected. keep has the drivers whose slices must not be deleted
// now, sorted. due is the time of the next deletion, or zero if there is none.
func (s *state) look(connected []string, now time.Time) (keep []string, due time.Time) {
	keep = slices.Compact(slices.Sorted(slices.Values(connected)))
	for _, driver := range keep {
		if delete(s.lost, driver); !slices.Contains(s.seen, driver) {
			s.seen = append(s.seen, driver)
		}
	}
	if !s.started.IsZero() {
		due = s.started.Add(s.delay)
	}
	for _, driver := range s.seen {
		if slices.Contains(keep, driver) {
			continue
		}
		if _, known := s.lost[driver]; !known {
			s.lost[driver] = now
		}
	}
	for driver, at := range s.lost {
		end := at.Add(s.delay)
		if end.After(now) {
			keep = append(keep, driver)
		}
		if due.IsZero() || end.Before(due) {
			due = end
		}
	}
	slices.Sort(keep)
	return keep, due
}

// wiped removes the drivers whose slices were deleted. now is the time that was passed
// to look before the deletion.
func (s *state) wiped(now time.Time) {
	s.started, s.notBefore = time.Time{}, time.Time{}
	for driver, at := range s.lost {
		if !at.Add(s.delay).After(now) {
			delete(s.lost, driver)
			s.seen = slices.DeleteFunc(s.seen, func(d string) bool { return d == driver })
		}
	}
}
