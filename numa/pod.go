package numa

// Pod has the resource requests of a pod, as numbers.
type Pod struct {
	UID string
	// Guaranteed reports whether the pod's QoS class is Guaranteed: only such pods
	// get exclusive resources.
	Guaranteed bool
	// Containers are the init containers and sidecars in the order of their start,
	// followed by the regular containers. Ephemeral containers are not placed.
	Containers []Container
	// Resources are the pod-level resources (KEP-2837). The field is nil if the pod has none.
	Resources *Resources
}

// Container has what one container of a [Pod] requests.
type Container struct {
	Name string
	Kind Kind
	Resources
}

// Kind says when a container runs.
type Kind int

// Regular containers and sidecars run side by side; init containers run one
// after the other, before the regular ones.
const (
	Regular Kind = iota
	Init
	Sidecar
)

// Resources are the requests of a container or a pod.
type Resources struct {
	// MilliCPU is the request in thousandths of a CPU.
	MilliCPU int64
	// Memory is the request in bytes.
	Memory uint64
	// HugePages are the requests in bytes, by page size in bytes.
	HugePages map[uint64]uint64
	// Extended are the requested numbers of devices, by extended resource.
	Extended map[string]int
	// Bound reports that both CPU and memory are requested, and that the requests equal the
	// limits.
	Bound bool
}

// WholeCPUs returns the request in CPUs if it is a positive whole number, and 0
// otherwise.
func (r Resources) WholeCPUs() int {
	if r.MilliCPU <= 0 || r.MilliCPU%1000 != 0 {
		return 0
	}
	return int(r.MilliCPU / 1000)
}
