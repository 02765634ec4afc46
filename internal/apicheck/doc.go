// Package apicheck implements validation rules of the Kubernetes API for parts of objects that
// several kinds share: volume sources, claims, node selectors, resource names.
//
// Enumerated fields, for example access modes, are checked by package podcheck. All functions are
// pure. The paths in their errors begin with the given path.
package apicheck
