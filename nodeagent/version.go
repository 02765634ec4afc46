package nodeagent

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	semver "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"

	"github.com/nodewright/nodewright/internal/kernel"
)

// behaviour is the release of Kubernetes whose kubelet this module behaves as.
const behaviour = "v1.37.0"

// kubernetesVersion replaces behaviour if it is set. The linker sets it:
//
//	go build -ldflags "-X github.com/nodewright/nodewright/nodeagent.kubernetesVersion=v1.37.2"
var kubernetesVersion string

// KubernetesVersion returns the default Kubernetes version of nodes (see
// Options.KubernetesVersion): v1.37.0, or the version with which the program was
// linked:
//
//	go build -ldflags "-X github.com/nodewright/nodewright/nodeagent.kubernetesVersion=v1.37.2+mine"
func KubernetesVersion() string { return cmp.Or(kubernetesVersion, behaviour) }

// VersionInfo returns the description of a release, a semantic version with prefix v, like
// Kubernetes' own programs. It has the commit, state and date of this program's sources, if known.
// It returns an error if the release has another minor version than this module: API servers and
// kubeadm derive a node's features from that version.
func VersionInfo(release string) (version.Info, error) {
	v, err := semver.ParseSemantic(release)
	own := semver.MustParseSemantic(behaviour)
	if err != nil || release != "v"+v.String() || v.Major() != own.Major() || v.Minor() != own.Minor() {
		return version.Info{}, fmt.Errorf("version %q: want a semantic version v%d.%d.x, with any suffix, such as %s+mine",
			release, own.Major(), own.Minor(), behaviour)
	}
	info := version.Info{
		Major: strconv.FormatUint(uint64(v.Major()), 10), Minor: strconv.FormatUint(uint64(v.Minor()), 10), GitVersion: release,
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info, nil
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.GitCommit = s.Value
		case "vcs.time":
			info.BuildDate = s.Value
		case "vcs.modified":
			info.GitTreeState = "clean"
			if s.Value == "true" {
				info.GitTreeState = "dirty"
			}
		}
	}
	return info, nil
}

// hangingReads returns the gauge of reads of the kernel that hang, of all blocks.
func hangingReads() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nodewright_kernel_stuck_reads", Help: "Reads of /proc, /sys and cgroups that did not return in time and still run.",
	}, func() float64 { return float64(kernel.Hanging()) })
}

// buildInfo returns kubernetes_build_info, by which monitoring finds nodes of
// several versions in one cluster. Its value is always 1.
func buildInfo(info version.Info) prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_build_info", Help: "1, with the Kubernetes version of the node and its build information.",
	}, []string{"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform"})
	g.WithLabelValues(info.Major, info.Minor, info.GitVersion, info.GitCommit, info.GitTreeState, info.BuildDate, info.GoVersion, info.Compiler, info.Platform).Set(1)
	return g
}
