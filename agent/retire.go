package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/internal/keep"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/internal/podcheck"
	"github.com/nodewright/nodewright/statusmgr"
)

// keeper returns the Keeper that removes the state of pods that are gone. Every component with
// state of pods is listed here, except the workers: housekeeping drops their pods itself, since the
// workers decide which pods are gone.
func (a *Agent) keeper() *keep.Keeper {
	type isKnown = func(types.UID) bool
	// plain wraps a component that returns no error.
	plain := func(of string, retain func(isKnown)) keep.Store {
		return keep.Store{Of: of, Retain: func(_ context.Context, known isKnown) error { retain(known); return nil }}
	}
	disk := []keep.Store{
		{Of: "cgroups", Retain: a.sweepCgroups}, // the directories decide which cgroups belong to this agent
		// A volume that cannot be unmounted keeps its directory. Nothing else unmounts the volumes
		// of pods that were rejected after a restart, and other pods wait for their devices.
		{Of: "directories", Retain: func(ctx context.Context, known isKnown) error {
			return a.volumes.Sweep(ctx, func(uid types.UID) bool { return known(uid) && !a.rejectedAtRest(uid) })
		}},
	}
	for _, h := range a.hooks.Sweepers {
		disk = append(disk, keep.Store{Of: "part " + h.Name, Retain: func(ctx context.Context, known isKnown) error {
			return a.guard.Call(h.Name, func() error { return h.Hook.Sweep(ctx, known) })
		}})
	}
	return keep.New(keep.Config{
		Memory: []keep.Store{
			plain("statuses", a.statuses.Retain), plain("probes", a.probes.Retain), plain("events", a.events.Retain),
		},
		Disk: append(disk,
			keep.Store{Of: "published statuses", Retain: a.pruneSink},
			plain("starts of containers", a.runtime.Retain),
			plain("pulls of images", a.images.Retain),
			keep.Store{Of: "admissions", Retain: a.finish}, // the last one: parts are called when nothing of a pod is left
		),
		Wanted: a.wanted, Again: func() { a.run.cleanup.Set() }, Beside: a.background, Log: a.log,
	})
}

// finish calls the Finishers for pods of which nothing is left, and then drops the pods. If a part
// returns an error, the next sweep calls it again.
func (a *Agent) finish(ctx context.Context, keep func(types.UID) bool) error {
	var errs []error
	for uid, e := range a.book.At(book.Unknown, book.Waiting, book.Admitted, book.Rejected) {
		if keep(uid) || a.mayHaveDir(uid) {
			continue
		}
		// A pod that was never admitted has no resources that a part could release.
		if e.Stage == book.Admitted && len(a.hooks.Finishers) > 0 {
			if err := hooks.InTurn(a.guard, a.hooks.Finishers, func(f part.Finisher) error { return f.Gone(ctx, e.Ref) }); err != nil {
				errs = append(errs, fmt.Errorf("finish pod %s: %w", uid, err))
				continue
			}
		}
		// If the entry has changed since it was read, the pod may be back, and is kept.
		a.book.ForgetIf(uid, e.Changes)
	}
	return errors.Join(errs...)
}

// mayHaveDir reports whether a pod may have a directory. A pod with a UID that is not a plain name
// never had one.
func (a *Agent) mayHaveDir(uid types.UID) bool {
	if podcheck.UID(uid) != nil {
		return false
	}
	_, err := os.Lstat(a.podDir(uid))
	return !errors.Is(err, fs.ErrNotExist)
}

// pruneSink makes the sink drop the statuses of unknown pods. It returns no error, since a
// status that stays does no harm.
func (a *Agent) pruneSink(context.Context, func(types.UID) bool) error {
	p, ok := a.cfg.Status.Sink.(statusmgr.Pruner)
	if !ok {
		return nil
	}
	all := map[types.UID]bool{}
	for _, p := range a.pods.Pods() {
		all[p.UID] = true
	}
	for _, w := range a.workers.List() {
		all[w.UID] = true
	}
	for _, l := range a.pleg.Pods() {
		all[l.UID] = true
	}
	return a.guard.Call("sink", func() error { return p.Prune(all) })
}

// sweepCgroups removes the cgroups of pods that are gone. Only cgroups of pods that have a
// directory of this agent belong to it.
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
