package cgroups

import (
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// share is the amount that one pod adds to its tier. It is comparable, to detect
// changes.
type share struct {
	class  v1.PodQOSClass
	cpu    int64 // thousandths
	memory int64 // bytes
}

// shareOf computes the share of a pod from its spec. Pod-level requests and overhead count as for
// the pod's own cgroup.
func shareOf(pod *v1.Pod) share {
	requests := podmeta.FilledRequests(pod)
	return share{podmeta.QOS(pod), milli(requests.Cpu()), requests.Memory().Value()}
}

// sums are the sums of the requests of the pods of each class. They are updated pod by pod, at a
// cost that does not depend on the number of pods. Methods may be called from any goroutine.
type sums struct {
	// mu guards the maps. It is never held across other locks or calls.
	mu sync.Mutex
	// pods is the amount that was added for each pod, and that is subtracted when
	// the pod is removed.
	pods   map[types.UID]share
	cpu    map[v1.PodQOSClass]int64
	memory map[v1.PodQOSClass]int64
}

func newSums() *sums {
	return &sums{
		pods: map[types.UID]share{}, cpu: map[v1.PodQOSClass]int64{}, memory: map[v1.PodQOSClass]int64{},
	}
}

// set replaces the pod's share in the sums by s, and reports whether the sums changed.
func (t *sums) set(uid types.UID, s share) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, known := t.pods[uid]
	if known && before == s {
		return false
	}
	t.sub(before)
	t.pods[uid] = s
	t.cpu[s.class] += s.cpu
	t.memory[s.class] += s.memory
	return true
}

// adopt adds the share s of a pod, unless the pod is counted already. Only one goroutine counts
// pods while the Manager starts, so that the check and the change need not be one step.
func (t *sums) adopt(uid types.UID, s share) {
	t.mu.Lock()
	_, known := t.pods[uid]
	t.mu.Unlock()
	if !known {
		t.set(uid, s)
	}
}

// remove subtracts the pod's share, and reports whether it was counted.
func (t *sums) remove(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, known := t.pods[uid]
	t.sub(before)
	delete(t.pods, uid)
	return known
}

// sub subtracts a share. mu is held.
func (t *sums) sub(s share) {
	t.cpu[s.class] -= s.cpu
	t.memory[s.class] -= s.memory
}

// totals are the sums of the pods' requests from which the values of the tiers are computed.
// BestEffort pods are not counted, since they request nothing. The CPU requests of Guaranteed pods
// are not counted, since the cgroups of these pods are not below a tier.
type totals struct {
	burstableCPU                      int64 // thousandths
	guaranteedMemory, burstableMemory int64 // bytes
}

func (t *sums) totals() totals {
	t.mu.Lock()
	defer t.mu.Unlock()
	return totals{t.cpu[v1.PodQOSBurstable], t.memory[v1.PodQOSGuaranteed], t.memory[v1.PodQOSBurstable]}
}

// tierPolicy is the configuration of the tiers beside their shares. Both fields are off by
// default in the kubelet.
type tierPolicy struct {
	reserve     bool  // memory.min and memory.low (KEP-2570)
	percent     int64 // percentage of the requests that lower classes cannot use; -1 for none
	allocatable int64 // bytes of memory; 0 if not known
}

// tierHugepages is the value for no limit of huge pages, as the kubelet writes it:
// pods and the node limit them, not the tiers.
const tierHugepages = int64(1) << 62

// resources returns the values of each tier. The node's cgroup is the tier of
// Guaranteed pods; its CPU share is not set here. Where nothing is reserved, 0 is
// written to remove older values.
func (p tierPolicy) resources(t totals) map[v1.PodQOSClass]Resources {
	guaranteed, low := int64(0), int64(0)
	// The node's cgroup protects the sum of both tiers: the kernel protects no more
	// than the parent's value.
	if p.reserve {
		guaranteed, low = t.guaranteedMemory+t.burstableMemory, t.burstableMemory
	}
	out := map[v1.PodQOSClass]Resources{
		v1.PodQOSGuaranteed: {Unified: map[string]string{memoryMin: strconv.FormatInt(guaranteed, 10)}},
		v1.PodQOSBurstable: {
			CPUShares:      ptr(sharesOf(t.burstableCPU)),
			OtherHugepages: ptr(tierHugepages),
			Unified:        map[string]string{memoryLow: strconv.FormatInt(low, 10)},
		},
		v1.PodQOSBestEffort: {CPUShares: ptr(uint64(minShares)), OtherHugepages: ptr(tierHugepages)},
	}
	if p.percent < 0 || p.allocatable <= 0 {
		return out
	}
	// A hundredth is taken before the product, and of the remainder after it, so
	// that no product overflows. Burstable loses the part of Guaranteed, BestEffort
	// both parts.
	burstable := max(p.allocatable-t.guaranteedMemory/100*p.percent-t.guaranteedMemory%100*p.percent/100, 0)
	bestEffort := max(burstable-t.burstableMemory/100*p.percent-t.burstableMemory%100*p.percent/100, 0)
	for class, bytes := range map[v1.PodQOSClass]int64{
		v1.PodQOSBurstable: burstable, v1.PodQOSBestEffort: bestEffort,
	} {
		out[class] = out[class].with(Resources{Memory: &bytes})
	}
	return out
}
