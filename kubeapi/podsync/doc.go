// Package podsync brings pods from an API server to the node, and their statuses back:
// [Source] delivers the pods that are bound to the node with what they refer to, [Sink]
// publishes their statuses, and [Mirrors] shows the node's static pods in the API.
//
//	src, err := podsync.NewSource(podsync.SourceConfig{Client: client, NodeName: "edge-1", Memory: store})
//	...
//	sink, err := podsync.NewSink(podsync.SinkConfig{Client: client.Once(), Pods: src})
//	...
//	pods, err := podmgr.New(podmgr.Config{Sources: []podmgr.Source{src}})
//	statuses, err := statusmgr.New(statusmgr.Config{Sink: sink, Parallel: 8})
//
// Each works without the others, and says in its documentation what it does while the
// server is away.
//
// # What pods refer to
//
// The package also asks an API server for what a node's pods need beside themselves:
// services and runtime classes ([Catalog]), service account tokens ([TokenRequester],
// [TokenKeeper]), trust bundles ([Bundles]), certificates ([CertificateIssuer]), and the
// CSI drivers, attachments and claims of volumes ([Storage]).
//
// ConfigMaps, Secrets and volumes that pods name come with the pods: see package podsync.
//
// Every type needs a client and works without the others. Answers of the server are kept
// while it cannot be reached, and over a restart if a Memory is given; each type says for
// how long a caller waits.
//
// Tier: beta.
package podsync
