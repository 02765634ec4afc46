// Package serving has the certificate with which a node's HTTPS API shows who
// it is, and the authorities that sign its clients' certificates.
//
// The certificate is, in this order: what a function returns at each handshake
// (a certificate manager's); a pair of files; kubelet.crt and kubelet.key in
// CertDir, made and self-signed if they cannot be read. Files are read again
// when they change, also by renaming them or their directory (as mounted
// Secrets do); what is wrong then is logged and the former stays in effect.
//
//	certs, err := serving.New(serving.Config{CertDir: dir, Host: "node-1"})
//	...
//	go certs.Run(ctx)
//	l = tls.NewListener(l, certs.TLS())
//
// Clients are asked for a certificate and not refused for lack of one: who they
// are is for the authenticator, see [Certs.ClientCAs].
package serving
