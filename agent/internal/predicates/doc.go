// Package predicates checks a pod by itself, and what it asks of a node against what the node is
// and has: operating system, resources, name, selectors, taints, host ports, groups, AppArmor and
// sysctls. [Node.Admit] reads memory only; the reasons and messages are the
// kubelet's.
package predicates
