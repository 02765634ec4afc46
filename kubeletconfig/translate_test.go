package kubeletconfig

import (
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/gc"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/node/shutdown"
	"github.com/nodewright/nodewright/numa"
)

// Each concern of a configuration, in the words of its block.
func TestTranslate(t *testing.T) {
	capacity := v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("8Gi")}
	left := func(c *Config, name v1.ResourceName) string {
		q := c.Node(capacity).Allocatable()[name]
		return q.String()
	}
	for _, tc := range []struct {
		name, content string
		got           func(c *Config) any
		want          any
	}{
		{"images by default", "", func(c *Config) any { return c.ImageGC() }, gc.ImagePolicy{High: 85, Low: 80, MinAge: 2 * time.Minute}},
		{"images", "imageGCHighThresholdPercent: 90\nimageGCLowThresholdPercent: 50\nimageMinimumGCAge: 1m\nimageMaximumGCAge: 24h",
			func(c *Config) any { return c.ImageGC() }, gc.ImagePolicy{High: 90, Low: 50, MinAge: time.Minute, MaxAge: 24 * time.Hour}},
		{"logs", "containerLogMaxSize: 1Mi\ncontainerLogMaxFiles: 3", func(c *Config) any {
			l, ok := c.LogRotation()
			return []any{ok, l.MaxSize, l.MaxFiles, l.Workers, l.Longest}
		}, []any{true, int64(1 << 20), 3, 1, 10 * time.Second}},
		{"no rotation", "containerLogMaxSize: '-1'", func(c *Config) any { _, ok := c.LogRotation(); return ok }, false},
		{"no shutdown", "", func(c *Config) any { return c.ShutdownTime() }, time.Duration(0)},
		{"shutdown", "shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s",
			func(c *Config) any { return []any{c.Shutdown().Requested, c.Shutdown().Critical, c.ShutdownTime()} },
			[]any{30 * time.Second, 10 * time.Second, 30 * time.Second}},
		{"shutdown by priority", "shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 20}, {priority: 9, shutdownGracePeriodSeconds: 5}]",
			func(c *Config) any { return []any{c.Shutdown().Groups, c.ShutdownTime()} },
			[]any{[]shutdown.Group{{Priority: 0, Time: 20 * time.Second}, {Priority: 9, Time: 5 * time.Second}}, 25 * time.Second}},
		{"pods", "", func(c *Config) any { return c.PodLimit(4) }, int64(110)},
		{"pods by core", "podsPerCore: 10", func(c *Config) any { return c.PodLimit(4) }, int64(40)},
		{"fewer pods than by core", "podsPerCore: 10\nmaxPods: 30", func(c *Config) any { return c.PodLimit(4) }, int64(30)},
		{"reserved CPUs by number", "systemReserved: {cpu: 300m}\nkubeReserved: {cpu: '1'}",
			func(c *Config) any {
				q := c.Reserved(v1.ResourceCPU)
				return []any{q.String(), c.CPUReservation().MilliCPU}
			}, []any{"1300m", int64(1300)}},
		{"reserved CPUs by list", "systemReserved: {cpu: 300m}\nkubeReserved: {cpu: '1'}\nreservedSystemCPUs: 0-1", func(c *Config) any {
			r := c.CPUReservation()
			return []any{left(c, v1.ResourceCPU), r.CPUs.String(), r.MilliCPU}
		}, []any{"6", "0-1", int64(0)}},
		{"reserved memory", "systemReserved: {memory: 412Mi}", func(c *Config) any { return left(c, v1.ResourceMemory) }, "7680Mi"},
		{"reserved memory by node", "memoryManagerPolicy: Static\nsystemReserved: {memory: 412Mi}", func(c *Config) any {
			r, err := c.MemoryReservation(numa.Uniform(2, 1, 4, 1, 4<<30), 8<<30)
			return []any{r[0][memmgr.Memory] + r[1][memmgr.Memory], err}
		}, []any{uint64(512 << 20), nil}},
		{"nothing is placed", "", func(c *Config) any { return c.PlacesNothing() }, true},
		{"devices are placed", "topologyManagerPolicy: restricted", func(c *Config) any { return c.PlacesNothing() }, false},
		{"pods are placed", "featureGates: {PodLevelResourceManagers: true}", func(c *Config) any { return c.PodLevelResources() }, true},
		{"options of topology", "topologyManagerPolicy: restricted\ntopologyManagerPolicyOptions: {prefer-closest-numa-nodes: 'true'}",
			func(c *Config) any { return c.TopologyOptions().PreferClosest }, true},
		{"options of CPUs", "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: 'true'}", func(c *Config) any { return c.CPUOptions().FullPCPUsOnly }, true},
		{"no cgroups", "cgroupsPerQOS: false", func(c *Config) any { _, ok := c.Cgroups(capacity); return ok }, false},
		{"cgroups", "cgroupRoot: /edge\ncgroupDriver: systemd\npodPidsLimit: 100\ncpuCFSQuotaPeriod: 20ms\nqosReserved: {memory: 50%}", func(c *Config) any {
			g, ok := c.Cgroups(capacity)
			return []any{ok, g.Root, g.Driver, g.Pids, g.CPUPeriod, g.NoCPUQuota, g.QOSReserved, g.Enforce}
		}, []any{true, "/edge", cgroups.Systemd, int64(100), 20 * time.Millisecond, false, map[v1.ResourceName]string{"memory": "50%"}, []cgroups.Enforcement{"pods"}}},
		{"process IDs of a machine", "systemReserved: {pid: '3000'}", pidsOf("100000"), []any{int64(46_000), int64(92_000)}},
		{"process IDs of a pod", "podPidsLimit: 4096", pidsOf("100000"), []any{int64(4096), int64(95_000)}},
		{"process IDs of a small machine", "", pidsOf("1"), []any{int64(1), int64(1)}},
		{"memory as it is", "memoryReservationPolicy: None", func(c *Config) any {
			throttling, reserve, on := c.MemoryQoS()
			g, _ := c.Cgroups(capacity)
			return []any{throttling, reserve, on, g.ReserveMemory}
		}, []any{0.0, false, false, false}},
		{"memory throttled", "memoryThrottlingFactor: 0.5", func(c *Config) any {
			throttling, reserve, on := c.MemoryQoS()
			g, _ := c.Cgroups(capacity)
			return []any{throttling, reserve, on, g.ReserveMemory}
		}, []any{0.5, false, true, false}},
		{"memory guarded", "memoryReservationPolicy: TieredReservation", func(c *Config) any {
			throttling, reserve, on := c.MemoryQoS()
			g, _ := c.Cgroups(capacity)
			return []any{throttling, reserve, on, g.ReserveMemory}
		}, []any{0.0, true, true, true}},
		{"cgroups that hold nobody", "enforceNodeAllocatable: []", func(c *Config) any { g, _ := c.Cgroups(capacity); return g.Enforce }, []cgroups.Enforcement{"none"}},
		{"thresholds", "evictionHard: {memory.available: 1Gi}\nenforceNodeAllocatable: [none]", func(c *Config) any {
			list, err := c.Thresholds()
			return []any{len(list), list[0].Signal, list[0].Value.Value, err}
		}, []any{1, rank.SignalMemory, int64(1 << 30), nil}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, _, _, err := load(t, configHead+tc.content+"\n")
			if err != nil {
				t.Fatal(err)
			}
			if got := tc.got(c); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestDeepCopy(t *testing.T) {
	c, _, err := loadWith(t, configHead+"clusterDNS: [10.0.0.1]\n", "--node-labels=a=b", "--node-ip=10.0.0.2", "--v=3")
	if err != nil {
		t.Fatal(err)
	}
	other := c.DeepCopy()
	if !reflect.DeepEqual(other, c) {
		t.Errorf("%+v, copied %+v", c, other)
	}
	other.ClusterDNS[0], other.NodeLabels["a"], other.NodeIPs[0] = "", "", ""
	if c.ClusterDNS[0] == "" || c.NodeLabels["a"] == "" || c.NodeIPs[0] == "" {
		t.Errorf("the copy shares %+v", c)
	}
}

// Redacted returns a copy without secrets.
func TestRedacted(t *testing.T) {
	c, _, _, err := load(t, configHead+"staticPodURL: https://me:hidden@pods.example/x?token=hidden\nstaticPodURLHeader: {Authorization: [Bearer hidden]}\n")
	if err != nil {
		t.Fatal(err)
	}
	r := c.Redacted()
	if r.StaticPodURL != "https://me:xxxxx@pods.example/x?masked" || !reflect.DeepEqual(r.StaticPodURLHeader, map[string][]string{"Authorization": {"<masked>"}}) {
		t.Errorf("redacted: %q, %q", r.StaticPodURL, r.StaticPodURLHeader)
	}
	if c.StaticPodURLHeader["Authorization"][0] != "Bearer hidden" {
		t.Error("the configuration was changed")
	}
}

// An error about an invalid URL has no secrets either.
func TestMistakenURL(t *testing.T) {
	for _, bad := range []string{"ftp://me:hidden@pods.example/?token=hidden", "https://me:hidden@%zz/"} {
		if _, _, _, err := load(t, configHead+"staticPodURL: '"+bad+"'\n"); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// Defaults done twice come to the same, and a configuration without any is valid.
func TestSetDefaultsTwice(t *testing.T) {
	var c Config
	if err := Validate(&c.KubeletConfiguration); err != nil || c.SyncFrequency.Duration != 0 {
		t.Errorf("%v, or it was changed", err)
	}
	SetDefaults(&c.KubeletConfiguration)
	once := c.DeepCopy()
	SetDefaults(&c.KubeletConfiguration)
	if !reflect.DeepEqual(once.KubeletConfiguration, c.KubeletConfiguration) {
		t.Errorf("once %+v, twice %+v", once, c.KubeletConfiguration)
	}
}

// pidsOf returns the limits of process IDs of a pod and of all pods, on a machine with so many.
func pidsOf(all string) func(*Config) any {
	return func(c *Config) any {
		g, _ := c.Cgroups(v1.ResourceList{"cpu": resource.MustParse("2"), "pid": resource.MustParse(all)})
		forPods := g.Node.ForPods()["pid"]
		return []any{g.Pids, forPods.Value()}
	}
}
