// Package localapi serves the Kubernetes API of one node, without a cluster. kubectl, client-go
// and other clients of an API server can read and change the node's pods and the objects that
// these refer to.
//
//	api, err := localapi.New(localapi.Config{
//		Node:  "edge-1",
//		Store: store.NewDir("/etc/kubernetes/manifests/api"),
//	})
//	...
//	go api.Run(ctx)
//	http.Serve(listener, api.Handler(localapi.Root))
//
// An agent gets its pods from [Server.Source], and reports their statuses and events to [Server],
// which implements statusmgr.Sink and local.EventRecorder. The objects of the agent's other
// sources are shown too if [Server.Show] wraps these sources; they are read-only.
//
// # What is served
//
// Pods with their subresources, ConfigMaps, Secrets, PersistentVolumes and their claims,
// ResourceClaims, Leases, Events, namespaces, and the node. A namespace is created with its first
// object and removed with its last one. Verbs, patches, server-side apply, watches, tables,
// discovery and OpenAPI work as in Kubernetes. Kinds that need controllers of a cluster are
// rejected; the error says what to use instead.
//
// # Where objects are
//
// All objects are in memory. Each also has its own file, which the [store.Store] writes; a
// request is answered when the file is durable. The status of a pod is only in memory until the
// pod has finished. Events are only in memory.
//
// # Faults
//
// Everything is limited: heads, bodies, objects, watches and the time for a slow reader. Beyond a
// limit, the answer is a Status with code 400, 413, 414, 429 or 431. Each user has a share of the
// request slots and bytes; some are reserved for admins, and some for root. Answers are encoded
// while the client reads them. If a file cannot be read, this is logged, and the previous version
// of the object stays in effect. A disk that hangs blocks writers until their requests time out,
// but no readers. Calls from the agent do not wait for clients: at most one client writes before
// the agent does.
//
// Tier: stable.
package localapi
