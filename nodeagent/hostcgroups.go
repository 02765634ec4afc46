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

// Cgroups of the agent, the runtime and the system, whose usage the summary API shows as system
// containers.

// hostCgroups are the cgroups of processes outside pods. They are searched until
// they are found: the runtime may start after the agent.
type hostCgroups struct {
	host     cgroups.Host
	wanted   map[string]string // configured cgroups by name
	endpoint string            // the runtime's

	// mu guards known and looked; the fields above are constant.
	mu     sync.Mutex
	known  map[string]string
	looked time.Time
}

// lookAgain is the pause before the next search if a search did not find all cgroups. Each search
// opens a connection to the runtime's socket, and scrapes are frequent.
const lookAgain = 10 * time.Second

// newHostCgroups returns hostCgroups that have not searched yet. endpoint is the endpoint of the
// runtime, or "" if it has none. An empty name in wanted means the cgroup in which the process is
// now.
func newHostCgroups(c *kubeletconfig.Config, endpoint string) *hostCgroups {
	h := &hostCgroups{endpoint: endpoint, wanted: map[string]string{
		statsapi.SystemContainerKubelet: c.KubeletCgroups, statsapi.SystemContainerRuntime: c.RuntimeCgroup,
	}}
	if c.SystemCgroups != "" {
		h.wanted[statsapi.SystemContainerMisc] = c.SystemCgroups
	}
	return h
}

// move moves the agent and other system processes into the configured cgroups. Failures
// are only logged: pods are more important. It is called once by Run, and not by New,
// so that a node that is created and never run moves no process.
func (h *hostCgroups) move(ctx context.Context, c *kubeletconfig.Config, log *zap.Logger) {
	if c.KubeletCgroups != "" {
		if err := h.host.Join(ctx, c.KubeletCgroups, os.Getpid()); err != nil {
			log.Error("failed to move agent to its cgroup", zap.String("kubeletCgroups", c.KubeletCgroups), zap.Error(err))
		}
	}
	if c.SystemCgroups != "" {
		n, err := h.host.Gather(ctx, c.SystemCgroups)
		log.Info("moved processes out of the root cgroup", zap.String("systemCgroups", c.SystemCgroups), zap.Int("moves", n), zap.Error(err))
	}
}

// all returns the cgroups that are known, by the names of the summary API. It blocks for a second
// at most, with h.mu held. The caller may change the map.
func (h *hostCgroups) all() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Found cgroups are not searched again, unless another one is missing.
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

// find returns the cgroup in which a process is now. It returns "" if the process is in the root
// cgroup, which has the usage of the whole machine.
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
