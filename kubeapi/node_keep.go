package kubeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
)

const storeKey = "node"

// Restore reads the Node that an earlier process stored, so that its labels, taints and
// pod ranges are known without an API server. Call it before Run. After an error no
// Node is known; everything else works.
func (m *NodeManager) Restore() error {
	if m.cfg.Store == nil {
		return nil
	}
	raw, err := m.cfg.Store.Read(storeKey)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var n v1.Node
	if err == nil {
		err = json.Unmarshal(raw, &n)
	}
	if err == nil && n.Name != m.cfg.Name {
		err = fmt.Errorf("record is for node %q; this node is %q", n.Name, m.cfg.Name)
	}
	if err != nil {
		return fmt.Errorf("read stored Node: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.live {
		m.node = &n
	}
	m.knows()
	return nil
}

// keepNode stores the Node without its status, if anything but the status has changed. A heartbeat
// writes nothing.
func (m *NodeManager) keepNode(ctx context.Context) {
	var kept []byte
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.keep:
		}
		n, live := m.Node()
		if n == nil || !live {
			continue
		}
		raw, err := json.Marshal(stored(n))
		if err != nil || bytes.Equal(raw, kept) {
			continue
		}
		if err := m.cfg.Store.Write(storeKey, raw); err != nil {
			m.cfg.Log.Warn("failed to store node", zap.Error(err))
			continue
		}
		kept = raw
	}
}

// stored returns the form of a Node that is stored. It has the addresses of the status, which pods
// need.
func stored(n *v1.Node) *v1.Node {
	out := &v1.Node{Spec: n.Spec, Status: v1.NodeStatus{Addresses: n.Status.Addresses}}
	out.Name, out.UID, out.Labels, out.Annotations = n.Name, n.UID, n.Labels, n.Annotations
	return out
}
