// Package kubeapitest is an API server in memory, for tests of whatever talks
// to one: the resources of a node agent with watches, resource versions,
// preconditions, strategic merge patches, graceful deletion and token requests,
// and the faults of real servers on demand.
//
//	srv := kubeapitest.New()
//	client, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
//	...
//	srv.Create(pod)
//	srv.Fail(kubeapitest.Slow(2*time.Second, kubeapitest.Any))
//
// [Server.Config] leads to it without a socket, so that it works within
// testing/synctest; as an [net/http.Handler] it stands behind a socket too.
//
// # Faults
//
// [Server.Stop] makes it unreachable and ends its watches, [Server.Hang] lets
// calls wait for ever, [Server.Silence] keeps watches open and silent,
// [Server.Compact] answers watches from before with 410, [Server.Wipe] forgets
// everything and begins to count anew, [Server.Fail] delays calls and answers
// them with errors.
//
// It checks no credentials and validates nothing.
//
// Tier: kit.
package kubeapitest
