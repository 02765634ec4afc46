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

// NoClaims is the value of Settings.ClaimsDir that disables the records of used resources.
const NoClaims = "none"

// Claim adds a resource of the machine that only one agent may use. If another agent uses it, Run
// fails. Makers of parts and services call Claim for resources outside of the node's root
// directory.
func (b *Builder) Claim(c node.Claim) { b.claims = append(b.claims, c) }

// claimPort claims a port at which a service of the node listens. It does nothing if port is 0,
// which means any free port. set is the name of the setting to change if another agent has the
// port.
func (b *Builder) claimPort(address string, port int32, set string) {
	if port == 0 {
		return
	}
	b.Claim(node.Claim{Kind: "port", Name: net.JoinHostPort(address, strconv.Itoa(int(port))), Set: set})
}

// claim records the resources that the node uses. If another agent uses some of them, the error
// is node.ErrClaimed. The node runs even if a record cannot be written.
func (n *Node) claim(ctx context.Context) error {
	b := n.builder
	if b.Settings.ClaimsDir == NoClaims || b.Hardware != nil {
		return nil
	}
	n.claimShared()
	err := node.TakeClaims(ctx, b.Settings.ClaimsDir, b.Config.RootDir, b.claims...)
	if err != nil && !errors.Is(err, node.ErrClaimed) && ctx.Err() == nil {
		b.Log.Warn("failed to record which ports, directories and cgroups of the machine this node uses; another agent may use the same ones", zap.Error(err))
		return nil
	}
	return err
}

// claimShared claims the resources of every node: the directory of pod logs, the
// cgroup of pods, and the runtime.
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

// socketOf returns the path of an endpoint's socket, so that endpoints written in different ways
// can be compared.
func socketOf(endpoint string) string { return realPath(strings.TrimPrefix(endpoint, "unix://")) }

// realPath resolves the symbolic links of a path, as far as the path exists.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}
