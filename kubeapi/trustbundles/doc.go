// Package trustbundles has the ClusterTrustBundles of an API server (KEP-3257):
// the content.Bundles of projected volumes on a node of a cluster.
//
//	b, err := trustbundles.New(trustbundles.Config{Client: client})
//	...
//	go b.Run(ctx)
//	pem, err := b.Bundle(ctx, content.Bundle{Name: "example.com:root"})
//
// They are followed by one watch from the first question on, and not before:
// most clusters have none, and many servers do not know them.
//
// An answer has each certificate once, without what stands around it in the
// bundles. The order is that of the certificates' hashes: nobody can rely on one,
// and the file in the volume is not written again for another one.
//
// # Faults
//
// The first question waits for the server's answer, ten seconds at most, and two
// where the last bundles are known from a Memory. While the server cannot be
// reached, all stays as it was last. From a server that has no ClusterTrustBundles
// comes an error that says so, and it is asked again now and then.
package trustbundles
