// Package parity compares what nodewright's node agent offers with what the kubelet of the
// k8s.io/kubernetes module offers: flags, fields of the configuration file, feature gates,
// metrics, events and endpoints. Its tests only read the sources of both, so they take seconds
// and link nothing.
//
// Each list in testdata has the names that are missing here, one on each line, with the reason
// after a #. A test fails if a missing name is not in its list: the agent has lost it, or it is
// new in Kubernetes. A test also fails if a name in the list exists; then remove its line.
// internal/differences describes the differences for people.
package parity
