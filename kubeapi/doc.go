// Package kubeapi is a node agent's client of a Kubernetes API server: single calls ([Client]),
// objects that are followed ([Follower]), events ([EventRecorder]), the node's certificates
// ([Credentials]), and its Node object and Lease ([NodeManager]). Pods and what they refer to are
// in package podsync, records on disk that are encrypted in package seal. Of client-go it needs
// rest and clientcmd alone.
//
// Tier: beta.
package kubeapi
