// Package podcheck finds errors in a pod that a node must reject from every source: names
// that become parts of paths and would lead out of a directory, invalid user and group
// IDs, values that the API does not define, and security settings that contradict each
// other. Without these checks, the node would treat a misspelt value as unset, and give
// less protection than the pod requests.
//
// [Pod] is called at the admission of every pod and when a manifest is read. For manifests
// the agent has further checks, which an API server makes for other pods. [Pod] accepts
// empty fields for which the API has a default.
//
// All functions are pure. Their time is proportional to the size of the pod. The number
// and the length of errors are limited.
package podcheck
