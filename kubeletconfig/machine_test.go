package kubeletconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fromFile loads a configuration that says that.
func fromFile(t *testing.T, content string) (*Config, []string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "k.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+content+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(Options{File: file})
}

// Values that the kubelet accepts are accepted: names of cgroups without a leading slash, and any
// time that pods get at a soft threshold.
func TestNotStricterThanTheKubelet(t *testing.T) {
	c, warnings, err := fromFile(t, "cgroupRoot: edge\nkubeletCgroups: kubelet.slice\nsystemCgroups: /system.slice\nkubeReservedCgroup: a/b\nevictionMaxPodGracePeriod: -1")
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %q", err, warnings)
	}
	if c.CgroupRoot != "/edge" || c.KubeletCgroups != "/kubelet.slice" || c.SystemCgroups != "/system.slice" || c.KubeReservedCgroup != "/a/b" || c.SystemReservedCgroup != "" {
		t.Errorf("cgroups are %q, %q, %q, %q, %q", c.CgroupRoot, c.KubeletCgroups, c.SystemCgroups, c.KubeReservedCgroup, c.SystemReservedCgroup)
	}
	if c.EvictionMaxPodGracePeriod != -1 {
		t.Errorf("evictionMaxPodGracePeriod is %d", c.EvictionMaxPodGracePeriod)
	}
}

// Fields about the machine: their defaults and allowed values, and no message that they have no
// effect.
func TestMachineFields(t *testing.T) {
	c, _, err := fromFile(t, "")
	if err != nil || !*c.FailSwapOn || c.LimitedSwap() || *c.OOMScoreAdj != -999 || !*c.MakeIPTablesUtilChains || c.ProtectKernelDefaults {
		t.Errorf("defaults are %+v, %v", c, err)
	}
	for _, tc := range []struct{ content, wrong string }{
		{content: "failSwapOn: false"},
		{content: "memorySwap: {swapBehavior: NoSwap}"},
		{content: "memorySwap: {swapBehavior: LimitedSwap}"},
		{content: "memorySwap: {swapBehavior: UnlimitedSwap}", wrong: `memorySwap.swapBehavior: "UnlimitedSwap": want one of NoSwap, LimitedSwap`},
		{content: "protectKernelDefaults: true"},
		{content: "makeIPTablesUtilChains: false"},
		{content: "oomScoreAdj: 1000"},
		{content: "oomScoreAdj: 0"},
		{content: "userNamespaces: {idsPerPod: 131072}"},
		{content: "userNamespaces: {idsPerPod: 65537}", wrong: "userNamespaces.idsPerPod: 65537: want a multiple of 65536, 65536 to 4294901760"},
		{content: "userNamespaces: {idsPerPod: 0}", wrong: "userNamespaces.idsPerPod: 0: want"},
		{content: "userNamespaces: {idsPerPod: 4294967296}", wrong: "userNamespaces.idsPerPod: 4294967296: want"},
		{content: "memoryThrottlingFactor: 0.5\nmemoryReservationPolicy: TieredReservation"},
		{content: "featureGates: {MemoryQoS: false}\nmemoryThrottlingFactor: 0.9"},
		{content: "featureGates: {MemoryQoS: false}\nmemoryThrottlingFactor: 0.5", wrong: "memoryThrottlingFactor: 0.5: want no value if featureGates.MemoryQoS is false"},
		{content: "featureGates: {MemoryQoS: false}\nmemoryReservationPolicy: TieredReservation", wrong: `memoryReservationPolicy: "TieredReservation": want None if featureGates.MemoryQoS is false`},
		{content: "memoryReservationPolicy: All", wrong: `memoryReservationPolicy: "All": want one of None, TieredReservation`},
		{content: "memoryThrottlingFactor: 0", wrong: "memoryThrottlingFactor: 0: want more than 0, 1 at most"},
		{content: "memoryThrottlingFactor: 1.1", wrong: "memoryThrottlingFactor: 1.1: want"},
		{content: "oomScoreAdj: -1001", wrong: "oomScoreAdj: -1001: want -1000 to 1000"},
	} {
		c, warnings, err := fromFile(t, tc.content)
		switch {
		case tc.wrong != "":
			if err == nil || !strings.Contains(err.Error(), tc.wrong) {
				t.Errorf("%s: %v, want %s", tc.content, err, tc.wrong)
			}
		case err != nil || len(warnings) > 0:
			t.Errorf("%s: %v, %q", tc.content, err, warnings)
		case c.LimitedSwap() != strings.Contains(tc.content, "LimitedSwap"):
			t.Errorf("%s: limited %v", tc.content, c.LimitedSwap())
		}
	}
}
