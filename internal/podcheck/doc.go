// Package podcheck validates the parts of a pod that a node must not accept from
// any source: names that become parts of paths and would lead out of a directory,
// invalid user and group IDs, values that the API does not have, and security
// settings that contradict each other. The node would treat a misspelt value as
// unset, and give less protection than the pod requests.
//
// [Pod] is for admission, of pods of every source, and for readers of manifests.
// Readers of manifests check more, which an API server has checked for other pods.
// [Pod] accepts empty fields for which the API has a default.
//
// All functions are pure. They take time in proportion to the size of the pod. The
// number and the length of errors is limited.
package podcheck
