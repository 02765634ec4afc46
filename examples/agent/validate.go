package main

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// validateConfig reports every mistake in the supported fields at once.
func validateConfig(c *kubeletconfig.KubeletConfiguration) error {
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, fmt.Errorf("invalid configuration: %s: %v: want %s", field, value, want))
	}
	positive := func(field string, d time.Duration) {
		if d < 0 {
			bad(field, d, "a duration above 0")
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
	if p := *c.HealthzPort; p < 0 || p > 65535 {
		bad("healthzPort", p, "0 (off) to 65535")
	}
	if net.ParseIP(c.HealthzBindAddress) == nil {
		bad("healthzBindAddress", c.HealthzBindAddress, "an IP address")
	}
	if c.StaticPodPath != "" && !filepath.IsAbs(c.StaticPodPath) {
		bad("staticPodPath", c.StaticPodPath, "an absolute path")
	}
	if !filepath.IsAbs(c.PodLogsDir) {
		bad("podLogsDir", c.PodLogsDir, "an absolute path")
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
		bad("crashLoopBackOff.maxContainerRestartPeriod", d.Duration, "1s to 300s")
	}
	for field, list := range map[string]map[string]string{"systemReserved": c.SystemReserved, "kubeReserved": c.KubeReserved} {
		for name, q := range list {
			if v, err := resource.ParseQuantity(q); err != nil || v.Sign() < 0 {
				bad(field+"."+name, q, "a quantity of 0 or more")
			}
		}
	}
	return errors.Join(errs...)
}
