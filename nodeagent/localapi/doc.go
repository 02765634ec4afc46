// Package localapi gives a node that stands alone the Kubernetes API of its own, for
// kubectl and whatever else speaks to an API server: package localapi, plugged into
// nodeagent. It is apart for its weight.
//
//	o := nodeagent.Options{Config: conf, Parts: nodeagent.Standard(), Services: nodeagent.StandardServices()}
//	localapi.Attach(&o, localapi.Config{Address: "127.0.0.1:6443"})
//	n, err := nodeagent.New(ctx, o)
//
// What clients make is in files in a directory "api" within that of the manifests. The
// node's other pods are shown beside; they can be changed only where they come from.
//
// The agent's unix socket serves the API to root, and Config.Address by TLS to who has a
// certificate of the node's own authority: [Kubeconfig] makes them.
//
// Tier: beta.
package localapi
