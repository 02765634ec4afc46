package cni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/nodewright/nodewright/network"
)

// grace is how long a call may take after its deadline to return its own error: the time to kill
// processes, plus a second.
const grace = pipeTimeout + killTimeout + time.Second

// executor returns an executor for the plugins of a list.
func (p *Plugin) executor(l *list, guard *os.File, left *sync.WaitGroup) *executor {
	return &executor{
		processes: p.processes, binDirs: p.cfg.BinDirs, list: l, guard: guard, left: left, pause: p.pause,
		log: p.cfg.Log,
	}
}

func (p *Plugin) libcni(x *executor) *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(p.cfg.BinDirs, p.cfg.CacheDir, x)
}

// call describes a call of plugins.
type call struct {
	id      string // ID of the attachment, or the constant everything
	verb    string
	timeout time.Duration
	guard   *os.File
}

// checkID rejects an invalid ID of an attachment: it becomes part of a file's name, and an
// argument of plugins.
func checkID(id string) error {
	if !legalName.MatchString(id) || len(id) > maxID {
		return network.Errorf(network.InvalidArgument, "ID is %q; want at most %d bytes of %s", clip(id, maxID), maxID, legalName)
	}
	return nil
}

// do runs f with a deadline. It first waits until other calls for the same ID, and the processes
// that they started, have ended. It returns when f returns, at the latest when grace has passed
// after the deadline. The guard stays locked while f or its processes run.
func do[T any](ctx context.Context, p *Plugin, c call, f func(ctx context.Context, guard *os.File, left *sync.WaitGroup) (T, error)) (T, error) {
	var none T
	if c.id != everything || c.verb != "GC" {
		if err := checkID(c.id); err != nil {
			return none, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	leave, err := p.lanes.enter(ctx, c.id)
	if err != nil {
		return none, network.Errorf(network.CodeOf(err), "%s: wait for an earlier call: %w", c.verb, err)
	}
	guard, err := hold(c.guard)
	if err != nil {
		leave()
		return none, network.Errorf(network.Unknown, "%s: hold guard: %w", c.verb, err)
	}
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		defer leave()
		if guard != nil {
			defer func() { _ = guard.Close() }()
		}
		var a answer
		var left sync.WaitGroup
		func() {
			defer recovered(&a.err)
			a.value, a.err = f(ctx, guard, &left)
		}()
		done <- a
		left.Wait()
	}()
	late := time.NewTimer(c.timeout + grace) // ctx may end before
	defer late.Stop()
	over := ctx.Done()
	for {
		select {
		case a := <-done:
			if a.err != nil {
				return none, coded(a.err)
			}
			return a.value, nil
		case <-over:
			over = nil
			late.Reset(grace)
		case <-late.C:
			return none, network.Errorf(network.DeadlineExceeded, "%s did not end at its deadline, and goes on: %w", c.verb, context.Cause(ctx))
		}
	}
}

// joinedError is the type of errors.Join.
type joinedError interface{ Unwrap() []error }

// coded gives an error the code of a wrapped error that has one. It drops the text that libcni
// adds to a plugin's error, since that text has no further information.
func coded(err error) error {
	var e *network.Error
	if _, several := err.(joinedError); !several && errors.As(err, &e) {
		return e
	}
	return &network.Error{Code: network.CodeOf(err), Err: short(err)}
}

// short shortens the text of an error that may contain untrusted text.
func short(err error) error {
	if len(err.Error()) <= 2*maxText {
		return err
	}
	return &shortened{err, clip(err.Error(), 2*maxText)}
}

type shortened struct {
	error
	text string
}

func (s *shortened) Error() string { return s.text }
func (s *shortened) Unwrap() error { return s.error }

// SetUp runs ADD of each plugin in the plan. If a process of the node or another attachment has a
// host port, it returns AlreadyExists before any plugin runs.
func (p *Plugin) SetUp(ctx context.Context, a network.Attachment, netns string, planned []byte, guard *os.File) (network.Result, error) {
	s, err := decodeSaved(planned)
	if err != nil {
		return network.Result{}, damaged(err)
	}
	c := call{id: a.ID, verb: "ADD", timeout: p.cfg.AddTimeout, guard: guard}
	r, err := do(ctx, p, c, func(ctx context.Context, guard *os.File, left *sync.WaitGroup) (network.Result, error) {
		if err := p.checkPorts(a, s.list); err != nil {
			return network.Result{}, err
		}
		if err := p.makeCache(); err != nil {
			return network.Result{}, fmt.Errorf("make the cache of results: %w", err)
		}
		result, err := p.libcni(p.executor(s.list, guard, left)).AddNetworkList(ctx, s.list.forLibcni(), s.runtime(a.ID, netns))
		if err != nil {
			return network.Result{}, err
		}
		r := network.Result{Netns: netns, Warnings: unserved(a, s.list)}
		if r.IPs, err = addresses(result, s.IfName, netns, p.cfg.Prefer); err != nil {
			return network.Result{}, err
		}
		if r.Extra, err = extra(result); err != nil {
			return network.Result{}, err
		}
		p.remember(a.ID, r.Extra)
		p.keepPorts(a, s.list)
		return r, nil
	})
	if err != nil {
		p.failed.Set() // is the network ready at all?
		return network.Result{}, naming(s.list, err)
	}
	return r, nil
}

// TearDown runs DEL of each plugin in the plan, the last one first. Without a
// readable record, it uses libcni's cache for the ID.
func (p *Plugin) TearDown(ctx context.Context, a network.Attachment, netns string, planned []byte, guard *os.File) error {
	s, bad := decodeSaved(planned)
	c := call{id: a.ID, verb: "DEL", timeout: p.cfg.DelTimeout, guard: guard}
	_, err := do(ctx, p, c, func(ctx context.Context, guard *os.File, left *sync.WaitGroup) (struct{}, error) {
		records := []*saved{s}
		if bad != nil {
			if records = p.cached(a.ID); len(records) == 0 {
				return struct{}{}, damaged(bad)
			}
		}
		var errs []error
		for _, s := range records {
			if err := p.del(ctx, s, a.ID, netns, guard, left); err != nil {
				errs = append(errs, naming(s.list, coded(err)))
			}
		}
		if len(errs) == 0 {
			p.remember(a.ID, nil)
			p.ports.Give(a.ID)
		}
		return struct{}{}, errors.Join(errs...)
	})
	return err
}

func (p *Plugin) del(ctx context.Context, s *saved, id, netns string, guard *os.File, left *sync.WaitGroup) error {
	rt := s.runtime(id, netns)
	if _, err := p.mend(s, rt); err != nil {
		return err
	}
	if err := p.libcni(p.executor(s.list, guard, left)).DelNetworkList(ctx, s.list.forLibcni(), rt); err != nil {
		return err
	}
	p.tidy(s, rt)
	return nil
}

// Check runs CHECK of each plugin. Configurations of versions below 0.4.0, and with
// disableCheck, have none.
func (p *Plugin) Check(ctx context.Context, k network.Kept, guard *os.File) error {
	s, err := decodeSaved(k.Saved)
	if err != nil {
		return damaged(err)
	}
	if k.Result != nil {
		p.mu.Lock()
		if p.results[k.Attachment.ID] == nil {
			p.results[k.Attachment.ID] = k.Result.Extra
		}
		p.mu.Unlock()
	}
	c := call{id: k.Attachment.ID, verb: "CHECK", timeout: p.cfg.CheckTimeout, guard: guard}
	_, err = do(ctx, p, c, func(ctx context.Context, guard *os.File, left *sync.WaitGroup) (struct{}, error) {
		rt := s.runtime(k.Attachment.ID, k.Netns)
		whole, err := p.mend(s, rt)
		if err != nil {
			return struct{}{}, err
		}
		err = p.libcni(p.executor(s.list, guard, left)).CheckNetworkList(ctx, s.list.forLibcni(), rt)
		switch {
		case errors.Is(err, libcni.ErrorCheckNotSupp):
			return struct{}{}, nil
		case err != nil && !whole:
			return struct{}{}, fmt.Errorf("the saved result of ADD is missing: %w", coded(err))
		}
		return struct{}{}, err
	})
	if err != nil {
		return naming(s.list, err)
	}
	return nil
}

// remember stores a result in memory. If result is nil, it removes the stored one.
func (p *Plugin) remember(id string, result []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if result == nil {
		delete(p.results, id)
		return
	}
	p.results[id] = result
}

func damaged(err error) error {
	return network.Errorf(network.FailedPrecondition, "record is damaged: %w", err)
}

// naming adds the network's name to an error, and keeps its code.
func naming(l *list, err error) error {
	return network.Errorf(network.CodeOf(err), "network %q: %w", l.name, err)
}
