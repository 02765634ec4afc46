package kubeletconfig

import (
	"strings"

	"k8s.io/kubelet/config/v1beta1"
)

// Values of memorySwap.swapBehavior. An empty value means noSwap.
const (
	noSwap      = "NoSwap"
	limitedSwap = "LimitedSwap"
)

// gateMemoryQoS is the feature gate for memoryThrottlingFactor and memoryReservationPolicy.
const gateMemoryQoS = "MemoryQoS"

// idsBlock is the minimum number of user IDs per pod. The configured number must be a
// multiple of idsBlock.
const idsBlock int64 = 1 << 16

// setMachineDefaults sets the defaults of fields about the machine.
func setMachineDefaults(c *v1beta1.KubeletConfiguration) {
	for _, cgroup := range []*string{&c.CgroupRoot, &c.SystemReservedCgroup, &c.KubeReservedCgroup, &c.KubeletCgroups, &c.SystemCgroups} {
		if *cgroup != "" && !strings.HasPrefix(*cgroup, "/") {
			*cgroup = "/" + *cgroup // the kubelet treats such names as relative to the root cgroup
		}
	}
	unsetDefault(&c.FailSwapOn, true)
	unsetDefault(&c.UserNamespaces, v1beta1.UserNamespaces{})
	unsetDefault(&c.UserNamespaces.IDsPerPod, idsBlock)
	unsetDefault(&c.OOMScoreAdj, -999)
	orDefault(&c.MemoryReservationPolicy, v1beta1.NoneMemoryReservationPolicy)
	unsetDefault(&c.MakeIPTablesUtilChains, true)
}

func validateMachine(c *v1beta1.KubeletConfiguration, bad reporter) {
	if b := c.MemorySwap.SwapBehavior; b != "" {
		oneOf(bad, "memorySwap.swapBehavior", b, noSwap, limitedSwap)
	}
	if n := *c.UserNamespaces.IDsPerPod; n < idsBlock || n%idsBlock != 0 || n > 1<<32-idsBlock {
		bad("userNamespaces.idsPerPod", n, "a multiple of 65536, 65536 to 4294901760")
	}
	qos := memoryQoS(c)
	if f := c.MemoryThrottlingFactor; f != nil && !(*f > 0 && *f <= 1) {
		bad("memoryThrottlingFactor", *f, "more than 0, 1 at most")
	} else if f != nil && *f != formerThrottling && !qos {
		bad("memoryThrottlingFactor", *f, "no value if featureGates.MemoryQoS is false")
	}
	const tiered = string(v1beta1.TieredReservationMemoryReservationPolicy)
	policy := string(c.MemoryReservationPolicy)
	if oneOf(bad, "memoryReservationPolicy", policy, string(v1beta1.NoneMemoryReservationPolicy), tiered) && policy == tiered && !qos {
		bad("memoryReservationPolicy", policy, "None if featureGates.MemoryQoS is false")
	}
	if n := *c.OOMScoreAdj; n < -1000 || n > 1000 {
		bad("oomScoreAdj", n, "-1000 to 1000")
	}
}

// formerThrottling is the default of memoryThrottlingFactor up to Kubernetes 1.36. Files for such
// versions contain this value, so the kubelet accepts it even if the gate is off.
const formerThrottling = 0.9

// memoryQoS reports whether the gate MemoryQoS is on, which is the default.
func memoryQoS(c *v1beta1.KubeletConfiguration) bool {
	on, set := c.FeatureGates[gateMemoryQoS]
	return on || !set
}

// MemoryQoS returns the settings of memory QoS (KEP-2570). throttling is memoryThrottlingFactor,
// or 0 if it is not configured. reserve is true if memory requests are protected
// (memoryReservationPolicy: TieredReservation). on is false if the feature gate is off or neither
// setting is configured.
func (c *Config) MemoryQoS() (throttling float64, reserve, on bool) {
	if !memoryQoS(&c.KubeletConfiguration) {
		return 0, false, false
	}
	if f := c.MemoryThrottlingFactor; f != nil {
		throttling = *f
	}
	reserve = c.MemoryReservationPolicy == v1beta1.TieredReservationMemoryReservationPolicy
	return throttling, reserve, throttling != 0 || reserve
}

// gateDeclared is the feature gate for declared features of nodes. In addition, each feature has a
// gate with the feature's name.
const gateDeclared = "NodeDeclaredFeatures"

// Declares reports whether the node may declare a feature (KEP-5328). It returns false if the
// feature's gate or NodeDeclaredFeatures is configured to be off.
func (c *Config) Declares(feature string) bool {
	for _, gate := range []string{gateDeclared, feature} {
		if on, set := c.FeatureGates[gate]; set && !on {
			return false
		}
	}
	return true
}

// IDsPerPod returns the number of user IDs that a pod with a user namespace gets
// (userNamespaces.idsPerPod).
func (c *Config) IDsPerPod() uint32 { return uint32(*c.UserNamespaces.IDsPerPod) }

// LimitedSwap reports whether containers of Burstable pods may use swap
// (memorySwap.swapBehavior). Containers of other pods must not use swap.
func (c *Config) LimitedSwap() bool { return c.MemorySwap.SwapBehavior == limitedSwap }
