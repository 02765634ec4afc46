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

// Cgroups of the agent, the runtime and the system, whose use the summary API shows
// as system containers.

// hostCgroups are the cgroups of what runs on the node beside pods. They are
// looked for until they are found: the runtime may start after the agent.
type hostCgroups struct {
	host     cgroups.Host
	wanted   map[string]string // by name: what the configuration says
	endpoint string            // the runtime's

	// mu guards known and looked; the fields above are never changed.
	mu     sync.Mutex
	known  map[string]string
	looked time.Time
}

// lookAgain is how long after a look that did not find all the next one is. A look
// costs a connection to the runtime's socket, and scrapes come often.
const lookAgain = 10 * time.Second

// newHostCgroups looks for nothing yet. endpoint is the runtime's, or "". An empty
// name in wanted means that the process is looked for.
func newHostCgroups(c *kubeletconfig.Config, endpoint string) *hostCgroups {
	h := &hostCgroups{endpoint: endpoint, wanted: map[string]string{
		statsapi.SystemContainerKubelet: c.KubeletCgroups, statsapi.SystemContainerRuntime: c.RuntimeCgroup,
	}}
	if c.SystemCgroups != "" {
		h.wanted[statsapi.SystemContainerMisc] = c.SystemCgroups
	}
	return h
}

// move moves the agent and the rest of the system to where the configuration says.
// What fails is logged: the pods matter more. It is called once, by Run and not by
// New: an embedder that never runs its node must not find its processes moved.
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

// all are those that are known, by the names of the summary API. It blocks for a
// second at most, with h.mu held. The map is the caller's.
func (h *hostCgroups) all() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	// What was found is not looked for again, unless something else is missing.
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

// find is the cgroup that a process has already; "" if it has none of its own. The
// root is nobody's own: it would show the use of the whole machine as the agent's.
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
