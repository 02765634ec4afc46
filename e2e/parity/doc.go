// Package parity compares what a node agent made of nodewright offers with what the
// kubelet of the k8s.io/kubernetes module does: flags, fields of its file, feature
// gates, metrics, events and endpoints. Its tests read the sources of both, so that
// they take seconds and link nothing.
//
// Each list in testdata has what is missing here, one name a line, with the reason
// behind a #. A test fails when something is missing that is not in its list, which
// is a step back or something new in Kubernetes, and when something in the list is
// there: the line has to go then. internal/differences says the same to people.
package parity
