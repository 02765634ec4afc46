package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/internal/podcheck"
	"github.com/nodewright/nodewright/statusmgr"
)

// What is dropped when a pod is gone. Whatever keeps something of pods is named here: what is
// in memory alone in forget, what may block on a disk in remains. Workers drop their pods in
// housekeeping itself, which knows by them who is gone.

// forget drops what is kept in memory of pods that are gone. It runs on the loop.
func (a *Agent) forget(known map[types.UID]bool) {
	isKnown := func(uid types.UID) bool { return known[uid] }
	a.statuses.Retain(known)
	a.probes.Retain(isKnown)
	a.events.Retain(isKnown)
	for uid := range a.run.unsure.Range {
		if !known[uid.(types.UID)] {
			a.run.unsure.Delete(uid)
		}
	}
}

// remains is something that is left of pods that are gone, and may take a disk to remove.
type remains struct {
	of     string // for the log
	remove func(ctx context.Context, keep func(types.UID) bool) error
}

// remains lists them in the order in which they are removed. Known are the pods that the loop
// knows of.
func (a *Agent) remains(known map[types.UID]bool) []remains {
	list := []remains{
		{"cgroups", a.sweepCgroups}, // it goes by the directories
		// A volume that will not go keeps its directory. Those of pods that were rejected after a
		// restart have nobody else who takes them down, and others wait for their devices.
		{"directories", func(ctx context.Context, keep func(types.UID) bool) error {
			return a.volumes.Sweep(ctx, func(uid types.UID) bool { return keep(uid) && !a.rejectedAtRest(uid) })
		}},
	}
	for _, h := range a.hooks.Sweepers {
		list = append(list, remains{"part " + h.Name, func(ctx context.Context, keep func(types.UID) bool) error {
			return a.guard.Call(h.Name, func() error { return h.Hook.Sweep(ctx, keep) })
		}})
	}
	return append(list,
		remains{"published statuses", func(context.Context, func(types.UID) bool) error { return a.pruneSink(known) }},
		remains{"starts of containers", func(_ context.Context, keep func(types.UID) bool) error { a.runtime.Retain(keep); return nil }},
		remains{"pulls of images", func(_ context.Context, keep func(types.UID) bool) error { a.images.Retain(keep); return nil }},
		remains{"admissions", a.finish}, // the last: parts are told that nothing is left
	)
}

// sweep removes what is left of pods that nothing knows. It runs beside the loop
// and may block on disks. Each step sees pods that came after known was made. Every
// step is tried, whatever becomes of the others; their errors, which it returns as well, are
// logged.
func (a *Agent) sweep(ctx context.Context, known map[types.UID]bool) error {
	keep := func(uid types.UID) bool { return known[uid] || a.wanted(uid) }
	var errs []error
	for _, r := range a.remains(known) {
		err := r.remove(ctx, keep)
		a.logged("failed to remove what is left of pods that are gone", err, zap.String("of", r.of))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// finish informs the parts of pods of which nothing is left, and forgets those. One
// that a part cannot finish is told of again with the next sweep.
func (a *Agent) finish(ctx context.Context, keep func(types.UID) bool) error {
	var errs []error
	for uid, e := range a.book.At(book.Unknown, book.Waiting, book.Admitted, book.Rejected) {
		if keep(uid) || a.mayHaveDir(uid) {
			continue
		}
		// A pod that was never admitted was given nothing that a part could take
		// back.
		if e.Stage == book.Admitted && len(a.hooks.Finishers) > 0 {
			if err := hooks.InTurn(a.guard, a.hooks.Finishers, func(f part.Finisher) error { return f.Gone(ctx, e.Ref) }); err != nil {
				errs = append(errs, fmt.Errorf("finish pod %s: %w", uid, err))
				continue
			}
		}
		// Unless the entry has changed since it was read: the pod may be back.
		a.book.ForgetIf(uid, e.Changes)
	}
	return errors.Join(errs...)
}

// mayHaveDir reports whether a pod may have a directory. One with a UID that would
// lead elsewhere never got any.
func (a *Agent) mayHaveDir(uid types.UID) bool {
	if podcheck.UID(uid) != nil {
		return false
	}
	_, err := os.Lstat(a.podDir(uid))
	return !errors.Is(err, fs.ErrNotExist)
}

// pruneSink has the sink drop the statuses of pods that nothing knows. The list is
// at its largest when the sink gets it: a status too many does no harm.
func (a *Agent) pruneSink(known map[types.UID]bool) error {
	p, ok := a.cfg.Status.Sink.(statusmgr.Pruner)
	if !ok {
		return nil
	}
	keep := maps.Clone(known)
	for _, p := range a.pods.Pods() { // those that came since
		keep[p.UID] = true
	}
	return a.guard.Call("sink", func() error { return p.Prune(keep) })
}

// sweepCgroups removes the cgroups of pods that are gone. Only those that this
// agent has a directory of were its own.
func (a *Agent) sweepCgroups(ctx context.Context, keep func(types.UID) bool) error {
	if a.cfg.Cgroups == nil {
		return nil
	}
	gone, err := a.cfg.Cgroups.Sweep(ctx, func(uid types.UID) bool {
		return keep(uid) || !a.mayHaveDir(uid)
	})
	for _, uid := range gone {
		a.log.Info("removed the cgroup of a pod that is gone", zap.String("uid", string(uid)))
	}
	return err
}
