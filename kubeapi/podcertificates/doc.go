// Package podcertificates gets the certificates of pods from an API server's signers
// (PodCertificateRequest, KEP-4317): the [content.Certificates] of a node of a cluster.
//
//	i, err := podcertificates.New(podcertificates.Config{Client: client.Once(), NodeName: "edge-7", ...})
//	key, chain, err := i.Certificate(ctx, pod, "credentials", 0)
//
// For each source of a projected volume there is a private key, made here, and a
// request with which a signer may issue a certificate for it. Keys are in memory alone:
// after a restart of the agent pods get other ones.
//
// # Time
//
// An [Issuer] has no goroutine. Each call of [Issuer.Certificate] takes one step: volumes
// ask at least once a minute, as often as the kubelet looks for what to refresh. A first
// certificate is waited for up to Config.Patience. One whose signer wants it refreshed
// (beginRefreshAt, and up to five minutes of chance) is used until the next one is
// there, with a key of its own.
//
// # Faults
//
// A request that was denied or failed is final for its volume, as it is in the kubelet:
// the pod has an event and no further request is made. One that is gone is made again.
// A chain that does not begin with a certificate for the key is refused.
package podcertificates
