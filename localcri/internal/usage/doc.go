// Package usage reads what containers and pods use, from their cgroups (v1 and
// v2), from the interfaces of their network namespace and from their writable
// layers, when it is asked and in the words of the CRI. It ends the processes of
// a cgroup, and waits for processes that are not ours.
//
// Cgroups are named by their path below the hierarchies' roots, such as
// /kubepods/pod1/c1. What cannot be read is left out of an answer: a figure that
// is missing is not 0.
package usage
