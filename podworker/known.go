package podworker

import "github.com/nodewright/nodewright/podmeta"

// PodSync is what SyncKnownPods reports one pod.
type PodSync struct {
	Kind Kind
	// Orphan reports that the pod is not wanted any more.
	Orphan bool
	// HasConfig reports that a spec is known, Static that it is a static pod.
	HasConfig, Static bool
}

// podSync is called with the workers locked. A pod of which only the runtime
// knows has no spec, and is not static.
func (p *pod) podSync(orphan bool) PodSync {
	spec := p.newest()
	return PodSync{Kind: p.stage.kind(), Orphan: orphan, HasConfig: spec != nil, Static: spec != nil && podmeta.IsStatic(spec)}
}
