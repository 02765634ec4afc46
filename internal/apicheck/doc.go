// Package apicheck has the rules of Kubernetes' API for what several kinds have: sources
// of volumes, claims, selectors of nodes, names of resources.
//
// Fields whose values are words, such as an access mode, are checked by package podcheck.
// All functions are pure. The paths in their errors begin with the one that is handed in.
package apicheck
