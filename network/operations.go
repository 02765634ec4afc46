package network

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/detached"
)

// atPoint is called between the steps of an operation; tests end the process there.
var atPoint = func(string) {}

// lateCall is a plugin's call that has not returned.
type lateCall struct {
	done <-chan struct{}
	// then is called with Network.mu held when the plugin's call returns.
	then func()
}

// attachNow does the work of Attach, in a goroutine of its own.
func (n *Network) attachNow(e *entry, a Attachment, owner *os.File) {
	if owner != nil {
		defer func() { _ = owner.Close() }()
	}
	begin := time.Now()
	result, late, err := n.setUp(e, a, owner)
	log := n.cfg.Log.With(zap.String("id", e.id), zap.String("pod", a.Namespace+"/"+a.Name), zap.String("plugin", e.name), zap.Duration("took", time.Since(begin)))
	if err != nil {
		log.Warn("failed to attach pod to network", zap.Error(err))
		err = fmt.Errorf("attach %s: %w", e.id, err)
	} else {
		log.Info("attached pod to network", zap.Stringers("ips", result.IPs), zap.Strings("warnings", result.Warnings))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case late != nil:
		e.state, e.failure = Detaching, err
		n.leaveBehind(e, late)
	case err == nil:
		e.state, e.result, e.working = Attached, &result, false
		if e.detach != nil {
			n.takeBack(e)
		}
	case e.record == nil:
		n.nothingMade(e)
	default:
		e.state, e.working = Detaching, false
		n.takeBack(e)
	}
	e.attach.finish(result, err)
}

// nothingMade ends an attachment of which nothing exists any more. The caller holds n.mu.
func (n *Network) nothingMade(e *entry) {
	e.detach.finish(Result{}, nil)
	e.detach = nil
	n.drop(e)
}

// leaveBehind abandons a call that hangs: nothing else is done for e until it returns. The caller
// holds n.mu.
func (n *Network) leaveBehind(e *entry, late *lateCall) {
	e.working, e.hung = true, true
	e.detach.finish(Result{}, e.failure)
	e.detach = nil
	go func() {
		<-late.done
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.entries[e.id] != e { // given up
			return
		}
		e.working, e.hung = false, false
		late.then()
	}()
}

// setUp is the part of attachNow that runs without n.mu. late is a plugin's call that hangs, or
// nil if there is none.
func (n *Network) setUp(e *entry, a Attachment, owner *os.File) (r Result, late *lateCall, err error) {
	release, err := n.acquire(n.slots)
	if err != nil {
		return r, nil, err
	}
	defer release()
	p := e.plugin
	if n.Status() != nil { // it may be old
		if err := n.askStatus(p); err != nil {
			return r, nil, err
		}
	}
	if at, err := n.look(e.path); err != nil {
		return r, nil, fmt.Errorf("look for namespace: %w", err)
	} else if at.Kind != SpaceNone {
		return r, nil, inTheWay(e.path)
	}
	if late, err = n.planNow(e, a); err != nil {
		return r, late, err
	}
	atPoint("planned")
	if err := n.store.plan(n.run, e.record, p.durable); err != nil {
		return r, nil, fmt.Errorf("write record: %w", err)
	}
	atPoint("recorded")
	if late, err := n.makeSpace(e, owner); err != nil {
		return r, late, err
	}
	atPoint("namespace")
	r, late, err = n.setUpNow(e, a)
	if err != nil {
		if late == nil {
			n.mayHaveChanged(p)
		}
		return r, late, err
	}
	atPoint("set up")
	if err := n.store.progress(n.run, e.id, progress{Token: e.record.Token, Space: e.space, Result: &r}); err != nil {
		return r, nil, fmt.Errorf("write result: %w", err)
	}
	atPoint("attached")
	return r, nil, nil
}

func inTheWay(path string) error {
	return Errorf(FailedPrecondition, "foreign file at the path of the network namespace, %s; remove it first", path)
}

// planTimeout is the deadline of a plugin's Plan, which makes nothing.
const planTimeout = 10 * time.Second

