package kubeletconfig

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/numa"
)

// For any content of a file, the result is a configuration, or an error that names the file and,
// once the kind is known, a field.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{
		configHead + "x: &x [y, y]\nclusterDNS: [*x, *x]", configHead + "evictionHard: {memory.available: 1e-2000000000}",
		configHead + "reservedMemory: [{numaNode: 0, limits: {memory: 1e2000000000}}]", configHead + "systemCgroups: \"/a\\nb\"",
		configHead + "cpuManagerPolicyOptions: {\"a\\nb\": c}", configHead + "tlsPrivateKeyFile: k", configHead + "reservedSystemCPUs: 0-8191",
		"", "null", "[]", "{", configHead, configHead + "maxPods: 3", configHead + "maxPods: x", configHead + "syncFrequency: 5",
		configHead + "clusterDNS: [1, {a: b}]", configHead + "a: &a [*a]", configHead + "logging: {verbosity: -1}",
		configHead + "systemReserved: {cpu: 1, memory: -1Gi}", configHead + "---\n" + configHead, "%YAML 1.2\n---\n" + configHead,
		configHead + "crashLoopBackOff: {maxContainerRestartPeriod: 1ns}", configHead + "registerWithTaints: [{key: 1}]",
	} {
		f.Add(s)
	}
	names := known()
	f.Fuzz(func(t *testing.T, content string) {
		const path = "/etc/k.yaml"
		doc, warnings, err := parseDocument(path, []byte(content))
		for _, w := range warnings {
			if !strings.HasPrefix(w, path+": ") || strings.ContainsAny(w, "\n\r") {
				t.Errorf("warning %q", w)
			}
		}
		if err != nil {
			for _, line := range strings.Split(err.Error(), "\n") {
				if !strings.HasPrefix(line, path+": ") {
					t.Errorf("an error that does not name the file, or not in one line: %q", err)
				}
			}
			return
		}
		c := new(v1beta1.KubeletConfiguration)
		if _, err := decode(doc, c); err != nil {
			t.Fatalf("read, but not decoded: %v", err)
		}
		SetDefaults(c)
		found := mistakes(c)
		for _, m := range found {
			if !names[m.top()] || strings.ContainsAny(m.Error(), "\n\r") {
				t.Errorf("a mistake that names no field, or not in one line: %q", m)
			}
		}
		if len(found) == 0 {
			useAll(t, &Config{KubeletConfiguration: *c})
		}
	})
}

// known are the fields that a mistake may be in.
func known() map[string]bool {
	all := map[string]bool{}
	for _, f := range supported {
		all[f] = true
	}
	all["cpuManagerReconcilePeriod"] = true // validated, though it has no effect
	return all
}

// useAll calls every method: a valid configuration must not panic.
func useAll(t *testing.T, c *Config) {
	t.Helper()
	capacity := v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("8Gi")}
	_ = c.Node(capacity).Allocatable()
	_, _ = c.Cgroups(capacity)
	if _, err := c.Thresholds(); err != nil {
		t.Errorf("a valid configuration has wrong thresholds: %v", err)
	}
	_, _ = c.MemoryReservation(numa.Uniform(2, 1, 4, 1, 4<<30), 8<<30)
	_, _, _ = c.CPUReservation(), c.CPUOptions(), c.TopologyOptions()
	_, _ = c.LogRotation()
	_, _, _, _ = c.ImageGC(), c.ShutdownTime(), c.ParallelPulls(), c.PodLimit(8)
	_ = c.Redacted()
}
