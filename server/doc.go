// Package server is a node's HTTPS API: what an API server, kubectl through
// it, the metrics server, Prometheus and the tests of Kubernetes ask a node
// for, with the kubelet's paths, parameters and status codes.
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
// It needs a list of pods. Everything else is optional and brings its own
// endpoints: [Runtime] and [Instances] exec, attach, portForward and run;
// [Logs] containerLogs; [Stats] /stats/summary; gatherers the metrics.
//
// # Who may
//
// Every request to the main port is authenticated and authorized before its
// path is looked at, unknown ones included; package auth has the usual ways.
// Paths with empty elements or dots are refused: what decides about a path and
// what serves it see the same one. Nobody is redirected elsewhere.
//
// # Faults
//
// Each endpoint has its own deadline, and those that cost much take a few
// requests at a time and answer 429 to more. Heads have to arrive within 10
// seconds, and answers have to be read. When Run ends, requests come to their
// end first and streams are ended last. A check of health that fails is logged
// with its reason, which the answer withholds.
//
// Tier: beta.
package server