// planNow calls the plugin's Plan, and creates the record.
func (n *Network) planNow(e *entry, a Attachment) (*lateCall, error) {
	p := e.plugin
	planned, late := call(n, p.who(), "plan", planTimeout, func(ctx context.Context) ([]byte, error) {
		saved, err := p.Plan(ctx, clone(a))
		return append([]byte(nil), saved...), err
	})
	recorded := func() { // n.mu is held
		e.record = &record{
			Plugin: p.name, Attachment: a, Saved: planned.value, Netns: e.path,
			Boot: n.cfg.BootID, Created: e.created.Round(0), Token: rand.Text(),
		}
	}
	if late {
		return &lateCall{planned.done, func() {
			if planned.err != nil {
				n.nothingMade(e)
				return
			}
			recorded()
			n.takeBack(e)
		}}, lateError(p.who(), "plan", planTimeout)
	}
	if planned.err != nil {
		return nil, planned.err
	}
	n.mu.Lock()
	recorded()
	n.mu.Unlock()
	if err := checkSaved(planned.value); err != nil {
		return nil, fmt.Errorf("%s: the plugin's plan: %w", p.who(), err)
	}
	return nil, nil
}

// makeSpace creates the namespace. The kernel may take long, so this call may be abandoned like a
// plugin's call.
func (n *Network) makeSpace(e *entry, owner *os.File) (*lateCall, error) {
	made, late := call(n, "network", "make namespace", n.cfg.DiskTimeout, func(ctx context.Context) (uint64, error) {
		return n.cfg.Namespaces.Make(ctx, e.path, owner)
	})
	switch {
	case late:
		return &lateCall{made.done, func() { n.takeBack(e) }}, lateError("network", "make namespace", n.cfg.DiskTimeout)
	case errors.Is(made.err, fs.ErrExist):
		e.foreign = true
		return nil, inTheWay(e.path)
	case made.err != nil:
		return nil, made.err
	}
	e.space = made.value
	return nil, nil
}

// setUpNow calls the plugin's SetUp.
func (n *Network) setUpNow(e *entry, a Attachment) (Result, *lateCall, error) {
	p := e.plugin
	guard, err := n.guard(e, 0)
	if err != nil {
		return Result{}, nil, err
	}
	saved := append([]byte(nil), e.record.Saved...)
	o, late := call(n, p.who(), "set up", n.cfg.SetUpTimeout, func(ctx context.Context) (Result, error) {
		defer n.endGuard(e, guard)
		return p.SetUp(ctx, clone(a), e.path, saved, guard)
	})
	if late {
		return Result{}, &lateCall{o.done, func() { n.takeBack(e) }}, lateError(p.who(), "set up", n.cfg.SetUpTimeout)
	}
	if o.err != nil {
		return Result{}, nil, o.err
	}
	r, err := checkResult(p.Name(), o.value, e.path)
	if err != nil {
		return r, nil, fmt.Errorf("%s: set up: %w", p.who(), err)
	}
	return r, nil, nil
}

// detachNow tears an attachment down. It is called for Detach, after a failed Attach,
// and in the recovery.
func (n *Network) detachNow(e *entry) {
	begin := time.Now()
	late, err := n.tearDown(e)
	log := n.cfg.Log.With(zap.String("id", e.id), zap.String("plugin", e.name), zap.Duration("took", time.Since(begin)))
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		log.Info("detached pod from network")
		n.nothingMade(e)
		return
	}
	err = fmt.Errorf("detach %s: %w", e.id, err)
	e.failure = err
	if late != nil {
		log.Warn("failed to remove pod network", zap.Error(err))
		n.leaveBehind(e, late)
		return
	}
	e.detach.finish(Result{}, err)
	e.detach, e.working = nil, false
	if !n.stopped {
		n.retryLater(e)
		log.Warn("failed to remove pod network", zap.Error(err), zap.Duration("retryIn", e.pause))
	}
}

// retryLater schedules another TearDown after a pause. The caller holds n.mu.
func (n *Network) retryLater(e *entry) {
	if n.stopped || e.plugin == nil {
		return
	}
	e.pause = n.retries.Following(e.pause)
	e.timer = time.AfterFunc(e.pause, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.entries[e.id] == e && !e.working && e.timer != nil && !n.stopped {
			n.takeBack(e)
		}
	})
}

