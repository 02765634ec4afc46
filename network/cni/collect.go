package cni

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/nodewright/nodewright/network"
)

// Collect runs DEL for attachments in libcni's cache that are not in keep. Then it runs GC with
// those in keep, for the list in use and the lists of those attachments. While Collect runs, no
// other verb runs for any attachment. If a verb of an attachment hangs, only Collect waits for
// it.
func (p *Plugin) Collect(ctx context.Context, keep []network.Kept) error {
	c := call{id: everything, verb: "GC", timeout: p.cfg.GCTimeout}
	_, err := do(ctx, p, c, func(ctx context.Context, _ *os.File, left *sync.WaitGroup) (struct{}, error) {
		valid := p.valid(keep)
		errs := []error{p.collectCached(ctx, valid, left)}
		args := &libcni.GCArgs{}
		for _, id := range slices.Sorted(maps.Keys(valid)) {
			args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: id, IfName: ifName})
		}
		for _, l := range p.lists(keep) {
			if err := p.collect(ctx, l, args, left); err != nil {
				errs = append(errs, fmt.Errorf("network %q: %w", l.name, err))
			}
		}
		return struct{}{}, errors.Join(errs...)
	})
	return err
}

// valid returns the IDs in use: those in keep, and those that were set up after keep
// was listed.
func (p *Plugin) valid(keep []network.Kept) map[string]bool {
	valid := map[string]bool{}
	for _, k := range keep {
		valid[k.Attachment.ID] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.results {
		valid[id] = true
	}
	return valid
}

// lists returns the list in use and the lists of the attachments, each once.
func (p *Plugin) lists(keep []network.Kept) []*list {
	var all []*list
	add := func(l *list) {
		if !slices.ContainsFunc(all, func(o *list) bool { return o.version == l.version && bytes.Equal(o.bytes, l.bytes) }) {
			all = append(all, l)
		}
	}
	p.mu.Lock()
	if p.list != nil {
		add(p.list)
	}
	p.mu.Unlock()
	for _, k := range keep {
		if s, err := decodeSaved(k.Saved); err == nil {
			add(s.list)
		}
	}
	return all
}

func (p *Plugin) collect(ctx context.Context, l *list, args *libcni.GCArgs, left *sync.WaitGroup) (err error) {
	defer recovered(&err)
	return p.libcni(p.executor(l, nil, left)).GCNetworkList(ctx, l.forLibcni(), args)
}

// collectCached runs DEL with the configuration that ADD used. libcni would use the current
// configuration.
func (p *Plugin) collectCached(ctx context.Context, valid map[string]bool, left *sync.WaitGroup) error {
	all, err := p.entries()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range all {
		if valid[e.ContainerID] {
			continue
		}
		s, err := e.record()
		if err == nil && !s.list.parsed.DisableGC {
			// Without the namespace, since its path may lead to another one by now.
			err = p.del(ctx, s, e.ContainerID, "", nil, left)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("attachment %s of network %q: %w", e.ContainerID, e.NetworkName, err))
		}
	}
	return errors.Join(errs...)
}
