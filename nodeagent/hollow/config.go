package hollow

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/node/status"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/numa"
)

// Config configures a [Node]. Name, Dir, and one of Kubeconfig and Transport are required. Every
// other field has a default for its zero value.
type Config struct {
	Name string
	// Dir is the absolute path of a directory for this node alone; it is created.
	Dir string
	// Kubeconfig is the kubeconfig file of the node. Its user needs the permissions of
	// the node Name: system:node:NAME in the group system:nodes.
	Kubeconfig string
	// Transport makes the requests to the API server, for example to a server of package
	// kubeapitest. Kubeconfig must then have no TLS options. If Transport is nil, requests go to
	// the server of Kubeconfig.
	Transport http.RoundTripper

	Labels map[string]string // labels of the node
	Taints []v1.Taint        // taints of the node
	IP     netip.Addr        // the default is 198.18.0.1, of the range for benchmarks (RFC 2544)

	CPUs      int            // the default is 4
	Memory    int64          // bytes; the default is 16 GiB
	Storage   int64          // bytes; the default is 100 GiB
	Pods      int            // maximum number of pods; the default is 110
	NUMANodes int            // number of NUMA nodes, with equal parts of CPUs and memory; the default is 1
	Devices   map[string]int // number of devices by resource, spread over the NUMA nodes

	// Latency is how long the runtime takes to create a sandbox, to pull an image, and to start a
	// container. The default is 0.
	Latency time.Duration
	// FailureRate is the share of these calls that fail, from 0 to 1. The default is 0.
	FailureRate float64
	// Seed decides which calls fail. Equal seeds let the same calls fail.
	Seed uint64

	// Configure may change the node's configuration, for policies, thresholds and reservations.
	// It may be nil.
	Configure func(*kubeletconfig.Config)

	Log     *zap.Logger          // if nil, nothing is logged
	Metrics *prometheus.Registry // if nil, metrics are not exported
}

func (c Config) withDefaults() Config {
	c.IP = cmpAddr(c.IP, netip.AddrFrom4([4]byte{198, 18, 0, 1}))
	c.CPUs, c.Pods, c.NUMANodes = cmp.Or(c.CPUs, 4), cmp.Or(c.Pods, 110), cmp.Or(c.NUMANodes, 1)
	c.Memory, c.Storage = cmp.Or(c.Memory, 16<<30), cmp.Or(c.Storage, 100<<30)
	return c
}

func cmpAddr(a, b netip.Addr) netip.Addr {
	if a.IsValid() {
		return a
	}
	return b
}

func (c *Config) validate() error {
	var errs []error
	if c.Name == "" {
		errs = append(errs, errors.New("field Config.Name is required"))
	}
	if !filepath.IsAbs(c.Dir) {
		errs = append(errs, fmt.Errorf("Config.Dir is %q; want an absolute path", c.Dir))
	}
	if c.Kubeconfig == "" && c.Transport == nil {
		errs = append(errs, errors.New("one of Config.Kubeconfig and Config.Transport is required"))
	}
	if c.NUMANodes < 1 || c.CPUs < c.NUMANodes || c.CPUs%c.NUMANodes != 0 {
		errs = append(errs, fmt.Errorf("Config.CPUs is %d and NUMANodes %d; want at least one CPU for each NUMA node, and the same number for each", c.CPUs, c.NUMANodes))
	}
	if c.Memory < 1 || c.Storage < 1 || c.Pods < 1 {
		errs = append(errs, fmt.Errorf("Config.Memory is %d, Storage %d, Pods %d; want 1 or more of each", c.Memory, c.Storage, c.Pods))
	}
	if c.FailureRate < 0 || c.FailureRate > 1 {
		errs = append(errs, fmt.Errorf("Config.FailureRate is %v; want 0 to 1", c.FailureRate))
	}
	if c.Latency < 0 {
		errs = append(errs, fmt.Errorf("Config.Latency is %v; want 0 or more", c.Latency))
	}
	for name, n := range c.Devices {
		if n < 1 {
			errs = append(errs, fmt.Errorf("Config.Devices[%s] is %d; want 1 or more", name, n))
		}
	}
	return errors.Join(errs...)
}

// hardware returns the description of the machine.
func (c *Config) hardware() *nodeagent.Hardware {
	return &nodeagent.Hardware{
		IPs:    []netip.Addr{c.IP},
		NUMA:   numa.Uniform(c.NUMANodes, 1, c.CPUs/c.NUMANodes, 1, uint64(c.Memory)/uint64(c.NUMANodes)), //nolint:gosec // validated
		Booted: time.Now(),
		Machine: status.Facts{
			Capacity: v1.ResourceList{
				v1.ResourceCPU:              *resource.NewQuantity(int64(c.CPUs), resource.DecimalSI),
				v1.ResourceMemory:           *resource.NewQuantity(c.Memory, resource.BinarySI),
				v1.ResourceEphemeralStorage: *resource.NewQuantity(c.Storage, resource.BinarySI),
			},
			MachineID: c.Name, SystemUUID: c.Name, BootID: c.Name, Kernel: "0.0.0-hollow", OSImage: "hollow",
		},
	}
}

// inMemory is a kubeconfig for a transport that needs no address.
const inMemory = `{apiVersion: v1, kind: Config, current-context: c, users: [{name: c, user: {}}],
clusters: [{name: c, cluster: {server: "http://kubeapitest"}}], contexts: [{name: c, context: {cluster: c, user: c}}]}
`

// configuration returns the configuration for package nodeagent.
func (c *Config) configuration() (*kubeletconfig.Config, error) {
	flags := kubeletconfig.NewFlags()
	flags.RootDir, flags.Hostname, flags.Kubeconfig = filepath.Join(c.Dir, "root"), c.Name, c.Kubeconfig
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{Flags: flags})
	if err != nil {
		return nil, err
	}
	conf.PodLogsDir, conf.MaxPods = filepath.Join(c.Dir, "logs"), int32(min(c.Pods, 1<<20)) //nolint:gosec // bounded
	conf.NodeLabels, conf.RegisterWithTaints = c.Labels, c.Taints
	no, none := false, int32(0)
	conf.EnableServer, conf.HealthzPort, conf.ResolverConfig = &no, &none, new(string)
	conf.FailSwapOn, conf.FailCgroupV1, conf.CgroupsPerQOS = &no, &no, &no // these settings concern the host
	conf.EnforceNodeAllocatable = nil
	conf.ImageGCHighThresholdPercent = new(int32(100)) // never reached: images need no space
	if c.Configure != nil {
		c.Configure(conf)
	}
	if c.Kubeconfig == "" {
		conf.Kubeconfig = filepath.Join(c.Dir, "kubeconfig")
		if err := os.MkdirAll(c.Dir, 0o750); err != nil {
			return nil, err
		}
		if err := os.WriteFile(conf.Kubeconfig, []byte(inMemory), 0o600); err != nil {
			return nil, err
		}
	}
	return conf, kubeletconfig.Validate(&conf.KubeletConfiguration)
}
