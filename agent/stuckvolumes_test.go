package agent_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/volumemgr"
)

// stuckVolumes are never taken down.
type stuckVolumes struct{ tries int }

func (*stuckVolumes) Mount(context.Context, *v1.Pod) (volumemgr.Mounts, error) {
	return volumemgr.Mounts{}, nil
}
func (s *stuckVolumes) Unmount(ctx context.Context, uid types.UID) error { return s.Remove(ctx, uid) }
func (s *stuckVolumes) Remove(context.Context, types.UID) error {
	s.tries++
	if s.tries > 1000 {
		return nil
	}
	return errors.New("target is busy")
}
func (*stuckVolumes) Sweep(context.Context, func(types.UID) bool) error { return nil }

// A pod whose volumes cannot be taken down is tried again with pauses.
func TestStuckVolumesAreTriedWithPauses(t *testing.T) {
	for _, kind := range []podmgr.Kind{podmgr.Static, podmgr.API} {
		synctest.Test(t, func(t *testing.T) {
			n, stuck := newNode(t), &stuckVolumes{}
			n.kind = kind
			n.configure = func(c *agent.Config) { c.Volumes.Manager = stuck }
			n.want = []*v1.Pod{newPod("p", runs("c"))}
			l := n.start()
			settle()
			l.wantPhase("p", v1.PodRunning)
			n.want = nil
			l.tell()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if stuck.tries > 30 {
				t.Errorf("%d tries in 10 minutes", stuck.tries)
			}
			l.stop()
		})
	}
}
