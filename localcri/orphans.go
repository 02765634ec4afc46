//go:build linux

package localcri

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/safefile"
)

// orphans returns the IDs that have leftovers but no record. ids has all IDs with leftovers and
// the times of their creation; known has the IDs with a record. The result begins with the oldest
// IDs, since the newest ones may belong to objects that are being created.
func orphans(ids map[string]int64, known map[string]bool) []string {
	out := slices.Collect(maps.Keys(ids))
	out = slices.DeleteFunc(out, func(id string) bool { return known[id] || !isID(id) })
	slices.SortFunc(out, func(a, b string) int {
		if d := ids[a] - ids[b]; d != 0 {
			return int(min(max(d, -1), 1))
		}
		return strings.Compare(a, b)
	})
	return out
}

// undoOrphans removes leftovers of a crash that have no record. It removes the leftovers of
// containers first, since containers use parts of sandboxes.
func (r *Runtime) undoOrphans(ctx context.Context) {
	for _, left := range []struct {
		kind string
		list func(context.Context) map[string]int64
		undo func(context.Context, string) error
	}{{"container", r.leftContainers, r.undoContainer}, {"sandbox", r.leftSandboxes, r.undoSandbox}} {
		// known is read after the list, since an object that was removed meanwhile is handled by
		// its own removal.
		known := r.known()
		there := left.list(ctx)
		maps.Copy(known, r.known())
		for _, id := range orphans(there, known) {
			if ctx.Err() != nil {
				return
			}
			r.undoOrphan(ctx, left.kind, id, left.undo)
		}
	}
}

func (r *Runtime) undoOrphan(ctx context.Context, kind, id string, undo func(context.Context, string) error) {
	if r.known()[id] { // created meanwhile
		return
	}
	r.log.Warn("removing leftover without record", zap.String("kind", kind), zap.String("id", id))
	if err := undo(ctx, id); err != nil && ctx.Err() == nil {
		r.log.Warn("failed to remove leftover", zap.String("kind", kind), zap.String("id", id), zap.Error(err))
		r.do(func(ctx context.Context) {
			r.persist(ctx, "failed to remove leftover", id, func() error { return undo(ctx, id) })
		})
	}
}

// known returns the IDs of all sandboxes and containers, including containers whose
// files are being removed.
func (r *Runtime) known() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]bool, len(r.pods)+len(r.containers))
	for id := range r.pods {
		out[id] = true
	}
	for id := range r.containers {
		out[id] = true
	}
	maps.Copy(out, r.erasing)
	return out
}

// note adds the names in a directory to out, with the times of their last change. If out has a
// name already, it keeps the later time.
func note(out map[string]int64, dir string) {
	entries, err := safefile.Entries(dir, maxObjects)
	if err != nil {
		return
	}
	for _, e := range entries {
		at := int64(0)
		if fi, err := e.Info(); err == nil {
			at = fi.ModTime().UnixNano()
		}
		out[e.Name()] = max(out[e.Name()], at)
	}
}

// leftContainers returns all IDs for which something of a container exists. An infra process has the
// ID of its sandbox.
func (r *Runtime) leftContainers(ctx context.Context) map[string]int64 {
	out := map[string]int64{}
	note(out, r.rootPath(containersDir))
	owners, err := r.cfg.Images.Owners(ctx)
	if err != nil {
		r.log.Warn("failed to list leases of images", zap.Error(err))
	}
	for _, o := range owners {
		if id := ownerOf(o); id != "" {
			out[id] += 0
		}
	}
	sandboxes := r.leftSandboxes(ctx)
	note(out, r.statePath(streamsDir))
	for name := range r.cfg.Handlers {
		note(out, r.statePath(executorsDir, name))
	}
	maps.DeleteFunc(out, func(id string, _ int64) bool { _, is := sandboxes[id]; return is })
	return out
}

// leftSandboxes returns all IDs for which something of a sandbox exists.
func (r *Runtime) leftSandboxes(context.Context) map[string]int64 {
	out := map[string]int64{}
	note(out, r.rootPath(sandboxesDir))
	note(out, r.statePath(monitorsDir))
	ids, err := r.spaces.List()
	if err != nil {
		r.log.Warn("failed to list namespaces of sandboxes", zap.Error(err))
	}
	for _, id := range ids {
		out[id] += 0
	}
	for _, info := range r.cfg.Network.List() {
		if isID(info.ID) {
			out[info.ID] = max(out[info.ID], info.Created.UnixNano())
		}
	}
	return out
}

// undoContainer kills and removes everything with a container's ID.
func (r *Runtime) undoContainer(ctx context.Context, id string) error {
	for name := range r.cfg.Handlers {
		if err := r.executors[name].Delete(ctx, id, true); err != nil {
			return err
		}
	}
	return r.eraseContainer(ctx, id, newSaver())
}

// undoSandbox removes everything of a sandbox.
func (r *Runtime) undoSandbox(ctx context.Context, id string) error {
	if err := r.undoContainer(ctx, id); err != nil { // its infra process
		return err
	}
	step, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	if m, state, err := r.monitors.Connect(step, id); err == nil {
		for _, k := range state.Containers {
			if k.Exit == nil && isID(k.Container.ID) {
				if err := r.undoContainer(ctx, k.Container.ID); err != nil {
					return err
				}
			}
		}
		err := busyMonitor(step, func() error { return m.Quit(step) })
		m.Close()
		if err != nil {
			return err
		}
	}
	var errs []error
	if slices.ContainsFunc(r.cfg.Network.List(), func(i infoOf) bool { return i.ID == id }) {
		if err := r.cfg.Network.Detach(ctx, id); err != nil {
			errs = append(errs, networkError(err))
		}
	}
	errs = append(errs, r.spaces.Remove(ctx, id))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := errors.Join(removeTree(r.rootPath(sandboxesDir, id)), removeTree(r.statePath(streamsDir, id)), removeTree(r.statePath(monitorsDir, id))); err != nil {
		return err
	}
	return r.sandboxRecords.DeleteContext(ctx, id)
}
