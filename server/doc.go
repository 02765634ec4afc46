// Package server is a node's HTTPS API for an API server, kubectl through it, the
// metrics server, Prometheus and the tests of Kubernetes, with the kubelet's paths,
// parameters and status codes.
//
//	certs, err := server.NewCerts(server.CertsConfig{CertDir: dir, Host: node, ClientCAFile: ca})
//	...
//	s, err := server.New(server.Config{
//		Node: node, Port: 10250, TLS: certs.TLS(),
//		Authenticator: auth.ClientCerts(certs.ClientCAs),
//		Authorizer:    auth.AlwaysAllow(),
//		Pods:          pods, // whatever has Pods() []*v1.Pod
//	})
//	if err != nil {
//		return err
//	}
//	go certs.Run(ctx)
//	return s.Run(ctx)
//
// It needs a list of pods. Everything else is optional and adds its own endpoints:
// [Runtime] and [Instances] exec, attach, portForward and run; [Logs]
// containerLogs; [Stats] /stats/summary; gatherers the metrics.
//
// # Authorization
//
// Every request to the main port is authenticated and authorized before its path is
// routed, unknown paths included; package auth has the usual ways. Paths with empty
// elements or dots are refused, so that authorization and routing see the same
// path. There are no redirects.
//
// # Faults
//
// Each endpoint has its own deadline; expensive ones accept a few requests at a
// time and answer 429 to others. Request headers must arrive within 10 seconds, and
// answers must be read. When Run ends, requests are completed first and streams are
// closed last. The reason of a failed health check is logged, not returned.
//
// Tier: beta.
package server
