package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/images"
)

// validateConfig reports every mistake in the supported fields at once, each
// with the file that made it.
func validateConfig(c *kubeletconfig.KubeletConfiguration, origin map[string]string) error {
	var errs []error
	bad := func(field string, value any, want string) {
		top := field
		if i := strings.IndexAny(field, ".["); i >= 0 {
			top = field[:i]
		}
		errs = append(errs, fmt.Errorf("invalid configuration: %s: %s: %s: want %s", origin[top], field, show(value), want))
	}
	positive := func(field string, d time.Duration) {
		if d < 0 {
			bad(field, d.String(), "a duration above 0")
		}
	}
	positive("syncFrequency", c.SyncFrequency.Duration)
	positive("fileCheckFrequency", c.FileCheckFrequency.Duration)
	positive("httpCheckFrequency", c.HTTPCheckFrequency.Duration)
	positive("runtimeRequestTimeout", c.RuntimeRequestTimeout.Duration)
	notNegative := func(field string, n int32) {
		if n < 0 {
			bad(field, n, "0 or more")
		}
	}
	notNegative("registryPullQPS", *c.RegistryPullQPS)
	notNegative("registryBurst", c.RegistryBurst)
	notNegative("maxPods", c.MaxPods)
	notNegative("podsPerCore", c.PodsPerCore)
	if n := c.MaxParallelImagePulls; n != nil {
		switch {
		case *n < 1:
			bad("maxParallelImagePulls", *n, "1 or more")
		case *n > 1 && *c.SerializeImagePulls:
			bad("maxParallelImagePulls", *n, "1, or serializeImagePulls: false beside it")
		}
	}
	policies := []string{
		string(images.NeverVerify), string(images.NeverVerifyPreloadedImages),
		string(images.NeverVerifyAllowlistedImages), string(images.AlwaysVerify),
	}
	if p := string(c.ImagePullCredentialsVerificationPolicy); !slices.Contains(policies, p) {
		bad("imagePullCredentialsVerificationPolicy", p, "one of "+strings.Join(policies, ", "))
	} else if len(c.PreloadedImagesVerificationAllowlist) > 0 && p != string(images.NeverVerifyAllowlistedImages) {
		bad("preloadedImagesVerificationAllowlist", c.PreloadedImagesVerificationAllowlist,
			"none, or imagePullCredentialsVerificationPolicy: "+string(images.NeverVerifyAllowlistedImages)+" beside it")
	}
	// cfs_period_us of the kernel's sched-bwc document.
	if d := c.CPUCFSQuotaPeriod.Duration; d < time.Millisecond || d > time.Second {
		bad("cpuCFSQuotaPeriod", d.String(), "1ms to 1s")
	}
	if p := *c.HealthzPort; p < 0 || p > 65535 {
		bad("healthzPort", p, "0 (off) to 65535")
	}
	if net.ParseIP(c.HealthzBindAddress) == nil {
		bad("healthzBindAddress", c.HealthzBindAddress, "an IP address")
	}
	for _, p := range []struct{ field, path string }{
		{"staticPodPath", c.StaticPodPath}, {"resolvConf", *c.ResolverConfig}, {"podLogsDir", c.PodLogsDir},
	} {
		if p.path != "" && !filepath.IsAbs(p.path) {
			bad(p.field, p.path, "an absolute path")
		}
	}
	for _, e := range []struct{ field, socket string }{
		{"containerRuntimeEndpoint", c.ContainerRuntimeEndpoint}, {"imageServiceEndpoint", c.ImageServiceEndpoint},
	} {
		if e.socket != "" && !isSocket(e.socket) {
			bad(e.field, e.socket, "unix:///path or an absolute path")
		}
	}
	if c.StaticPodURL != "" && !isWebURL(c.StaticPodURL) {
		bad("staticPodURL", c.StaticPodURL, "an http or https URL")
	}
	for i, ip := range c.ClusterDNS {
		if net.ParseIP(ip) == nil {
			bad(fmt.Sprintf("clusterDNS[%d]", i), ip, "an IP address")
		}
	}
	if d := c.CrashLoopBackOff.MaxContainerRestartPeriod; d != nil && (d.Duration < time.Second || d.Duration > 300*time.Second) {
		bad("crashLoopBackOff.maxContainerRestartPeriod", d.Duration.String(), "1s to 300s")
	}
	for _, r := range []struct {
		field string
		list  map[string]string
	}{{"systemReserved", c.SystemReserved}, {"kubeReserved", c.KubeReserved}} {
		for _, name := range slices.Sorted(maps.Keys(r.list)) {
			if !slices.Contains(reservable, name) {
				bad(r.field, name, "one of "+strings.Join(reservable, ", "))
			} else if q, err := resource.ParseQuantity(r.list[name]); err != nil || q.Sign() < 0 {
				bad(r.field+"."+name, r.list[name], "a quantity of 0 or more")
			}
		}
	}
	validateCgroups(c, bad)
	validatePlacement(c, bad)
	validateCluster(c, bad)
	validateEviction(c, bad)
	validateShutdown(c, bad)
	validateGC(c, bad)
	return errors.Join(errs...)
}

// reservable are the resources that can be set aside for the system.
var reservable = []string{"cpu", "memory", "ephemeral-storage", "pid"}