// tearDown is the part of detachNow that runs without n.mu. late is a plugin's call that hangs,
// or nil if there is none.
func (n *Network) tearDown(e *entry) (late *lateCall, err error) {
	p := e.plugin
	select {
	case <-p.recovered:
	case <-n.run.Done():
	}
	if n.run.Err() != nil {
		return nil, errStopped
	}
	var guard *os.File
	if !e.tornDown {
		if guard, err = n.guard(e, e.guardTimeout); err != nil { // which may take long, so without a slot
			return nil, err
		}
	}
	release, err := n.acquire(n.slots)
	if err != nil {
		n.endGuard(e, guard)
		return nil, err
	}
	defer release()
	if !e.tornDown {
		if late, err := n.tearDownNow(e, guard); err != nil {
			return late, err
		}
		e.tornDown = true
	}
	atPoint("torn down")
	if err := n.removeSpace(n.run, e, e.space); err != nil {
		return nil, err
	}
	atPoint("namespace removed")
	if err := n.store.remove(n.run, e.id); err != nil {
		return nil, fmt.Errorf("remove record: %w", err)
	}
	atPoint("record removed")
	return nil, nil
}

func (n *Network) tearDownNow(e *entry, guard *os.File) (*lateCall, error) {
	p, r := e.plugin, e.record
	// The progress is written first. Otherwise, after a crash, a later agent could mistake a partly
	// removed network for a complete one. Its owner has to detach it again then.
	if err := n.store.progress(n.run, e.id, progress{Token: r.Token, Space: e.space, Detaching: true}); err != nil {
		n.cfg.Log.Warn("failed to record detachment of pod", zap.String("id", e.id), zap.Error(err))
	}
	atPoint("detaching")
	netns := ""
	at, err := n.look(e.path)
	if err != nil {
		n.endGuard(e, guard)
		return nil, fmt.Errorf("look for namespace: %w", err)
	}
	if at.Kind == SpaceNamed && !e.foreign && (e.space == 0 || e.space == at.ID) {
		netns = e.path
	}
	saved := append([]byte(nil), r.Saved...)
	o, late := call(n, p.who(), "tear down", n.cfg.TearDownTimeout, func(ctx context.Context) (struct{}, error) {
		defer n.endGuard(e, guard)
		return struct{}{}, p.TearDown(ctx, clone(r.Attachment), netns, saved, guard)
	})
	if late {
		return &lateCall{o.done, func() {
			if e.detach != nil {
				n.takeBack(e)
			} else {
				n.retryLater(e)
			}
		}}, lateError(p.who(), "tear down", n.cfg.TearDownTimeout)
	}
	return nil, o.err
}

// guard returns the locked guard of a call, or nil if the plugin needs none.
func (n *Network) guard(e *entry, wait time.Duration) (*os.File, error) {
	if !e.plugin.durable {
		return nil, nil
	}
	f, killed, err := n.store.guard(n.run, fileName(e.id), wait)
	if killed {
		n.cfg.Log.Warn("killed network plugin of an earlier agent", zap.String("id", e.id), zap.String("plugin", e.name))
	}
	if err != nil {
		return nil, fmt.Errorf("lock guard: %w", err)
	}
	return f, nil
}

func (n *Network) endGuard(e *entry, guard *os.File) {
	if guard == nil {
		return
	}
	if err := dropGuard(n.store.guards, fileName(e.id)); err != nil {
		n.cfg.Log.Warn("failed to remove guard", zap.String("id", e.id), zap.Error(err))
	}
	_ = guard.Close()
}

// spaceCalls limits the concurrent uses of the directory of namespaces.
type spaceCalls struct {
	looks   detached.Group[Space]
	removes detached.Group[struct{}]
	lists   detached.Group[[]string]
}

func (n *Network) look(path string) (Space, error) {
	ctx, cancel := context.WithTimeout(n.run, n.cfg.DiskTimeout)
	defer cancel()
	return n.lookAt(ctx, path)
}

func (n *Network) lookAt(ctx context.Context, path string) (Space, error) {
	return n.spaces.looks.Do(ctx, path, func() (Space, error) { return n.cfg.Namespaces.Look(path) })
}

// removeSpace removes a namespace. A foreign file at the path is kept.
func (n *Network) removeSpace(ctx context.Context, e *entry, id uint64) error {
	if e.foreign {
		return nil
	}
	err := n.unmount(ctx, e.path, id)
	if errors.Is(err, ErrForeign) {
		n.cfg.Log.Warn("kept foreign file at the path of a namespace", zap.String("id", e.id), zap.String("path", e.path))
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove namespace: %w", err)
	}
	return nil
}

func (n *Network) unmount(ctx context.Context, path string, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.DiskTimeout)
	defer cancel()
	_, err := n.spaces.removes.Do(ctx, path, func() (struct{}, error) { return struct{}{}, n.cfg.Namespaces.Remove(path, id) })
	return err
}
