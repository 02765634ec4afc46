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
	var out []Stats
	var errs []error
	for _, v := range m.measureAll(ctx, uid) {
		u, err := v.wait(ctx)
		if errors.Is(err, ErrNoUsage) {
			continue
		}
		if err != nil {
			errs = append(errs, &Error{Volume: v.names[0], Err: err})
			// The last known usage is a lower bound, so that a failed walk does not hide an
			// exceeded limit.
			if u, u.AtLeast = v.kept, true; u.At.IsZero() {
				continue
			}
		}
		for _, name := range v.names {
			out = append(out, Stats{Name: name, Claim: claimOf(v.arg.Pod, name), Ephemeral: ephemeral(v.arg.Spec), Usage: u})
		}
	}
	slices.SortFunc(out, func(a, b Stats) int { return strings.Compare(a.Name, b.Name) })
	return out, errors.Join(errs...)
}

// measurement is the measurement of a volume by a goroutine.
type measurement struct {
	arg    *Volume
	names  []string
	kept   Usage         // usage of the last walk; At is zero if there was none
	result chan measured // buffered, so that a goroutine that outlives the call of Stats does not block
}

type measured struct {
	usage Usage
	err   error
}

// wait returns the result. After the end of ctx it is an error: a statfs call cannot be interrupted
// if its server is gone. The call is not repeated before it has returned.
func (v *measurement) wait(ctx context.Context) (Usage, error) {
	select {
	case r := <-v.result:
		return r.usage, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-v.result: // it arrived at the same time
		return r.usage, r.err
	default:
		return Usage{}, ctx.Err()
	}
}

// measureAll starts to measure the pod's mounted volumes.
func (m *Manager) measureAll(ctx context.Context, uid types.UID) (all []*measurement) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil {
		return nil
	}
	for _, v := range p.volumes {
		if v.has != present || !v.desired || v.key.block {
			continue
		}
		one := &measurement{arg: m.arg(v), names: v.outer, kept: v.usage, result: make(chan measured, 1)}
		all = append(all, one)
		if v.measuring {
			one.result <- measured{err: fmt.Errorf("%w: measure usage of volume", ErrHung)}
			continue
		}
		// The goroutine clears it, however long the measurement takes.
		v.measuring = true
		if v.survey == nil {
			v.survey = &diskusage.Survey{}
		}
		walked := walked{v.usage, v.due, v.survey}
		go func() {
			u, err := m.measure(ctx, v, one.arg, walked)
			m.mu.Lock()
			v.measuring = false
			m.mu.Unlock()
			one.result <- measured{u, err}
		}()
	}
	return all
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
