// Package numa holds the types in which resources are placed on a machine: its CPUs and
// NUMA nodes, sets of both, and hints about nodes.
//
// A [Machine] is a plain value. It is made by hand, or read from a running
// kernel by the package numa/sysfs:
//
//	m := numa.Machine{
//		CPUs:  []numa.CPU{{ID: 0, Core: 0, Node: 0}, {ID: 1, Core: 1, Node: 1}},
//		Nodes: []numa.Node{{ID: 0, Memory: 8 << 30}, {ID: 1, Memory: 8 << 30}},
//	}
//
// Everything here is a value: methods return new sets and change none. The
// package imports nothing but the standard library.
//
// Tier: stable.
package numa
