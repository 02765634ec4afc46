package kubeletconfig

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/topology"
)

// SetDefaults sets unset fields to the kubelet's defaults (v1beta1), if the fields are supported. A
// field that is not a pointer counts as unset if it has its zero value. Names of cgroups get a
// leading slash. SetDefaults is idempotent.
//
// Two defaults differ from the kubelet's: containerRuntimeEndpoint remains empty, so that the
// runtime can be detected, and failCgroupV1 is false.
func SetDefaults(c *v1beta1.KubeletConfiguration) {
	orDefault(&c.SyncFrequency.Duration, time.Minute)
	orDefault(&c.FileCheckFrequency.Duration, 20*time.Second)
	orDefault(&c.HTTPCheckFrequency.Duration, 20*time.Second)
	orDefault(&c.RuntimeRequestTimeout.Duration, 2*time.Minute)
	unsetDefault(&c.RegistryPullQPS, 5)
	orDefault(&c.RegistryBurst, 10)
	unsetDefault(&c.SerializeImagePulls, c.MaxParallelImagePulls == nil || *c.MaxParallelImagePulls < 2)
	orDefault(&c.ImagePullCredentialsVerificationPolicy, v1beta1.NeverVerifyPreloadedImages)
	orDefault(&c.PodLogsDir, "/var/log/pods")
	unsetDefault(&c.ResolverConfig, "/etc/resolv.conf")
	unsetDefault(&c.SeccompDefault, false)
	unsetDefault(&c.CPUCFSQuota, true)
	unsetDefault(&c.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	unsetDefault(&c.SingleProcessOOMKill, false)
	orDefault(&c.MaxPods, 110)
	unsetDefault(&c.PodPidsLimit, -1)
	unsetDefault(&c.CgroupsPerQOS, true)
	orDefault(&c.CgroupDriver, "cgroupfs")
	if c.EnforceNodeAllocatable == nil && *c.CgroupsPerQOS {
		c.EnforceNodeAllocatable = []string{"pods"}
	}
	orDefault(&c.CPUManagerPolicy, cpuNone)
	orDefault(&c.MemoryManagerPolicy, memmgr.NoneName)
	orDefault(&c.TopologyManagerPolicy, topology.NameNone)
	orDefault(&c.TopologyManagerScope, string(topology.ContainerScope))
	setServerDefaults(c)
	setClusterDefaults(c)
	setEvictionDefaults(c)
	setGCDefaults(c)
	setMachineDefaults(c)
}

func setServerDefaults(c *v1beta1.KubeletConfiguration) {
	unsetDefault(&c.HealthzPort, 10248)
	orDefault(&c.HealthzBindAddress, "127.0.0.1")
	orDefault(&c.Address, "0.0.0.0")
	orDefault(&c.Port, 10250)
	unsetDefault(&c.EnableServer, true)
	unsetDefault(&c.Authentication.Anonymous.Enabled, false)
	unsetDefault(&c.Authentication.Webhook.Enabled, true)
	orDefault(&c.Authentication.Webhook.CacheTTL.Duration, 2*time.Minute)
	orDefault(&c.Authorization.Mode, v1beta1.KubeletAuthorizationModeWebhook)
	orDefault(&c.Authorization.Webhook.CacheAuthorizedTTL.Duration, 5*time.Minute)
	orDefault(&c.Authorization.Webhook.CacheUnauthorizedTTL.Duration, 30*time.Second)
	for _, p := range []**bool{&c.EnableDebuggingHandlers, &c.EnableProfilingHandler, &c.EnableSystemLogHandler, &c.EnableDebugFlagsHandler} {
		unsetDefault(p, true)
	}
	unsetDefault(&c.EnableSystemLogQuery, false)
}

func setClusterDefaults(c *v1beta1.KubeletConfiguration) {
	unsetDefault(&c.RegisterNode, true)
	unsetDefault(&c.KubeAPIQPS, 50)
	orDefault(&c.KubeAPIBurst, 100)
	unsetDefault(&c.EventRecordQPS, 50)
	orDefault(&c.EventBurst, 100)
	// A configured nodeStatusUpdateFrequency is also the default of nodeStatusReportFrequency.
	orDefault(&c.NodeStatusReportFrequency, c.NodeStatusUpdateFrequency)
	orDefault(&c.NodeStatusReportFrequency.Duration, 5*time.Minute)
	orDefault(&c.NodeStatusUpdateFrequency.Duration, 10*time.Second)
	unsetDefault(&c.NodeStatusMaxImages, 50)
	orDefault(&c.NodeLeaseDurationSeconds, 40)
}

func setEvictionDefaults(c *v1beta1.KubeletConfiguration) {
	unsetDefault(&c.MergeDefaultEvictionSettings, false)
	unsetDefault(&c.LocalStorageCapacityIsolation, true)
	if c.EvictionHard == nil {
		c.EvictionHard = rank.Defaults()
	} else if *c.MergeDefaultEvictionSettings {
		all := rank.Defaults()
		maps.Copy(all, c.EvictionHard)
		c.EvictionHard = all
	}
	orDefault(&c.EvictionPressureTransitionPeriod.Duration, 5*time.Minute)
}

func setGCDefaults(c *v1beta1.KubeletConfiguration) {
	orDefault(&c.ImageMinimumGCAge.Duration, 2*time.Minute)
	unsetDefault(&c.ImageGCHighThresholdPercent, 85)
	unsetDefault(&c.ImageGCLowThresholdPercent, 80)
	orDefault(&c.ContainerLogMaxSize, "10Mi")
	unsetDefault(&c.ContainerLogMaxFiles, 5)
	unsetDefault(&c.ContainerLogMaxWorkers, 1)
	unsetDefault(&c.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
}

// orDefault sets a field to def if it has its zero value.
func orDefault[T comparable](p *T, def T) {
	var zero T
	if *p == zero {
		*p = def
	}
}

// unsetDefault sets a nil pointer to def. It keeps a pointer to a zero value.
func unsetDefault[T any](p **T, def T) {
	if *p == nil {
		*p = &def
	}
}
