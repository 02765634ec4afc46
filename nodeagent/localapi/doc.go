// Package localapi adds a Kubernetes API to a node without a cluster, for kubectl and
// other clients: package localapi, plugged into nodeagent. It is a separate package,
// since it adds much code to a program.
//
//	o := nodeagent.Options{Config: conf, Parts: nodeagent.Standard(), Services: nodeagent.StandardServices()}
//	localapi.Attach(&o, localapi.Config{Address: "127.0.0.1:6443"})
//	n, err := nodeagent.New(ctx, o)
//
// Objects created by clients are files in the directory "api" within the manifests directory. The
// node's other pods are shown too; they can be changed only at their source.
//
// The agent's unix socket serves the API to root, and Config.Address with TLS to
// clients with a certificate of the node's own authority: [Kubeconfig] creates
// them.
//
// Tier: beta.
package localapi
