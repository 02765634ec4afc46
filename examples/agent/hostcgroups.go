package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/cgroups"
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

// newHostCgroups moves the agent and the rest of the system to where the
// configuration says. What fails is logged: the pods matter more.
func newHostCgroups(ctx context.Context, c *kubeletconfig.KubeletConfiguration, runtimeCgroup, endpoint string, log *zap.Logger) *hostCgroups {
	h := &hostCgroups{endpoint: endpoint, wanted: map[string]string{
		statsapi.SystemContainerKubelet: c.KubeletCgroups, statsapi.SystemContainerRuntime: runtimeCgroup,
	}}
	if c.KubeletCgroups != "" {
		if err := h.host.Join(ctx, c.KubeletCgroups, os.Getpid()); err != nil {
			log.Error("the agent stays in its cgroup", zap.String("kubeletCgroups", c.KubeletCgroups), zap.Error(err))
		}
	}
	if c.SystemCgroups != "" {
		h.wanted[statsapi.SystemContainerMisc] = c.SystemCgroups
		n, err := h.host.Gather(ctx, c.SystemCgroups)
		log.Info("processes were moved out of the root cgroup", zap.String("systemCgroups", c.SystemCgroups), zap.Int("moves", n), zap.Error(err))
	}
	return h
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

// peer is the process that listens on a Unix socket (SO_PEERCRED, unix(7)).
func peer(endpoint string) (int, error) {
	c, err := net.DialTimeout("unix", strings.TrimPrefix(endpoint, "unix://"), time.Second)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("%s is no Unix socket", endpoint)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if ctlErr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); ctlErr != nil {
		return 0, ctlErr
	}
	if err != nil {
		return 0, err
	}
	if cred.Pid <= 1 { // of another namespace, or a socket that systemd has opened
		return 0, fmt.Errorf("%s: its listener is process %d", endpoint, cred.Pid)
	}
	return int(cred.Pid), nil
}
