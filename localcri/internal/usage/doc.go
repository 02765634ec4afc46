// Package usage reads, on request, the resource usage of containers and pods, from their cgroups
// (v1 and v2), the interfaces of their network namespace and their writable layers. It returns
// the types of the CRI. It also kills the processes of a cgroup.
//
// Cgroups are identified by their path below the hierarchies' roots, for example
// /kubepods/pod1/c1. A value that cannot be read is omitted, so a missing value is not 0.
package usage
