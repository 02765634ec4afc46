package kubeletconfig

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/internal/quantity"
)

// Validate checks the supported fields and returns an error with a [Mistake] for each invalid value,
// in a fixed order, at most a hundred. For an unset field it checks the default. It does not modify
// c.
func Validate(c *v1beta1.KubeletConfiguration) error {
	c = c.DeepCopy()
	SetDefaults(c)
	return joined(mistakes(c), func(Mistake) string { return "invalid configuration: " })
}

// mistakes returns the mistakes of a configuration whose defaults are set.
func mistakes(c *v1beta1.KubeletConfiguration) (found []Mistake) {
	bad := func(field string, value any, want string) { found = append(found, Mistake{field, value, want}) }
	for _, validate := range []func(*v1beta1.KubeletConfiguration, reporter){
		validateIntervals, validatePulls, validateHealthz, validatePaths, validatePods, validateReserved, validateCgroups, validatePlacement,
		validateServer, validateCluster, validateTaints, validateEviction, validateShutdown, validateGC, validateLogging, validateGates,
		validateMachine, validateSysctls,
	} {
		validate(c, bad)
	}
	return found
}

// number, interval and text each have the name and the value of a field to check.
type (
	number struct {
		field string
		n     int32
	}
	interval struct {
		field string
		d     time.Duration
	}
	text struct{ field, value string }
)

func notNegative(bad reporter, fields ...number) {
	for _, f := range fields {
		if f.n < 0 {
			bad(f.field, f.n, "0 or more")
		}
	}
}

// positive reports negative durations. A duration of 0 is allowed, since it means the default.
func positive(bad reporter, fields ...interval) {
	for _, f := range fields {
		if f.d < 0 {
			bad(f.field, f.d.String(), "a duration above 0")
		}
	}
}

func oneOf(bad reporter, field, value string, allowed ...string) bool {
	ok := slices.Contains(allowed, value)
	if !ok {
		bad(field, value, "one of "+strings.Join(allowed, ", "))
	}
	return ok
}

func validateIntervals(c *v1beta1.KubeletConfiguration, bad reporter) {
	positive(bad, interval{"syncFrequency", c.SyncFrequency.Duration}, interval{"fileCheckFrequency", c.FileCheckFrequency.Duration},
		interval{"httpCheckFrequency", c.HTTPCheckFrequency.Duration}, interval{"runtimeRequestTimeout", c.RuntimeRequestTimeout.Duration})
}

func validatePulls(c *v1beta1.KubeletConfiguration, bad reporter) {
	if c.MaxOpenFiles < 0 {
		bad("maxOpenFiles", c.MaxOpenFiles, "0 or more; 0 leaves the limit as it is")
	}
	notNegative(bad, number{"registryPullQPS", *c.RegistryPullQPS}, number{"registryBurst", c.RegistryBurst},
		number{"maxPods", c.MaxPods}, number{"podsPerCore", c.PodsPerCore})
	if n := c.MaxParallelImagePulls; n != nil {
		switch {
		case *n < 1:
			bad("maxParallelImagePulls", *n, "1 or more")
		case *n > 1 && *c.SerializeImagePulls:
			bad("maxParallelImagePulls", *n, "1, or serializeImagePulls: false")
		}
	}
	const allowlisted = string(v1beta1.NeverVerifyAllowlistedImages)
	policy := string(c.ImagePullCredentialsVerificationPolicy)
	if oneOf(bad, "imagePullCredentialsVerificationPolicy", policy, string(v1beta1.NeverVerify), string(v1beta1.NeverVerifyPreloadedImages),
		allowlisted, string(v1beta1.AlwaysVerify)) && len(c.PreloadedImagesVerificationAllowlist) > 0 && policy != allowlisted {
		bad("preloadedImagesVerificationAllowlist", c.PreloadedImagesVerificationAllowlist,
			"none, or imagePullCredentialsVerificationPolicy: "+allowlisted)
	}
}

func validateHealthz(c *v1beta1.KubeletConfiguration, bad reporter) {
	if p := *c.HealthzPort; p < 0 || p > 65535 {
		bad("healthzPort", p, "0 (off) to 65535")
	}
	if net.ParseIP(c.HealthzBindAddress) == nil {
		bad("healthzBindAddress", c.HealthzBindAddress, "an IP address")
	}
}

func validatePaths(c *v1beta1.KubeletConfiguration, bad reporter) {
	for _, p := range []text{{"staticPodPath", c.StaticPodPath}, {"resolvConf", *c.ResolverConfig}, {"podLogsDir", c.PodLogsDir}} {
		if p.value != "" && !filepath.IsAbs(p.value) {
			bad(p.field, p.value, "an absolute path")
		}
	}
	for _, e := range []text{{"containerRuntimeEndpoint", c.ContainerRuntimeEndpoint}, {"imageServiceEndpoint", c.ImageServiceEndpoint}} {
		if want := wantEndpoint(e); want != "" {
			bad(e.field, e.value, want)
		}
	}
	if c.StaticPodURL != "" && !isWebURL(c.StaticPodURL) {
		bad("staticPodURL", withoutPassword(c.StaticPodURL), "an http or https URL")
	}
}

// InProcess is the value of containerRuntimeEndpoint for the runtime localcri, which runs in the
// process of the agent.
const InProcess = "localcri"

// wantEndpoint returns "" if e is a valid endpoint. Otherwise it returns a description of the
// allowed endpoints.
func wantEndpoint(e text) string {
	const socket = "unix:///path or an absolute path"
	runtime := strings.HasPrefix(e.field, "container")
	switch {
	case e.value == "", isSocket(e.value), runtime && e.value == InProcess:
		return ""
	case runtime:
		return socket + ", or " + InProcess
	}
	return socket
}

func isSocket(s string) bool { return filepath.IsAbs(strings.TrimPrefix(s, "unix://")) }

func isWebURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

func validatePods(c *v1beta1.KubeletConfiguration, bad reporter) {
	// The kernel's limits for cfs_period_us (sched-bwc).
	if d := c.CPUCFSQuotaPeriod.Duration; d < time.Millisecond || d > time.Second {
		bad("cpuCFSQuotaPeriod", d.String(), "1ms to 1s")
	}
	for i, ip := range c.ClusterDNS {
		if net.ParseIP(ip) == nil {
			bad(fmt.Sprintf("clusterDNS[%d]", i), ip, "an IP address")
		}
	}
	if d := c.CrashLoopBackOff.MaxContainerRestartPeriod; d != nil && (d.Duration < time.Second || d.Duration > 300*time.Second) {
		bad("crashLoopBackOff.maxContainerRestartPeriod", d.Duration.String(), "1s to 300s")
	}
}

// reservable are the resources that can be reserved for the system.
var reservable = []string{"cpu", "memory", "ephemeral-storage", "pid"}

func validateReserved(c *v1beta1.KubeletConfiguration, bad reporter) {
	for _, r := range []struct {
		field string
		list  map[string]string
	}{{"systemReserved", c.SystemReserved}, {"kubeReserved", c.KubeReserved}} {
		for _, name := range slices.Sorted(maps.Keys(r.list)) {
			if !slices.Contains(reservable, name) {
				bad(r.field, name, "one of "+strings.Join(reservable, ", "))
			} else if q, err := quantity.Parse(r.list[name]); err != nil || q.Sign() < 0 {
				bad(r.field+"."+name, r.list[name], "a quantity of 0 or more")
			}
		}
	}
}
