// Package kubeapi is a node agent's client of a Kubernetes API server: single calls
// ([Client]), watches of objects ([Follower]), events ([EventRecorder]), the node's
// certificates ([Credentials]), and its Node object and Lease ([NodeManager]). Package
// podsync has pods and the objects that they refer to; package seal encrypts records on
// disk. Of client-go, this package uses only rest and clientcmd.
//
// Tier: beta.
package kubeapi
