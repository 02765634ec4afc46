package pressure

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/gc/logrotate"
	"github.com/nodewright/nodewright/pleg"
)

// Happened implements part.RuntimeWatcher.
func (p *Collection) Happened(ev pleg.Event) {
	died := false
	var ended []string // containers
	for _, c := range ev.Changes {
		switch c.Type {
		case pleg.ContainerDied, pleg.ContainerRemoved:
			died = died || c.Type == pleg.ContainerDied
			if !c.Sandbox {
				ended = append(ended, c.ID)
			}
		}
	}
	if died {
		p.containers.Died(ev.UID)
	}
	if p.logs != nil && p.queue.put(ev.UID, ended) {
		p.cfg.Log.Warn("log rotation is delayed to its next full pass: the disk of container logs does not answer")
	}
}

// logsOf returns the logs of a pod's running containers, as last observed.
func (p *Collection) logsOf(uid types.UID) ([]logrotate.Log, error) {
	seen := p.host.Observed(uid)
	if seen.Err != nil {
		return nil, seen.Err
	}
	var out []logrotate.Log
	for i := range seen.Pod.Containers {
		if c := &seen.Pod.Containers[i]; c.State == observed.Running {
			out = append(out, logrotate.Log{ID: c.ID, Pod: uid, Path: c.LogPath})
		}
	}
	return out, nil
}

// runningLogs returns the logs of all running containers. It returns an error if a pod was not
// observed: the list would be incomplete, and logs that are missing from it would no longer be
// rotated.
func (p *Collection) runningLogs(context.Context) ([]logrotate.Log, error) {
	var out []logrotate.Log
	for _, l := range p.host.RuntimePods() {
		logs, err := p.logsOf(l.UID)
		if err != nil {
			return nil, err
		}
		out = append(out, logs...)
	}
	return out, nil
}
