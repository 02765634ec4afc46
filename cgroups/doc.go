// Package cgroups keeps the cgroups of a node's pods: it makes them, gives them
// what the pods are to have, tells what they use, and removes them.
package cgroups
