// Package apiclient makes single calls to a Kubernetes API server, for the few
// resources that a node agent has to do with.
//
//	c, err := apiclient.New(apiclient.Config{REST: restConfig})
//	if err != nil {
//		return err
//	}
//	var node v1.Node
//	err = c.Get(ctx, apiclient.Nodes, apiclient.Key{Name: "edge-1"}, &node)
//
// It is built on client-go's rest package alone: the clientset, whose scheme
// knows every group there is, weighs 17 MB. Objects of built-in groups travel
// as protobuf.
//
// # Faults
//
// Every call but Watch ends after [Config.Timeout] at the latest, whatever its
// ctx says. Nothing is retried here, except by the rules of an API server that
// says 429 with Retry-After, as client-go does it, and not even that by what
// [Client.Once] returns. Errors are those of
// k8s.io/apimachinery/pkg/api/errors where the server answered. Redirects are
// not followed: they could lead off the node's cluster with its credentials.
// [Client.CloseConnections] ends connections that may be dead, so that the next
// call makes a new one.
//
// Tier: beta.
package apiclient
