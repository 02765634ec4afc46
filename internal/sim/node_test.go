package sim

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/node/status"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/cluster"
)

// nodeName is the name of the node, and what the names of static pods end with.
const nodeName = "n1"

// A whole node is a life as well: package nodeagent with all its parts, from a
// KubeletConfiguration, joined to an API server in memory, with static pods in files.

// nodeConfig is the node's KubeletConfiguration, but for what is the machine's.
const nodeConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
syncFrequency: 10m
fileCheckFrequency: 5s
nodeStatusUpdateFrequency: 10s
nodeStatusReportFrequency: 5m
nodeLeaseDurationSeconds: 40
volumeStatsAggPeriod: -1s
enableServer: false
healthzPort: 0
resolvConf: ""
failSwapOn: false
cgroupsPerQOS: false
enforceNodeAllocatable: []
cpuManagerPolicy: static
reservedSystemCPUs: "0"
shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 40}, {priority: 1000, shutdownGracePeriodSeconds: 20}]
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
containerLogMonitorInterval: 1h
`

// The files of a node, beside those of every life.
func (m *machine) configFile() string { return filepath.Join(m.dir, "kubelet.yaml") }
func (m *machine) kubeconfig() string { return filepath.Join(m.dir, "kubeconfig") }
func (m *machine) manifests() string  { return filepath.Join(m.dir, "manifests") }

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: c, users: [{name: c, user: {}}],
clusters: [{name: c, cluster: {server: "http://kubeapitest"}}], contexts: [{name: c, context: {cluster: c, user: c}}]}
`

// becomeNode has the lives on the machine be whole nodes.
func (m *machine) becomeNode() error {
	m.node, m.api, m.needs, m.kernel, m.logind = true, newAPI(m), newNeeds(), newKernel(), newLogind()
	m.rt.OfferImage(image, secondImage) // garbage collection may remove them
	m.rt.SetImageFS(m.dir)
	conf := nodeConfig + fmt.Sprintf("staticPodPath: %q\npodLogsDir: %q\n", m.manifests(), m.logs())
	if err := os.MkdirAll(m.manifests(), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(m.configFile(), []byte(conf), 0o600); err != nil {
		return err
	}
	return os.WriteFile(m.kubeconfig(), []byte(kubeconfig), 0o600)
}

// makeNode makes the node of a life. It reads the disk, and writes to it.
func (l *life) makeNode() (*nodeagent.Node, error) {
	m := l.m
	flags := kubeletconfig.NewFlags()
	flags.RootDir, flags.Hostname, flags.Kubeconfig, flags.ConfigFile = m.root(), nodeName, m.kubeconfig(), m.configFile()
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{Flags: flags})
	if err != nil {
		return nil, err
	}
	rt := nodeRuntime{&gate{Runtime: m.rt, l: l}}
	return nodeagent.New(l.ctx, nodeagent.Options{
		Config: conf, Runtime: rt, Images: rt, Hardware: m.hardware(), Machine: m.logind, Join: cluster.Through(wire{l, m.api.server.Transport()}),
		Parts: append([]nodeagent.Maker{nodeagent.PodStarts, nodeagent.Stats, nodeagent.Collection, l.figures, l.evicts, l.drivers},
			nodeagent.StandardWithout("podstart", "stats", "collection", "eviction")...),
		Agent: func(c *agent.Config) { c.Volumes.Mounter = mounter{l} },
		Settings: nodeagent.Settings{
			LeaveHost: true, PollFiles: true, NoPluginSockets: true,
		},
	})
}

// runNode is the process of a whole node.
func (l *life) runNode() error {
	n, err := l.makeNode()
	if err != nil {
		return err
	}
	f := n.Builder().Facts
	l.agent, l.offers = n.Agent, offers{f.OfferDevices, f.OfferDriver}
	l.has = givenOf(f)
	close(l.made)
	return n.Run(l.ctx)
}

// hardware is that of the machine, in its present boot.
func (m *machine) hardware() *nodeagent.Hardware {
	m.mu.Lock()
	booted := m.booted
	m.mu.Unlock()
	return &nodeagent.Hardware{
		IPs: []netip.Addr{netip.MustParseAddr("192.0.2.7")}, NUMA: node(), Booted: booted,
		KernelLog: m.kernel.open,
		Notices:   []eviction.Notifier{{Source: notices{m}, Signal: rank.SignalMemory}},
		Machine: status.Facts{
			Capacity: v1.ResourceList{
				v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("4Gi"),
				v1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
			},
			MachineID: "m", SystemUUID: "m", BootID: m.driver.bootID(), Kernel: "0", OSImage: "sim",
		},
	}
}

// plainName is the name of a pod without that of the node, which those of static pods end
// with.
func plainName(of interface {
	GetMetadata() *runtimeapi.PodSandboxMetadata
}) string {
	return strings.TrimSuffix(of.GetMetadata().GetName(), "-"+nodeName)
}

// nodeRuntime is the runtime as a whole node sees it, which asks how the runtime is.
type nodeRuntime struct{ *gate }

func (r nodeRuntime) Status(ctx context.Context, verbose bool) (out *runtimeapi.StatusResponse, err error) {
	err = r.call(ctx, "Status", "", false, nil, func() error {
		out, err = r.Runtime.Status(ctx, verbose)
		return err
	})
	return out, err
}

func (r nodeRuntime) Version(ctx context.Context, of string) (out *runtimeapi.VersionResponse, err error) {
	err = r.call(ctx, "Version", "", false, nil, func() error {
		out, err = r.Runtime.Version(ctx, of)
		return err
	})
	return out, err
}

func (r nodeRuntime) ListImages(ctx context.Context, f *runtimeapi.ImageFilter) (out []*runtimeapi.Image, err error) {
	err = r.call(ctx, "ListImages", "", false, nil, func() error {
		out, err = r.Runtime.ListImages(ctx, f)
		return err
	})
	return out, err
}

// The bounds of a whole node.
const (
	// leaseBound is how old a lease may be that is renewed: its duration.
	leaseBound = 40 * time.Second
	// reconnectBound is how long a watch may take to begin again that was cut, or whose
	// server was away: the longest back-off of it.
	reconnectBound = time.Minute
	// renewEvery and reportEvery are how often a node at rest says that it lives: at a
	// fourth of its lease's duration, and as nodeStatusReportFrequency says.
	renewEvery, reportEvery = 10 * time.Second, 5 * time.Minute
	// readsBound is how often a node at rest may ask for one resource in restFor: its watches
	// end after 5 to 10 minutes, and an object that pods refer to has a watch of its own.
	readsBound = 80
	// claimsBound is that for ResourceClaims, which a node may not watch: it reads each of
	// them every minute, and there are 20 pods at most.
	claimsBound = 24 * int(restFor/time.Minute)
	// volumesBound is that for the claims and volumes of drivers, each of which is read every
	// minute as well, for its size: there are two of them.
	volumesBound = 3 * int(restFor/time.Minute)
	// tokensBound is how many writes a node at rest has for tokens that are renewed.
	tokensBound = 100
	// rescan is how often manifests are looked at.
	rescan = 5 * time.Second
)
