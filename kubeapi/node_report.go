package kubeapi

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/node/status"
)

// The waits after failed reports. They double, up to the time between two reports.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 1024 * firstRetry // 3 min 25 s
	firstWait  = 10 * time.Second  // for reading the machine the first time
)

// reporter is the state of the loop that reports.
type reporter struct {
	*NodeManager
	asked    func()    // called when the API server has been asked to create the Node
	last     time.Time // of the last report; zero: none yet
	delay    time.Duration
	computed string // resource version of the Node that was last compared
	cidrs    string // pod ranges that NodeConfig.PodCIDR has accepted
	dirty    bool   // the Node may differ from what would be reported
	told     string // the last failure
	unknown  string // the last logged unknown parts of the status
	readied  bool   // the node was reported ready
	begun    startup
}

// report registers the node. Then it reports changes at once; without changes, it reports every
// NodeConfig.Report. It calls asked once the API server has answered the first request to create
// the Node. Without NodeConfig.Register it calls asked at once.
func (m *NodeManager) report(ctx context.Context, asked func()) {
	select {
	case <-ctx.Done():
		return
	case <-m.cfg.Status.Changes():
	case <-time.After(firstWait):
	}
	r := &reporter{NodeManager: m, asked: asked, dirty: true}
	if m.cfg.Register {
		r.register(ctx)
	}
	asked()
	for failures := 0; ctx.Err() == nil; {
		wait := spread(m.cfg.Update)
		err := r.sync(ctx, failures)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures, r.told = 0, ""
		case apierrors.IsNotFound(err) && m.reregisters():
			r.register(ctx)
			continue
		default:
			wait = retry.Backoff{First: firstRetry, Max: min(wait, lastRetry)}.After(failures + 1)
			if text := err.Error(); text != r.told {
				r.told = text
				m.cfg.Log.Error("failed to report node status, trying again", zap.Error(err))
			}
			if failures++; failures > 1 {
				m.cfg.API.CloseConnections()
			}
		}
		if failures > 0 { // the next try includes newer changes
			retry.Sleep(ctx, wait)
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case <-m.cfg.Status.Changes():
			r.dirty = true
		case <-m.changed:
		}
	}
}

// spread returns d plus a random part of up to 4 %, so that nodes do not report at the
// same time.
func spread(d time.Duration) time.Duration {
	return retry.Jitter(d, jitter)
}

// due reports whether a report without a change is due at the time now.
func due(last, now time.Time, report, delay time.Duration) bool {
	return last.IsZero() || now.Sub(last) >= report+delay
}

// sync updates the API server, if there is anything to report.
func (r *reporter) sync(ctx context.Context, failures int) error {
	base, live := r.Node()
	if base == nil || !live || failures > 0 {
		base = &v1.Node{}
		if err := r.cfg.API.Get(ctx, Nodes, Key{Name: r.cfg.Name}, base); err != nil {
			return err
		}
		r.see(base)
	}
	periodic := due(r.last, time.Now(), r.cfg.Report, r.delay)
	newCIDRs := r.podCIDR(ctx, base)
	if !newCIDRs && !r.dirty && !periodic && base.ResourceVersion == r.computed {
		return nil
	}
	want := base.DeepCopy()
	repaired := repairLabels(want)
	events := r.fill(want)
	changed := newCIDRs || repaired || !sameMeta(base, want) || !status.Same(&base.Status, &want.Status)
	if !changed && !periodic {
		r.done(base, events, &base.Status)
		return nil
	}
	delay := time.Duration(0)
	if changed || r.last.IsZero() { // spread the nodes that changed together
		delay = time.Duration((rand.Float64() - 0.5) * float64(r.cfg.Report))
	}
	got, err := r.patch(ctx, base, want)
	if err != nil {
		return err
	}
	r.last, r.delay = time.Now(), delay
	r.done(got, events, &want.Status)
	return nil
}

// fill writes the status, and logs unknown parts of it when they change.
func (r *reporter) fill(n *v1.Node) []status.Event {
	events, err := r.cfg.Status.Fill(n)
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == r.unknown:
	case err != nil:
		r.cfg.Log.Warn("failed to read parts of node status; keeping the last values", zap.Error(err))
	default:
		r.cfg.Log.Info("all parts of node status can be read again")
	}
	r.unknown = text
	return events
}

func sameMeta(a, b *v1.Node) bool {
	return a.Annotations[status.AnnotationProvidedIP] == b.Annotations[status.AnnotationProvidedIP]
}

func (r *reporter) patch(ctx context.Context, base, want *v1.Node) (*v1.Node, error) {
	patch, err := nodePatch(base, want)
	if err != nil {
		return nil, err
	}
	got := &v1.Node{}
	if err := r.cfg.API.Patch(ctx, Nodes, Key{Name: base.Name}, types.StrategicMergePatchType, patch, got, "status"); err != nil {
		return nil, err
	}
	r.see(got)
	return got, nil
}

// done is called when the server has the node's current state. It sends the events, and
// calls the functions of NodeConfig.
func (r *reporter) done(now *v1.Node, events []status.Event, said *v1.NodeStatus) {
	r.dirty, r.computed = false, now.ResourceVersion
	r.cfg.Status.Reported()
	for _, e := range events {
		r.event(e)
	}
	if r.cfg.Reported != nil {
		r.cfg.Reported(&now.Status)
	}
	if !r.readied && slices.ContainsFunc(said.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	}) {
		r.readied = true
		r.met.ready(r.begun, r.cfg.Booted, r.cfg.Started)
	}
}

const cidrTimeout = 5 * time.Second

// podCIDR calls NodeConfig.PodCIDR with ranges that are new, and reports whether they were
// accepted.
func (r *reporter) podCIDR(ctx context.Context, n *v1.Node) bool {
	cidrs := strings.Join(n.Spec.PodCIDRs, ",")
	if cidrs == "" || cidrs == r.cidrs || r.cfg.PodCIDR == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, cidrTimeout)
	defer cancel()
	if err := r.cfg.PodCIDR(ctx, cidrs); err != nil {
		r.cfg.Log.Error("failed to pass pod CIDRs to the runtime", zap.String("cidrs", cidrs), zap.Error(err))
		return false
	}
	r.cidrs = cidrs
	return true
}
