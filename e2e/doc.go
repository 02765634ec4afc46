// Package e2e tests the agent as a node of a real cluster: etcd, the API server,
// the controllers and the scheduler of Kubernetes, kubectl, containerd.
//
//	make e2e
package e2e
