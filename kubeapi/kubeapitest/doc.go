// Package kubeapitest is an API server in memory, for tests of its clients: the
// resources of a node agent with watches, resource versions, preconditions,
// patches, graceful deletion and token requests, and the faults of
// real servers on demand.
//
//	srv := kubeapitest.New()
//	client, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
//	...
//	srv.Create(pod)
//	srv.Fail(kubeapitest.Slow(2*time.Second, kubeapitest.Any))
//
// [Server.Config] connects to it without a socket, so that it works within
// testing/synctest; it is an [net/http.Handler], too.
//
// # Faults
//
// [Server.Stop] makes it unreachable and ends its watches, [Server.Hang] blocks
// calls, [Server.Silence] keeps watches open and silent, [Server.Compact] answers
// earlier watches with 410, [Server.Wipe] drops everything and restarts the
// revisions, [Server.Fail] delays calls or returns errors.
//
// It checks no credentials and validates nothing.
//
// Tier: kit.
package kubeapitest
