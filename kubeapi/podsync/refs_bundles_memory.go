package podsync

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
)

const (
	// bundlesMemoryKey is the key of the stored bundles. bundlesSettle is how long changes are
	// collected after a write before the next write.
	bundlesMemoryKey = "bundles"
	bundlesSettle    = 5 * time.Second
)

// bundlesKept is the stored form of one ClusterTrustBundle.
type bundlesKept struct {
	Name   string            `json:"name"`
	Signer string            `json:"signer,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	PEM    string            `json:"pem"`
}

// recall reads the last bundles.
func (b *Bundles) recall() {
	if b.cfg.Memory == nil {
		return
	}
	var list []bundlesKept
	raw, err := b.cfg.Memory.Read(bundlesMemoryKey)
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			b.cfg.Log.Error("failed to read stored ClusterTrustBundles", zap.Error(err))
		}
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all, b.recalled = map[string]bundle{}, true
	for _, k := range list {
		b.all[k.Name] = bundle{k.Signer, k.Labels, decode(k.PEM)}
	}
}

// changed requests a write of all bundles. The caller holds b.mu.
func (b *Bundles) changed() {
	b.change.Set()
}

// remembers stores the bundles after changes until ctx ends, and then once more.
func (b *Bundles) remembers(ctx context.Context) {
	if b.cfg.Memory == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.change:
		}
		b.remember() // without delay: the machine may lose power soon after the first pod has started
		t := time.NewTimer(bundlesSettle)
		select {
		case <-ctx.Done():
			t.Stop()
			b.remember()
		case <-t.C:
		}
	}
}

// remember stores the bundles if they differ from the stored ones.
func (b *Bundles) remember() {
	b.mu.Lock()
	var list []bundlesKept
	for _, name := range slices.Sorted(maps.Keys(b.all)) {
		is := b.all[name]
		list = append(list, bundlesKept{name, is.signer, is.labels, string(is.anchors.encode())})
	}
	b.mu.Unlock()
	raw, err := json.Marshal(list)
	if err == nil {
		if have, err := b.cfg.Memory.Read(bundlesMemoryKey); err == nil && string(have) == string(raw) {
			return
		}
		err = b.cfg.Memory.Write(bundlesMemoryKey, raw)
	}
	if err != nil {
		b.cfg.Log.Error("failed to store ClusterTrustBundles", zap.Error(err))
	}
}
