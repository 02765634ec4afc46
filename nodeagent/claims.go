package nodeagent

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/node"
)

// NoClaims is the Settings.ClaimsDir of a node that records nothing of what it uses.
const NoClaims = "none"

// Claim has Run refuse to begin beside another agent of the machine that uses the same.
// It is for makers of parts and services, of what is outside of the node's root directory.
func (b *Builder) Claim(c node.Claim) { b.claims = append(b.claims, c) }

// claimPort claims a port that a service of the node listens at; 0 is any.
func (b *Builder) claimPort(address string, port int32, set string) {
	if port == 0 {
		return
	}
	b.Claim(node.Claim{Kind: "port", Name: net.JoinHostPort(address, strconv.Itoa(int(port))), Set: set})
}

// claim records what the node uses of the machine. The error is a node.ErrClaimed if another
// agent uses some of it. A record that cannot be written keeps no node from its pods.
func (n *Node) claim(ctx context.Context) error {
	b := n.builder
	if b.Settings.ClaimsDir == NoClaims || b.Hardware != nil {
		return nil
	}
	n.claimShared()
	err := node.TakeClaims(ctx, b.Settings.ClaimsDir, b.Config.RootDir, b.claims...)
	if err != nil && !errors.Is(err, node.ErrClaimed) && ctx.Err() == nil {
		b.Log.Warn("failed to record what the node uses; another agent may use the same", zap.Error(err))
		return nil
	}
	return err
}

// claimShared claims what pods of every node share: where their logs and cgroups are, and
// the runtime that knows all of them.
func (n *Node) claimShared() {
	b := n.builder
	if dir := realPath(b.Config.PodLogsDir); !strings.HasPrefix(dir, realPath(b.Config.RootDir)+string(filepath.Separator)) {
		b.Claim(node.Claim{Kind: "directory of pod logs", Name: dir, Set: "podLogsDir"})
	}
	if cgroup := b.PodsCgroup(); cgroup != "" {
		b.Claim(node.Claim{Kind: "cgroup", Name: cgroup, Set: "cgroupRoot (--cgroup-root)"})
	}
	if n.client != nil {
		b.Claim(node.Claim{Kind: "container runtime", Name: socketOf(n.endpoint), Set: "containerRuntimeEndpoint (--container-runtime-endpoint)"})
		if image := b.Config.ImageServiceEndpoint; image != "" && socketOf(image) != socketOf(n.endpoint) {
			b.Claim(node.Claim{Kind: "image service", Name: socketOf(image), Set: "imageServiceEndpoint (--image-service-endpoint)"})
		}
	}
}

// socketOf is the path of an endpoint's socket, the same for all ways to write it.
func socketOf(endpoint string) string { return realPath(strings.TrimPrefix(endpoint, "unix://")) }

// realPath is a path without links, as far as it is there.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}
