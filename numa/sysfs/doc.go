// Package sysfs reads the topology of a Linux machine, as a [numa.Machine]: CPUs, cores,
// last-level caches, sockets, NUMA nodes with their memory and huge pages, and
// distances.
//
//	m, err := sysfs.Read(os.DirFS("/"))
//
// All comes from files below the root given (Documentation/ABI of the kernel:
// testing/sysfs-devices-system-cpu, stable/sysfs-devices-node):
//
//	sys/devices/system/cpu/online
//	sys/devices/system/cpu/cpuN/topology/{core_cpus_list,thread_siblings_list,physical_package_id}
//	sys/devices/system/cpu/cpuN/cache/indexN/{level,type,shared_cpu_list}
//	sys/devices/system/node/nodeN/{cpulist,meminfo,distance}
//	sys/devices/system/node/nodeN/hugepages/hugepages-NkB/nr_hugepages
//
// A kernel without NUMA has no node directory. Its machine is one node, with
// proc/meminfo and sys/kernel/mm/hugepages. What a machine may well lack is no
// error: caches, huge pages, distances, and sockets that the firmware does not
// number. Everything else that is missing, unreadable or at odds with the rest
// is an error that names the file and what was found there.
//
// CPUs that are offline are left out. Nodes may be numbered with gaps, and have
// CPUs alone or memory alone.
//
// Tier: beta.
package sysfs
