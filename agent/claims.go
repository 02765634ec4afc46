package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/claims"
)

// bound are the claims and the volumes of the sources, which nobody binds.
type bound struct{ *Agent }

func (b bound) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	if c, ok := b.pods.Claim(namespace, name); ok {
		return c, nil
	}
	return nil, claims.ErrNotFound
}

func (b bound) Volume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	if pv, ok := b.pods.Volume(name); ok {
		return pv, nil
	}
	return nil, claims.ErrNotFound
}

// here is the node as the affinity of volumes sees it.
func (a *Agent) here() volumemgr.Here {
	return volumemgr.Here{Name: a.cfg.Node.Name, Labels: a.cfg.Node.Labels}
}
