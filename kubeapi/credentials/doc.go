// Package credentials keeps the certificates of a node: the one it calls the API
// server with, and the one it serves with. It asks for them, stores them and
// replaces them in time.
//
//	store := &credentials.Store{Dir: certDir, Prefix: "kubelet-client"}
//	user, bootstrap, err := credentials.Load(credentials.Files{
//		Kubeconfig: kubeconfig, Bootstrap: bootstrapKubeconfig, Current: store.CurrentPath(),
//	}, time.Now())
//	...
//	var m *credentials.Manager
//	client, err := apiclient.New(apiclient.Config{
//		REST:        rest.AnonymousClientConfig(user),
//		Certificate: func() (*tls.Certificate, error) { return m.ClientCertificate() },
//	})
//	m, err = credentials.New(credentials.Config{
//		Store: store, API: client, Bootstrap: bootstrapClient,
//		Template:         func() *x509.CertificateRequest { return credentials.ClientTemplate("edge-1") },
//		CloseConnections: client.CloseConnections,
//	})
//	go m.Run(ctx)
//	<-m.Ready()
//
// A certificate is replaced after 70 to 90 % of its life, and at once when it
// does not say what [Config].Template asks for. Files and names of requests are
// the kubelet's, so that either can take over from the other.
//
// # Faults
//
// Nothing here ends the process, or waits before a start. A pair stays in use,
// and stays stored, until its successor is on disk; the current link leads to a
// whole pair at every moment. A pair that cannot be stored is used from memory,
// and stored when that is possible. A certificate that has expired by this
// machine's clock is shown nevertheless: the clock may be wrong. Whoever is
// refused with it asks with the bootstrap credentials, and the other way round.
// A clock that is off by hours does not have certificates replaced again and
// again. A request outlives the agent: its key is kept, and the request found
// again by its name.
//
// Tier: beta.
package credentials
