package part

import (
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
)

// RunningContainers returns the names of the containers that run or may run, by pod, from the last
// observations. A pod that could not be observed is logged and has no entry.
func RunningContainers(rt Runtime, log *zap.Logger) map[types.UID][]string {
	out := map[types.UID][]string{}
	for _, l := range rt.RuntimePods() {
		seen := rt.Observed(l.UID)
		if seen.Depth == observed.Unseen {
			log.Error("failed to observe pod; its containers count as not running", zap.String("uid", string(l.UID)), zap.Error(seen.Err))
			continue
		}
		for i := range seen.Pod.Containers {
			if c := &seen.Pod.Containers[i]; c.State.Runs() != observed.No {
				out[l.UID] = append(out[l.UID], c.Name)
			}
		}
	}
	return out
}
