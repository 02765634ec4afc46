package network

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/safefile"
)

// loadRetries is the back-off after the records could not be read. serveRetries is the back-off
// after a plugin's Recovered or Run failed.
var (
	loadRetries  = retry.Backoff{First: time.Second, Max: 30 * time.Second}
	serveRetries = retry.Backoff{First: time.Second, Max: 5 * time.Minute}
)

// noSpace is an ID that no namespace has.
const noSpace = math.MaxUint64

// Run recovers the attachments of an earlier process, tears down unfinished ones,
// and serves until ctx ends. Then it returns nil soon: it cancels the calls of
// plugins, and the next Run tears down their attachments. It may be called once,
// and returns an error otherwise.
//
// Attached IDs stay attached, unless the machine was booted since. Attachments that
// were being planned or detached are torn down. Before that, Run waits for plugins'
// processes that outlived their agent, and kills them if necessary. A damaged record is
// set aside; only its attachment is lost.
func (n *Network) Run(ctx context.Context) error {
	if !n.running.CompareAndSwap(false, true) {
		return errors.New("network: Run was called already; want one call")
	}
	defer context.AfterFunc(ctx, n.stop)()
	defer n.stop()
	unlock, err := n.lockState(ctx)
	if err != nil {
		return nil
	}
	defer unlock()
	if !n.load(ctx) {
		return nil
	}
	var serving sync.WaitGroup
	for _, p := range n.plugins {
		serving.Go(func() { n.serve(p) })
	}
	<-ctx.Done()
	n.shutDown()
	n.work.Wait()
	serving.Wait()
	return nil
}

// lockState locks StateDir, and waits while another process uses it.
func (n *Network) lockState(ctx context.Context) (unlock func(), err error) {
	wait := loadRetries
	for {
		unlock, err := n.tryLockState(ctx)
		if err == nil {
			return unlock, nil
		}
		n.notLoaded("failed to lock state directory", err)
		if !wait.Wait(ctx) {
			return nil, err
		}
	}
}

func (n *Network) tryLockState(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.DiskTimeout)
	defer cancel()
	return detached.Next(ctx, &n.store.locks, "", func() (func(), error) {
		if err := n.store.quick.Disk.MakeDir(n.cfg.StateDir); err != nil {
			return nil, err
		}
		unlock, err := lockFile(filepath.Join(n.cfg.StateDir, "lock"))
		if err == nil && ctx.Err() != nil {
			unlock()
			return nil, context.Cause(ctx)
		}
		return unlock, err
	})
}

func (n *Network) notLoaded(message string, err error) {
	if old := loadError(&n.loading); old == nil || old.Error() != err.Error() {
		n.cfg.Log.Error(message, zap.String("directory", n.cfg.StateDir), zap.Error(err))
	}
	n.loading.Store(&err)
	n.ready.Store(&readiness{Errorf(Unavailable, "network: records are not read: %w", err)})
}

// load reads the records, and tries again until that succeeds. It returns false if ctx ends
// first.
func (n *Network) load(ctx context.Context) bool {
	wait := loadRetries
	for {
		c, err := n.store.open(ctx)
		if err == nil {
			n.adopt(c)
			close(n.loaded)
			return true
		}
		n.notLoaded("failed to read records", err)
		if !wait.Wait(ctx) {
			return false
		}
	}
}

// adopt adopts what earlier processes left: it makes a plan from the records and namespaces found,
// and executes it.
func (n *Network) adopt(c contents) {
	plugins := map[string]bool{}
	for _, p := range n.plugins {
		plugins[p.name] = true
	}
	actions := plan(found{c.kept, n.findSpaces(c.kept), n.cfg.BootID, plugins, n.cfg.NetnsDir, n.cfg.Prefix})
	n.mu.Lock()
	for _, d := range c.damaged {
		n.cfg.Log.Error("renamed damaged record of network attachment; the attachment cannot be removed",
			zap.String("id", d.name), zap.String("file", d.aside), zap.Error(d.err))
		if checkID(d.name) == nil {
			n.damaged[d.name] = damageSeen{fmt.Errorf("record was set aside as %q: %w", d.aside, d.err), time.Now()}
		}
	}
	for _, a := range actions {
		if a.step != unmount {
			n.add(n.revive(a))
		}
	}
	n.mu.Unlock()
	for _, a := range actions {
		if a.step != unmount {
			continue
		}
		if err := n.unmount(n.run, a.path, a.space.ID); err != nil {
			n.cfg.Log.Warn("failed to remove network namespace that has no record", zap.String("path", a.path), zap.Error(err))
		} else {
			n.cfg.Log.Info("removed network namespace that has no record", zap.String("path", a.path))
		}
	}
}

