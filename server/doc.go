// Package server is a node's HTTPS API, with the kubelet's paths, parameters and status codes.
// Its clients are API servers, kubectl through them, the metrics server, Prometheus and
// Kubernetes' tests.
//
//	certs, err := server.NewCerts(server.CertsConfig{CertDir: dir, Host: node, ClientCAFile: ca})
//	...
//	s, err := server.New(server.Config{
//		Node: node, Port: 10250, TLS: certs.TLS(),
//		Authenticator: auth.ClientCerts(certs.ClientCAs),
//		Authorizer:    auth.AlwaysAllow(),
//		Pods:          pods, // anything with a method Pods() []*v1.Pod
//	})
//	if err != nil {
//		return err
//	}
//	go certs.Run(ctx)
//	return s.Run(ctx)
//
// It requires a list of pods. Everything else is optional and adds its own endpoints: [Runtime]
// and [Instances] add exec, attach, portForward and run; [Logs] adds containerLogs; [Stats] adds
// /stats/summary; gatherers add metrics.
//
// # Authorization
//
// Every request to the main port is authenticated and authorized before its path is routed, even
// if the path is unknown; package auth has the usual ways. Paths with an empty element, or with an
// element . or .., are refused, so that authorization and routing see the same path. There are no
// redirects.
//
// # Faults
//
// Each endpoint has its own deadline. Expensive endpoints accept a few requests at a time and
// answer 429 to others. Clients have 10 seconds to send request headers, and must keep reading
// answers. When Run ends, running requests are completed first, and streams are closed last. The
// reason of a failed health check is logged, not returned.
//
// Tier: beta.
package server
