// Package numa has the types for placing resources on a machine: its CPUs and NUMA
// nodes, sets of both, and hints about nodes.
//
// A [Machine] is a plain value. It is made by hand, or read from a running
// kernel by [ReadSysfs]:
//
//	m := numa.Machine{
//		CPUs:  []numa.CPU{{ID: 0, Core: 0, Node: 0}, {ID: 1, Core: 1, Node: 1}},
//		Nodes: []numa.Node{{ID: 0, Memory: 8 << 30}, {ID: 1, Memory: 8 << 30}},
//	}
//
// Everything here is a value: methods return new sets and change none. The
// package imports nothing but the standard library.
//
// # The machine that Linux describes
//
// [ReadSysfs] reads the topology of a Linux machine, as a [numa.Machine]: CPUs, cores,
// last-level caches, sockets, NUMA nodes with their memory and huge pages, and
// distances.
//
//	m, err := numa.ReadSysfs(os.DirFS("/"))
//
// It reads these files below the given root (Documentation/ABI of the kernel:
// testing/sysfs-devices-system-cpu, stable/sysfs-devices-node):
//
//	sys/devices/system/cpu/online
//	sys/devices/system/cpu/cpuN/topology/{core_cpus_list,thread_siblings_list,physical_package_id}
//	sys/devices/system/cpu/cpuN/cache/indexN/{level,type,shared_cpu_list}
//	sys/devices/system/node/nodeN/{cpulist,meminfo,distance}
//	sys/devices/system/node/nodeN/hugepages/hugepages-NkB/nr_hugepages
//
// A kernel without NUMA has no node directory. Its machine is one node, read from
// proc/meminfo and sys/kernel/mm/hugepages. Caches, huge pages, distances and
// socket numbers are optional. Everything else that is missing, unreadable or
// contradictory is an error that names the file and its content.
//
// Offline CPUs are left out. Node IDs may have gaps, and a node may have only CPUs
// or only memory.
//
// Tier: beta.
package numa
