package numa

// Pod is what a pod asks of a machine, in numbers.
type Pod struct {
	UID string
	// Guaranteed is the pod's QoS class: only such pods get resources of
	// their own.
	Guaranteed bool
	// Containers are the init containers and sidecars in the order of their
	// start, and the regular containers after them. Ephemeral containers are
	// not placed.
	Containers []Container
	// Resources are those of the pod as a whole (KEP-2837); nil if it names
	// none.
	Resources *Resources
}

// Container is one container of a [Pod].
type Container struct {
	Name string
	Kind Kind
	Resources
}

// Kind describes when a container runs.
type Kind int

// Regular containers and sidecars run side by side; init containers run one
// after the other, before the regular ones.
const (
	Regular Kind = iota
	Init
	Sidecar
)

// Resources are requests, and whether limits match them.
type Resources struct {
	// MilliCPU is the request in thousandths of a CPU.
	MilliCPU int64
	// Memory is the request in bytes.
	Memory uint64
	// HugePages are the requests in bytes, by page size in bytes.
	HugePages map[uint64]uint64
	// Extended are the numbers of devices asked for, by the name of the extended
	// resource.
	Extended map[string]int
	// Bound reports that CPU and memory are both requested, and limited to just
	// that.
	Bound bool
}

// WholeCPUs is the request in CPUs, if it is a positive whole number of them,
// and 0 otherwise.
func (r Resources) WholeCPUs() int {
	if r.MilliCPU <= 0 || r.MilliCPU%1000 != 0 {
		return 0
	}
	return int(r.MilliCPU / 1000)
}
