package nodeagent

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent/lifecycle"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
)

// Makers of parts that each need little beside their configuration.

// Resize changes the resources of pods that run: see [resources.Resize].
func Resize(b *Builder) (part.Part, error) {
	return resources.NewResize(resources.ResizeConfig{Store: b.Store("grants", "resize"), KubeletDir: b.Config.RootDir, Log: b.Log.Named("resize"), Metrics: b.Metrics})
}

// subIDsUser is whose IDs pods get, where the machine sets some aside for it. It is
// the user of the kubelet's documentation for user namespaces (KEP-127), looked up
// in /etc/subuid by getsubids(1).
const subIDsUser = "kubelet"

// UserNamespaces sets IDs aside for pods with a user namespace of their own: see
// [resources.UserNamespaces]. A machine whose IDs cannot be found out goes without.
func UserNamespaces(b *Builder) (part.Part, error) {
	log := b.Log.Named("userns")
	var ids resources.UserIDs // any, on other hardware: this machine's users are not that one's
	if b.Hardware == nil {
		var err error
		if ids, _, err = resources.SubIDs(context.Background(), subIDsUser); err != nil {
			log.Error("no user namespaces for pods: failed to find out which IDs the machine sets aside for them", zap.Error(err))
			return nil, nil // a node without this part
		}
	}
	p, err := resources.NewUserNamespaces(resources.UserNamespacesConfig{
		Store: b.Store("userns", "userns"), IDsPerPod: b.Config.IDsPerPod(), First: ids.First, Count: ids.Count,
		MaxPods: int(b.Config.PodLimit(b.cpus())), Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("userNamespaces.idsPerPod %d, maxPods %d: %w", b.Config.IDsPerPod(), b.Config.MaxPods, err)
	}
	return p, nil
}

// Tokens drops the tokens of pods that are gone, where a cluster keeps some: see
// [lifecycle.Tokens]. A cluster's tokens that are not kept need no clean-up.
func Tokens(b *Builder) (part.Part, error) {
	if b.Cluster == nil {
		return nil, nil //nolint:nilnil // a node without this part
	}
	keeper, ok := b.Cluster.Tokens.(lifecycle.TokenRetainer)
	if !ok {
		return nil, nil //nolint:nilnil // it keeps none
	}
	return lifecycle.NewTokens(lifecycle.TokensConfig{Tokens: keeper})
}

// PodStarts measures how long pods take to start: see [lifecycle.PodStarts].
func PodStarts(b *Builder) (part.Part, error) {
	return lifecycle.NewPodStarts(lifecycle.PodStartsConfig{Echoed: b.Cluster != nil, Metrics: b.Metrics})
}

// Mirrors keeps pods in the cluster that stand for static ones: see package
// [lifecycle.Mirrors].
func Mirrors(b *Builder) (part.Part, error) {
	if b.Cluster == nil || b.Cluster.Mirrors == nil {
		return nil, nil //nolint:nilnil // a node without this part
	}
	return lifecycle.NewMirrors(lifecycle.MirrorsConfig{API: b.Cluster.Mirrors, Log: b.Log.Named("mirror")})
}

// HostSetup sets up the kernel, the agent's own OOM score and chains of the firewall:
// see [lifecycle.HostSetup]. It fails where the kernel's parameters differ and are
// not to be changed (protectKernelDefaults).
func HostSetup(b *Builder) (part.Part, error) {
	if b.Settings.LeaveHost {
		return nil, nil //nolint:nilnil // a node without this part
	}
	cfg := lifecycle.HostSetupConfig{
		Kernel: lifecycle.Set, OOMScore: new(int(*b.Config.OOMScoreAdj)), Chains: *b.Config.MakeIPTablesUtilChains, Log: b.Log.Named("hostsetup"),
	}
	if b.Config.ProtectKernelDefaults {
		cfg.Kernel = lifecycle.Check
	}
	p, err := lifecycle.NewHostSetup(cfg)
	if err != nil {
		return nil, fmt.Errorf("invalid configuration: %w", err)
	}
	return p, nil
}

// Swap keeps containers off the node's swap, or lets some have a share of it: see
// [resources.Swap]. It fails on a machine that has swap and is to have none.
func Swap(b *Builder) (part.Part, error) {
	p, err := resources.NewSwap(resources.SwapConfig{Allowed: !*b.Config.FailSwapOn, Limited: b.Config.LimitedSwap(), Log: b.Log.Named("swap")})
	if err != nil {
		return nil, fmt.Errorf("invalid configuration: %w", err)
	}
	return p, nil
}

// StartOrder has pods begin in the order that they ask for: see package
// [lifecycle.StartOrder].
func StartOrder(b *Builder) (part.Part, error) {
	return lifecycle.NewStartOrder(lifecycle.StartOrderConfig{Log: b.Log.Named("startorder")})
}