// findSpaces checks the paths of the records' namespaces, and all namespaces with names of this
// network. If a path cannot be checked in time, the record is trusted, and the namespace is not
// changed.
func (n *Network) findSpaces(records []kept) map[string]Space {
	out := map[string]Space{}
	ctx, cancel := context.WithTimeout(n.run, n.cfg.DiskTimeout)
	defer cancel()
	see := func(path string, otherwise Space) {
		at, err := n.lookAt(ctx, path)
		if err != nil {
			n.cfg.Log.Warn("failed to inspect network namespace", zap.String("path", path), zap.Error(err))
			at = otherwise
		}
		out[path] = at
	}
	unknown := Space{Kind: SpaceForeign}
	for _, k := range records {
		if p := k.progress; p != nil && p.Space != 0 {
			see(k.record.Netns, Space{SpaceNamed, p.Space})
		} else {
			see(k.record.Netns, unknown)
		}
	}
	const limit = 4 * maxAttachments
	names, err := n.spaces.lists.Do(ctx, n.cfg.NetnsDir, func() ([]string, error) { return n.cfg.Namespaces.List(n.cfg.NetnsDir, limit) })
	if err != nil {
		n.cfg.Log.Warn("failed to list network namespaces", zap.String("directory", n.cfg.NetnsDir), zap.Error(err))
		if !errors.Is(err, safefile.ErrTooMany) {
			names = nil
		}
	}
	for _, name := range names {
		path := filepath.Join(n.cfg.NetnsDir, name)
		if _, seen := out[path]; !seen && isSpaceName(n.cfg.Prefix, name) {
			see(path, unknown)
		}
	}
	return out
}

// revive creates the entry of a record.
func (n *Network) revive(a action) *entry {
	r := a.of.record
	normalized, sum, err := normal(r.Attachment)
	if err == nil {
		r.Attachment = normalized
	}
	e := &entry{
		id: r.Attachment.ID, digest: sum, path: r.Netns, created: r.Created, name: r.Plugin,
		record: r, guardTimeout: n.cfg.TearDownTimeout, there: a.space.Kind == SpaceNamed, gone: make(chan struct{}),
	}
	for _, p := range n.plugins {
		if p.name == r.Plugin {
			e.plugin = p
		}
	}
	if p := a.of.progress; p != nil {
		e.space, e.result = p.Space, p.Result
	} else {
		e.guardTimeout = n.cfg.SetUpTimeout
	}
	if r.Boot != n.cfg.BootID {
		e.space = noSpace
	}
	switch a.step {
	case keep:
		e.state = Attached
	case lose:
		e.state, e.space = Lost, noSpace
		n.cfg.Log.Warn("network namespace of attachment is gone", zap.String("id", e.id), zap.String("path", e.path))
	case strand:
		e.state = Detaching
		e.failure = Errorf(FailedPrecondition, "network plugin %s, which attached the pod, is not configured", e.name)
		n.cfg.Log.Error("network plugin of attachment is not configured", zap.String("id", e.id), zap.String("plugin", e.name))
	default:
		e.state = Detaching
	}
	return e
}

// serve recovers a plugin, starts the operations that wait for it, and runs it.
func (n *Network) serve(p *plugged) {
	if !n.recoverPlugin(p) {
		return
	}
	close(p.recovered)
	p.failure.Store(nil)
	n.mu.Lock()
	for _, e := range n.entries {
		switch {
		case e.plugin != p || e.working || n.stopped:
		case e.state == Detaching && e.timer == nil:
			n.takeBack(e)
		case e.state == Attached && n.cfg.CheckAfterRestart:
			n.check(e)
		}
	}
	n.mu.Unlock()
	var wg sync.WaitGroup
	defer wg.Wait()
	if p == n.plugins[0] {
		n.mayHaveChanged(p)
		wg.Go(func() { n.watchStatus(p) })
	}
	n.runPlugin(p)
}

// recoverPlugin calls Recovered until it succeeds, and then Collect, if configured. No other call
// of the plugin runs meanwhile. It returns false if Run has ended.
func (n *Network) recoverPlugin(p *plugged) bool {
	wait := serveRetries
	for {
		err := n.callToEnd(p, "recovered", func(ctx context.Context) error { return p.Recovered(ctx, n.keptOf(p)) })
		if err == nil {
			break
		}
		n.notRecovered(p, err)
		if !wait.Wait(n.run) {
			return false
		}
	}
	collector, ok := p.Plugin.(Collector)
	if ok && n.cfg.Exclusive {
		err := n.callToEnd(p, "collect", func(ctx context.Context) error { return collector.Collect(ctx, n.keptOf(p)) })
		if err != nil {
			n.cfg.Log.Warn("failed to free resources without an attachment", zap.String("plugin", p.name), zap.Error(err))
		}
	}
	return n.run.Err() == nil
}

