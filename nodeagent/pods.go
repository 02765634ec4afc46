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

// Resize makes the part that changes the resources of running pods: see
// [resources.Resize].
func Resize(b *Builder) (part.Part, error) {
	return resources.NewResize(resources.ResizeConfig{Store: b.Store("grants", "resize"), KubeletDir: b.Config.RootDir, Log: b.Log.Named("resize"), Metrics: b.Metrics})
}

// subIDsUser is the user whose subordinate IDs pods get: the user of the kubelet's
// documentation for user namespaces (KEP-127), in /etc/subuid by getsubids(1).
const subIDsUser = "kubelet"

// UserNamespaces makes the part that allocates IDs for pods with a user namespace: see
// [resources.UserNamespaces]. It returns nil if the machine's ranges of IDs cannot be read.
func UserNamespaces(b *Builder) (part.Part, error) {
	log := b.Log.Named("userns")
	var ids resources.UserIDs // other hardware: any IDs, since the users of this machine do not matter there
	if b.Hardware == nil {
		var err error
		if ids, _, err = resources.SubIDs(context.Background(), subIDsUser); err != nil {
			log.Error("disabled user namespaces for pods: failed to read subordinate IDs", zap.Error(err))
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

// Tokens makes the part that drops the tokens of pods that are gone, if a cluster
// stores any: see [lifecycle.Tokens].
func Tokens(b *Builder) (part.Part, error) {
	if b.Cluster == nil {
		return nil, nil //nolint:nilnil // a node without this part
	}
	keeper, ok := b.Cluster.Tokens.(lifecycle.TokenRetainer)
	if !ok {
		return nil, nil //nolint:nilnil // the cluster stores no tokens
	}
	return lifecycle.NewTokens(lifecycle.TokensConfig{Tokens: keeper})
}

// PodStarts makes the part that measures the start of pods: see
// [lifecycle.PodStarts].
func PodStarts(b *Builder) (part.Part, error) {
	return lifecycle.NewPodStarts(lifecycle.PodStartsConfig{Echoed: b.Cluster != nil, Metrics: b.Metrics})
}

// Mirrors makes the part that maintains mirror pods in the cluster: see
// [lifecycle.Mirrors].
func Mirrors(b *Builder) (part.Part, error) {
	if b.Cluster == nil || b.Cluster.Mirrors == nil {
		return nil, nil //nolint:nilnil // a node without this part
	}
	return lifecycle.NewMirrors(lifecycle.MirrorsConfig{API: b.Cluster.Mirrors, Log: b.Log.Named("mirror")})
}

// HostSetup makes the part that sets kernel parameters, the agent's own OOM score
// and firewall chains: see [lifecycle.HostSetup]. It fails if kernel parameters
// differ and must not be changed (protectKernelDefaults).
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

// Swap makes the part that limits swap of containers: see [resources.Swap]. It returns
// an error if the machine has swap and failSwapOn is set.
func Swap(b *Builder) (part.Part, error) {
	p, err := resources.NewSwap(resources.SwapConfig{Allowed: !*b.Config.FailSwapOn, Limited: b.Config.LimitedSwap(), Log: b.Log.Named("swap")})
	if err != nil {
		return nil, fmt.Errorf("invalid configuration: %w", err)
	}
	return p, nil
}

// StartOrder makes the part for the start order that pods request: see
// [lifecycle.StartOrder].
func StartOrder(b *Builder) (part.Part, error) {
	return lifecycle.NewStartOrder(lifecycle.StartOrderConfig{Log: b.Log.Named("startorder")})
}
