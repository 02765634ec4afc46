package volumemgr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/volumemgr/usage"
)

// Bounds of measuring: one volume's time, and how old the answer of a walk may
// be (the kubelet's volumeStatsAggPeriod).
const (
	measureDeadline = 10 * time.Second
	walkKept        = time.Minute
)

// Stats is how full a volume is.
type Stats struct {
	Name string // in the pod's spec
	// Claim is the claim that it comes from, "" if from none.
	Claim string
	// Ephemeral tells that the volume counts as the pod's own storage on the
	// node.
	Ephemeral bool
	Usage     Usage
}

// Stats measures the pod's mounted volumes, side by side. Volumes that have no
// usage of their own are left out; what could be measured is returned beside
// the errors of others. Nothing is measured but when it is called, and a
// directory that has to be walked not more than once a minute.
func (m *Manager) Stats(ctx context.Context, uid types.UID) ([]Stats, error) {
	type result struct {
		stats []Stats
		err   error
	}
	m.mu.Lock()
	var volumes []*volume
	if p := m.pods[uid]; p != nil {
		for _, v := range p.volumes {
			if v.has == present && v.desired && !v.key.block {
				volumes = append(volumes, v)
			}
		}
	}
	results := make(chan result, len(volumes))
	for _, v := range volumes {
		arg, names, kept := m.arg(v), v.outer, v.usage
		if v.measuring {
			results <- result{err: &Error{Volume: names[0], Err: fmt.Errorf("%w: measuring it", ErrHung)}}
			continue
		}
		v.measuring = true
		go func() {
			u, err := m.measure(ctx, v, arg, kept)
			m.mu.Lock()
			v.measuring = false
			m.mu.Unlock()
			r := result{}
			switch {
			case errors.Is(err, ErrNoUsage):
			case err != nil:
				r.err = &Error{Volume: names[0], Err: err}
			default:
				for _, name := range names {
					r.stats = append(r.stats, Stats{Name: name, Claim: claimOf(arg.Pod, name), Ephemeral: ephemeral(arg.Spec), Usage: u})
				}
			}
			results <- r
		}()
	}
	m.mu.Unlock()

	var out []Stats
	var errs []error
	for range volumes {
		select {
		case r := <-results:
			out = append(out, r.stats...)
			if r.err != nil {
				errs = append(errs, r.err)
			}
		case <-ctx.Done():
			// A statfs of a server that is gone cannot be interrupted. It is
			// left behind, and nobody asks again before it returns.
			errs = append(errs, ctx.Err())
			return out, errors.Join(errs...)
		}
	}
	slices.SortFunc(out, func(a, b Stats) int { return strings.Compare(a.Name, b.Name) })
	return out, errors.Join(errs...)
}

// measure asks the plugin, or the cheapest of what can tell.
func (m *Manager) measure(ctx context.Context, v *volume, arg *Volume, kept Usage) (u Usage, err error) {
	ctx, stop := context.WithTimeout(ctx, measureDeadline)
	defer stop()
	source, began := "plugin", time.Now()
	defer func() { m.met.measuring.WithLabelValues(source).Observe(time.Since(began).Seconds()) }()
	if p, ok := v.plugin.(Meter); ok {
		err = m.guard(func() error {
			u, err = p.Measure(ctx, arg)
			return err
		})
		return u, err
	}
	mounts, err := m.cfg.Mounter.Mounts(arg.Path)
	if err != nil {
		return Usage{}, fmt.Errorf("mount table: %w", err)
	}
	if slices.ContainsFunc(mounts, func(mt Mount) bool { return mt.Path == arg.Path }) {
		source = "statfs"
		return usage.Statfs(arg.Path)
	}
	source = "quota"
	if u, err = usage.Quota(arg.Path); err == nil {
		return u, nil
	}
	source = "du"
	if !kept.At.IsZero() && time.Since(kept.At) < walkKept {
		return kept, nil
	}
	if u, err = usage.Walk(ctx, arg.Path, usage.Limits{}); err != nil {
		return Usage{}, err
	}
	m.mu.Lock()
	v.usage = u
	m.mu.Unlock()
	return u, nil
}

// claimOf is the name of the claim that a pod's volume comes from.
func claimOf(pod *v1.Pod, name string) string {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.Name != name:
		case v.PersistentVolumeClaim != nil:
			return v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			return pod.Name + "-" + name // KEP-1698
		}
	}
	return ""
}

// ephemeral tells whether a volume is the pod's own storage on the node.
func ephemeral(spec *Spec) bool {
	v := spec.Volume
	return v != nil && (v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault || v.ConfigMap != nil)
}
