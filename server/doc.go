// Package server is a node's HTTPS API: what an API server, kubectl through
// it, the metrics server, Prometheus and the tests of Kubernetes ask a node
// for, with the kubelet's paths, parameters and status codes.
//
//	certs, err := server.NewCerts(server.CertsConfig{CertDir: dir, Host: node, ClientCAFile: ca})
//	...
//	s, err := server.New(server.Config{
//		Node: node, Port: 10250, TLS: certs.TLS(),
//		Authenticator: server.ByClientCerts(certs.ClientCAs),
//		Authorizer:    server.AlwaysAllow(),
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
// path is looked at, unknown ones included. Paths with empty elements or dots
// are refused: what decides about a path and what serves it see the same one.
// Nobody is redirected elsewhere.
//
// # Faults
//
// Each endpoint has its own deadline, and those that cost much take a few
// requests at a time and answer 429 to more. Heads have to arrive within 10
// seconds, and answers have to be read. When Run ends, requests come to their
// end first and streams are ended last. A check of health that fails is logged
// with its reason, which the answer withholds.
//
// # Who may ask
//
// Requests to a node are authenticated and authorized.
//
// An [Authenticator] turns a request into a [User]: by a client certificate
// ([ByClientCerts]), by a bearer token that an API server reviews ([ByTokens]), or
// as nobody ([OrAnonymous]); [FirstAuthenticator] joins them. An [Authorizer] decides about
// [Attributes]: [AlwaysAllow], or an API server's SubjectAccessReview
// ([ByAccessReview]).
//
//	authn := server.FirstAuthenticator(
//		server.ByClientCerts(pool),
//		server.ByTokens(server.TokensConfig{Reviewer: reviewer}),
//	)
//
// Reviews are remembered as long as the kubelet remembers them, in a bounded
// number, those that let nobody in apart from the others; equal questions asked
// at the same time go out once; at most 32 go out at a time. A review that fails
// is not remembered. As many requests as [ByTokens] and [ByAccessReview] say wait for
// reviews, and more are refused with an [ErrReviewsBusy]: an API server that hangs
// costs those who need it. Certificates need nobody, and come first.
//
// Tier: beta.
package server
