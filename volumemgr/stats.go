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

	"github.com/nodewright/nodewright/internal/diskusage"
)

// Usage of volumes. Nothing is measured in the background. A measurement that hangs is not
// started a second time.

const (
	// measureDeadline limits the measurement of one volume.
	measureDeadline = 10 * time.Second
	// walkTime limits a walk of a directory, since a walk slows down the pods' disk. The next
	// call continues an interrupted walk.
	walkTime = 3 * time.Second
	// walkKept is how long the result of a walk is reused (the kubelet's volumeStatsAggPeriod).
	walkKept = time.Minute
)

// Stats is the usage of a volume.
type Stats struct {
	Name string // name in the pod's spec
	// Claim is the name of the volume's claim; "" if it has none.
	Claim string
	// Ephemeral reports whether the volume counts as ephemeral storage of the pod.
	Ephemeral bool
	// Usage is in bytes and inodes. Usage.At is the time of the measurement;
	// Usage.AtLeast marks a lower bound.
	Usage Usage
}

// Stats measures the pod's mounted volumes in parallel. It omits volumes without a usage of their
// own. If some volumes cannot be measured, the others are returned together with the errors. A
// directory is walked at most once a minute. If a walk takes longer than one call may, or another
// call is walking the directory, the result has what is counted so far (Usage.AtLeast).
func (m *Manager) Stats(ctx context.Context, uid types.UID) ([]Stats, error) {
	type result struct {
		volume int
		usage  Usage
		err    error
	}
	type measured struct {
		arg   *Volume
		names []string
		kept  Usage // usage of the last walk; At is zero if there was none
		over  bool  // the result of this volume was added
	}
	var volumes []measured
	m.mu.Lock()
	var all []*volume
	if p := m.pods[uid]; p != nil {
		for _, v := range p.volumes {
			if v.has == present && v.desired && !v.key.block {
				all = append(all, v)
			}
		}
	}
	// Buffered for all results, so that a goroutine that outlives this call does not block.
	results := make(chan result, len(all))
	for i, v := range all {
		volumes = append(volumes, measured{arg: m.arg(v), names: v.outer, kept: v.usage})
		if v.measuring {
			results <- result{i, v.usage, fmt.Errorf("%w: measure usage of volume", ErrHung)}
			continue
		}
		// Only the measuring goroutine clears it, however long it takes.
		v.measuring = true
		if v.survey == nil {
			v.survey = &diskusage.Survey{}
		}
		arg, walked := volumes[i].arg, walked{v.usage, v.due, v.survey}
		go func() {
			u, err := m.measure(ctx, v, arg, walked)
			m.mu.Lock()
			v.measuring = false
			m.mu.Unlock()
			results <- result{i, u, err}
		}()
	}
	m.mu.Unlock()

	var out []Stats
	var errs []error
	// note adds a result. For a volume that could not be measured, it adds the last known usage
	// as a lower bound, so that a failed walk does not hide an exceeded limit.
	note := func(v *measured, u Usage, err error) {
		v.over = true
		if errors.Is(err, ErrNoUsage) {
			return
		}
		if err != nil {
			errs = append(errs, &Error{Volume: v.names[0], Err: err})
			if u, u.AtLeast = v.kept, true; u.At.IsZero() {
				return
			}
		}
		for _, name := range v.names {
			out = append(out, Stats{Name: name, Claim: claimOf(v.arg.Pod, name), Ephemeral: ephemeral(v.arg.Spec), Usage: u})
		}
	}
	for range volumes {
		select {
		case r := <-results:
			note(&volumes[r.volume], r.usage, r.err)
			continue
		case <-ctx.Done():
		}
		// Results that arrived at the same time as the end of ctx are used.
		for len(results) > 0 {
			r := <-results
			note(&volumes[r.volume], r.usage, r.err)
		}
		// A statfs call cannot be interrupted if its server is gone. It is abandoned, and not
		// repeated before it returns.
		for i := range volumes {
			if !volumes[i].over {
				note(&volumes[i], Usage{}, ctx.Err())
			}
		}
		break
	}
	slices.SortFunc(out, func(a, b Stats) int { return strings.Compare(a.Name, b.Name) })
	return out, errors.Join(errs...)
}

// walked is the usage of a volume as counted by walking it.
type walked struct {
	usage  Usage     // At is zero if the volume was never walked
	due    time.Time // time of the next walk
	survey *diskusage.Survey
}

// measure measures a volume: by its plugin, by statfs, by its project, or by walking it. m.mu
// must not be held. It runs on its own goroutine, and may outlive the call of Stats.
func (m *Manager) measure(ctx context.Context, v *volume, arg *Volume, last walked) (u Usage, err error) {
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
	// Checked first because it is cheap: the mount table has a line for each volume of the node,
	// and would be read for each of them.
	if diskusage.IsMount(arg.Path) {
		source = "statfs"
		now, err := diskusage.Statfs(arg.Path)
		return Usage(now), err
	}
	// The mount table is needed, since statfs of a plain directory returns the usage of the
	// node's disk.
	mounts, err := m.cfg.Mounter.Mounts(arg.Path)
	if err != nil {
		return Usage{}, fmt.Errorf("read mount table: %w", err)
	}
	if slices.ContainsFunc(mounts, func(mt Mount) bool { return mt.Path == arg.Path }) {
		source = "statfs"
		now, err := diskusage.Statfs(arg.Path)
		return Usage(now), err
	}
	source = "quota"
	// A pod may change the project of a volume's directory, but cannot reach the state directory.
	if now, err := diskusage.Quota(arg.StateDir); err == nil {
		return Usage(now), nil
	}
	source = "du"
	// The last walk is recent enough; its time is in Usage.At.
	if time.Now().Before(last.due) {
		return last.usage, nil
	}
	limits := diskusage.Limits{Time: walkTime}
	if end, ok := ctx.Deadline(); ok { // the result must be returned earlier
		limits.Time = min(limits.Time, max(time.Until(end)*3/4, 1))
	}
	now, err := last.survey.Walk(ctx, arg.Path, limits)
	if err != nil {
		return Usage{}, err
	}
	u = Usage(now)
	// An unfinished walk must not report less than the last one.
	if known := last.usage; last.survey.Unfinished() && u.Used < known.Used {
		u.Used, u.InodesUsed = known.Used, max(u.InodesUsed, known.InodesUsed)
	}
	due := u.At.Add(walkKept)
	if last.survey.Unfinished() && limits.Time < walkTime {
		due = u.At // the walk was interrupted, and the next call continues it
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if v.survey == last.survey { // otherwise the volume was set up again meanwhile
		v.usage, v.due = u, due
	}
	return u, nil
}

// claimOf returns the name of the claim of a pod's volume. The claim of a generic ephemeral
// volume is named after pod and volume.
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

// ephemeral reports whether a volume counts against limits of ephemeral-storage, as in the
// kubelet. A tmpfs counts as memory instead.
func ephemeral(spec *Spec) bool {
	v := spec.Volume
	return v != nil && (v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault || v.ConfigMap != nil)
}
