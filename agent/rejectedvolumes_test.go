package agent_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/volumemgr"
)

// sweptVolumes notes whose volumes the last sweep kept.
type sweptVolumes struct {
	mu   sync.Mutex
	kept map[types.UID]bool
}

func (*sweptVolumes) Mount(context.Context, *v1.Pod) (volumemgr.Mounts, error) { return nil, nil }
func (*sweptVolumes) Unmount(context.Context, types.UID) error                 { return nil }
func (*sweptVolumes) Remove(context.Context, types.UID) error                  { return nil }

func (s *sweptVolumes) Sweep(_ context.Context, known func(types.UID) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = map[types.UID]bool{}
	for _, uid := range []types.UID{"u-runs", "u-rejected", "u-gone"} {
		s.kept[uid] = known(uid)
	}
	return nil
}

// A pod that is rejected may have volumes of before a restart: they are taken down although
// it is still wanted.
func TestVolumesOfRejectedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, v := agenttest.New(t), &sweptVolumes{}
		n.Config.Volumes.Manager = v
		n.Start()
		runs, rejected := agenttest.Pod("runs", agenttest.Container("c")), agenttest.Pod("rejected", agenttest.Container("c"))
		runs.UID, rejected.UID = "u-runs", "u-rejected"
		rejected.Spec.NodeSelector = map[string]string{"no": "such"}
		n.Want(runs, rejected)
		n.Await("runs", agenttest.Ready)
		time.Sleep(2 * time.Minute)
		v.mu.Lock()
		defer v.mu.Unlock()
		if !v.kept["u-runs"] || v.kept["u-rejected"] || v.kept["u-gone"] {
			t.Errorf("volumes kept: %v", v.kept)
		}
	})
}
