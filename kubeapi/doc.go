// Package kubeapi is a node agent's client of a Kubernetes API server: single calls ([Client]),
// objects that are followed ([Follower]), events ([EventRecorder]), the node's certificates
// ([Credentials]), its Node object and Lease ([NodeManager]), and records on disk that are encrypted
// ([Sealer]). Pods and what they refer to are in package podsync. Of client-go it needs rest and
// clientcmd alone.
//
// Tier: beta.
package kubeapi
