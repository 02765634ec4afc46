package nodeagent

import (
	"context"
	"errors"
	"maps"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/kubeletconfig"
)

// hostCgroups are the cgroups of what runs on the node beside pods. They are
// looked for until they are found: the runtime may start after the agent.
type hostCgroups struct {
	host     cgroups.Host
	wanted   map[string]string // by name: what the configuration says
	endpoint string            // the runtime's

	mu     sync.Mutex
	known  map[string]string
	looked time.Time
}

// lookAgain is how long after a look that did not find all the next one is.
const lookAgain = 10 * time.Second

// newHostCgroups looks for nothing yet. endpoint is the runtime's, or "".
func newHostCgroups(c *kubeletconfig.Config, endpoint string) *hostCgroups {
	h := &hostCgroups{endpoint: endpoint, wanted: map[string]string{
		statsapi.SystemContainerKubelet: c.KubeletCgroups, statsapi.SystemContainerRuntime: c.RuntimeCgroup,
	}}
	if c.SystemCgroups != "" {
		h.wanted[statsapi.SystemContainerMisc] = c.SystemCgroups
	}
	return h
}

// move moves the agent and the rest of the system to where the configuration
// says. What fails is logged: the pods matter more.
func (h *hostCgroups) move(ctx context.Context, c *kubeletconfig.Config, log *zap.Logger) {
	if c.KubeletCgroups != "" {
		if err := h.host.Join(ctx, c.KubeletCgroups, os.Getpid()); err != nil {
			log.Error("the agent stays in its cgroup", zap.String("kubeletCgroups", c.KubeletCgroups), zap.Error(err))
		}
	}
	if c.SystemCgroups != "" {
		n, err := h.host.Gather(ctx, c.SystemCgroups)
		log.Info("processes were moved out of the root cgroup", zap.String("systemCgroups", c.SystemCgroups), zap.Int("moves", n), zap.Error(err))
	}
}

// all are those that are known, by the names of the summary API.
func (h *hostCgroups) all() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.known) < len(h.wanted) && time.Since(h.looked) >= lookAgain {
		h.looked, h.known = time.Now(), map[string]string{}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for name, cgroup := range h.wanted {
			if cgroup == "" || errors.Is(h.host.Exists(ctx, cgroup), cgroups.ErrNotExist) {
				cgroup = h.find(ctx, name)
			}
			if cgroup != "" {
				h.known[name] = cgroup
			}
		}
	}
	return maps.Clone(h.known)
}

// find is the cgroup that a process has already; "" if it has none of its own.
func (h *hostCgroups) find(ctx context.Context, name string) string {
	var pid int
	switch name {
	case statsapi.SystemContainerKubelet:
		pid = os.Getpid()
	case statsapi.SystemContainerRuntime:
		var err error
		if pid, err = peer(h.endpoint); err != nil {
			return ""
		}
	default:
		return ""
	}
	cgroup, err := h.host.Of(ctx, pid)
	if err != nil || cgroup == "/" {
		return ""
	}
	return cgroup
}
