// Package localapi serves the Kubernetes API of one node, without a cluster: kubectl,
// client-go and whatever else speaks to an API server find the node's pods and what
// these refer to, and may change them.
//
//	api, err := localapi.New(localapi.Config{
//		Node:  "edge-1",
//		Store: store.NewDir("/etc/kubernetes/manifests/api"),
//	})
//	...
//	go api.Run(ctx)
//	http.Serve(listener, api.Handler(localapi.Root))
//
// An agent takes its pods from [Server.Source], and reports what becomes of them to
// [Server] itself, which is a statusmgr.Sink and an local.EventRecorder. What other
// sources of the agent have is shown beside, if [Server.Show] is around them; it can
// only be read.
//
// # What is served
//
// Pods with their subresources, ConfigMaps, Secrets, PersistentVolumes and their
// claims, ResourceClaims, Leases, Events, namespaces, which come with what is in them,
// and the node. Verbs, patches, server-side apply, watches, tables, discovery and
// OpenAPI are those of Kubernetes. Kinds that controllers of a cluster would work on
// are refused in words that say what to use.
//
// # Where objects are
//
// In memory, and each in a file of its own by the [store.Store]; a request is answered
// when the file is safe. Statuses of pods are in memory alone until the pod has come to
// its end, and Events always.
//
// # Faults
//
// Everything is bounded: heads, bodies, objects, watches and the time that a slow reader
// has. Beyond a bound the answer is a Status with code 400, 413, 414, 429 or 431. A user has
// a share of the places and bytes; some are left for admins, and some for root. Answers are
// encoded while the client reads them. A file that cannot be read is logged; what was there
// before stays in effect. A disk that hangs holds up those who write, until they go, and
// nobody who reads. What the agent calls waits for no client: to write, it comes before all
// of them but one.
//
// Tier: stable.
package localapi