// callToEnd makes a call of a plugin and waits until it returns, even if it hangs, but
// no longer than Run lasts.
func (n *Network) callToEnd(p *plugged, verb string, f func(ctx context.Context) error) error {
	o, late := call(n, p.who(), verb, n.cfg.CollectTimeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	if late {
		n.notRecovered(p, lateError(p.who(), verb, n.cfg.CollectTimeout))
		select {
		case <-o.done:
		case <-n.run.Done():
			return context.Cause(n.run)
		}
	}
	return o.err
}

func (n *Network) notRecovered(p *plugged, err error) {
	n.cfg.Log.Error("failed to recover network plugin", zap.String("plugin", p.name), zap.Error(err))
	p.failure.Store(&err)
	if p == n.plugins[0] {
		n.setReady(Errorf(Unavailable, "network: %w", err))
	}
}

// kept returns a description of e for its plugin. The plugin may change it.
func (e *entry) kept() Kept {
	k := Kept{Attachment: clone(e.record.Attachment), Saved: slices.Clone(e.record.Saved)}
	if e.there {
		k.Netns = e.path
	}
	if e.result != nil {
		r := *e.result
		r.IPs, r.Warnings, r.Extra = slices.Clone(r.IPs), slices.Clone(r.Warnings), slices.Clone(r.Extra)
		k.Result = &r
	}
	return k
}

// keptOf lists a plugin's attachments.
func (n *Network) keptOf(p *plugged) []Kept {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var out []Kept
	for _, e := range n.entries {
		if e.plugin != p || e.record == nil {
			continue
		}
		k := e.kept()
		if e.state == Detaching {
			k.Result = nil
		}
		out = append(out, k)
	}
	return out
}

// runPlugin calls the plugin's Run, again after a failure, until Run ends.
func (n *Network) runPlugin(p *plugged) {
	wait := serveRetries
	for {
		begin := time.Now()
		stopped, err := n.runOnce(p)
		if stopped || err == nil {
			return
		}
		n.cfg.Log.Error("failed to run network plugin", zap.String("plugin", p.name), zap.Error(err))
		wait.Recovered(time.Since(begin))
		if !wait.Wait(n.run) {
			return
		}
	}
}

// runOnce calls the plugin's Run once. A call that does not return is abandoned.
func (n *Network) runOnce(p *plugged) (stopped bool, err error) {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- fmt.Errorf("panic: %v", r)
			}
		}()
		done <- p.Run(n.run, func() { n.mayHaveChanged(p) })
	}()
	select {
	case err := <-done:
		return n.run.Err() != nil, err
	case <-n.run.Done():
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case err := <-done:
		return true, err
	case <-late.C:
		n.cfg.Log.Error("network plugin did not stop", zap.String("plugin", p.name))
	}
	return true, nil
}

// check starts a check of an attachment by its plugin. n.mu is held, and no operation is running
// for the attachment.
func (n *Network) check(e *entry) {
	checker, ok := e.plugin.Plugin.(Checker)
	if !ok {
		return
	}
	e.working = true
	n.work.Go(func() { n.checkNow(e, checker) })
}

func (n *Network) checkNow(e *entry, c Checker) {
	late, err := n.checkIt(e, c)
	if err != nil {
		n.cfg.Log.Warn("failed to check attachment", zap.String("id", e.id), zap.String("plugin", e.name), zap.Error(err))
	} else {
		n.cfg.Log.Info("checked attachment", zap.String("id", e.id), zap.String("plugin", e.name))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if late != nil {
		pending := e.detach
		e.failure = err
		n.leaveBehind(e, late)
		if pending != nil {
			e.asked() // for when it returns
		}
		return
	}
	e.working = false
	if e.detach != nil {
		n.takeBack(e)
	}
}

func (n *Network) checkIt(e *entry, c Checker) (late *lateCall, err error) {
	release, err := n.acquire(n.checks)
	if err != nil {
		return nil, err
	}
	defer release()
	guard, err := n.guard(e, e.guardTimeout)
	if err != nil {
		return nil, err
	}
	k := e.kept()
	o, isLate := call(n, e.plugin.who(), "check", n.cfg.CheckTimeout, func(ctx context.Context) (struct{}, error) {
		defer n.endGuard(e, guard)
		return struct{}{}, c.Check(ctx, k, guard)
	})
	if isLate {
		err = lateError(e.plugin.who(), "check", n.cfg.CheckTimeout)
		late = &lateCall{o.done, func() {
			e.failure = nil
			if e.detach != nil {
				n.takeBack(e)
			}
		}}
	} else {
		err = o.err
	}
	return late, err
}

// shutDown prevents that new operations start.
func (n *Network) shutDown() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopped = true
	n.setReady(errStopped)
	for _, e := range n.entries {
		n.stopTimer(e)
		if !e.working && e.detach != nil {
			e.detach.finish(Result{}, errStopped)
			e.detach = nil
		}
	}
}
