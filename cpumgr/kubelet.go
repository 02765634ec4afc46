package cpumgr

import (
	"encoding/json"
	"fmt"

	"github.com/nodewright/nodewright/internal/kubeletsum"
	"github.com/nodewright/nodewright/numa"
)

// Assignments are the CPU assignments of a kubelet, read from its
// cpu_manager_state. With [Rebuild] an agent can take over a node from a kubelet.
type Assignments struct {
	Policy string
	Shared numa.CPUSet
	// Pods has the CPUs of containers by UID and name. The name "" stands for the
	// pod's pool; see [PodCPUs.ByContainer].
	Pods map[string]map[string]numa.CPUSet
}

// kubeletFile is the JSON of cpu_manager_state, with the kubelet's order of fields.
// The second version has no PodEntries.
type kubeletFile struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	PodEntries    map[string]kubeletPod        `json:"podEntries,omitempty"`
	Checksum      uint64                       `json:"checksum"`
}

// kubeletPod is the JSON of a pod's pool.
type kubeletPod struct {
	CPUSet numa.CPUSet `json:"cpuSet"`
}

// checksum returns the kubelet's checksum: FNV-1a over a dump of the file's content. The dump is
// the one that the kubelet's checkpoint library makes of its own type, with a checksum of 0. It
// contains names of types and, with pools, the field of the pod-level managers.
func (f kubeletFile) checksum(pools bool) uint64 {
	d := &kubeletsum.Dump{}
	d.Add("(*state.CPUManagerCheckpoint){PolicyName:(string)%s DefaultCPUSet:(string)%s Entries:(map[string]map[string]string)", f.PolicyName, f.DefaultCPUSet)
	kubeletsum.Map(d, orEmpty(f.Entries), func(cpus map[string]string) {
		kubeletsum.Map(d, cpus, func(list string) { d.Add("%s", list) })
	})
	if pools {
		d.Add(" PodEntries:(state.PodCPUAssignments)")
		kubeletsum.Map(d, orEmpty(f.PodEntries), func(p kubeletPod) {
			elems := map[int]struct{}{}
			for cpu := range p.CPUSet.All() {
				elems[cpu] = struct{}{}
			}
			d.Add("{CPUSet:(cpuset.CPUSet){elems:(map[int]struct {})")
			kubeletsum.Map(d, elems, func(struct{}) { d.Add("{}") })
			d.Add("}}")
		})
	}
	d.Add(" Checksum:(checksum.Checksum)0}")
	return d.Sum()
}

// orEmpty replaces a nil map, since the kubelet's own maps are never nil in a dump.
func orEmpty[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

// DecodeKubelet parses a kubelet's cpu_manager_state in the formats of Kubernetes 1.18 and later.
// A file that is damaged or of another kind is an error.
func DecodeKubelet(b []byte) (Assignments, error) {
	var f kubeletFile
	if err := json.Unmarshal(b, &f); err != nil {
		return Assignments{}, err
	}
	// The checksum of a kubelet without pod-level managers does not cover pods, and may be
	// missing.
	if short := f.checksum(false); f.Checksum != f.checksum(true) && (len(f.PodEntries) > 0 || f.Checksum != short && f.Checksum != 0) {
		return Assignments{}, fmt.Errorf("checksum is %d; want %d", f.Checksum, short)
	}
	shared, err := numa.ParseCPUs(f.DefaultCPUSet)
	if err != nil {
		return Assignments{}, fmt.Errorf("parse field defaultCpuSet: %w", err)
	}
	out := Assignments{Policy: f.PolicyName, Shared: shared, Pods: map[string]map[string]numa.CPUSet{}}
	for uid, containers := range f.Entries {
		// The empty set under "" means that the pod has no pool. Without the entry, Rebuild would
		// guess.
		has := map[string]numa.CPUSet{"": f.PodEntries[uid].CPUSet}
		for name, list := range containers {
			if name == "" {
				return Assignments{}, fmt.Errorf("entries: pod %q: a container without a name", uid)
			}
			if has[name], err = numa.ParseCPUs(list); err != nil {
				return Assignments{}, fmt.Errorf("entries: pod %q, container %q: %w", uid, name, err)
			}
		}
		out.Pods[uid] = has
	}
	// A pod may have a pool before it has containers.
	for uid, pod := range f.PodEntries {
		if _, ok := out.Pods[uid]; !ok {
			out.Pods[uid] = map[string]numa.CPUSet{"": pod.CPUSet}
		}
	}
	return out, nil
}

// EncodeKubelet returns the state as the cpu_manager_state of a kubelet with that policy, which
// can continue from it. Equal states give equal bytes. Kinds of containers are not included,
// since the kubelet takes them from the pods.
func (s State) EncodeKubelet(policy string) ([]byte, error) {
	f := kubeletFile{PolicyName: policy, DefaultCPUSet: s.shared.String(), Entries: map[string]map[string]string{}, PodEntries: map[string]kubeletPod{}}
	for uid, pod := range s.pods {
		f.Entries[uid] = map[string]string{}
		for _, c := range pod.Containers {
			f.Entries[uid][c.Name] = c.CPUs.String()
		}
		if !pod.Pool.Empty() {
			f.PodEntries[uid] = kubeletPod{pod.Pool}
		}
	}
	f.Checksum = f.checksum(len(f.PodEntries) > 0)
	return json.Marshal(f)
}
