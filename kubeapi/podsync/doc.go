// Package podsync synchronizes pods between an API server and the node: [Source]
// delivers the pods bound to the node with the objects that they refer to, [Sink]
// publishes their statuses, and [Mirrors] creates mirror pods for the node's static
// pods.
//
//	src, err := podsync.NewSource(podsync.SourceConfig{Client: client, NodeName: "edge-1", Memory: store})
//	...
//	sink, err := podsync.NewSink(podsync.SinkConfig{Client: client.Once(), Pods: src})
//	...
//	pods, err := podmgr.New(podmgr.Config{Sources: []podmgr.Source{src}})
//	statuses, err := statusmgr.New(statusmgr.Config{Sink: sink, Parallel: 8})
//
// Each of the three works without the others, and documents what it does while the
// server is away.
//
// # Objects that pods need
//
// The package also reads and requests other objects for a node's pods: services and
// runtime classes ([Catalog]), service account tokens ([TokenRequester],
// [TokenKeeper]), trust bundles ([Bundles]), certificates ([CertificateIssuer]),
// and the CSI drivers, attachments and claims of volumes ([Storage]).
//
// Every type needs a client and works without the others. Answers of the server are
// kept while it cannot be reached, and over a restart if a Memory is given; each
// type documents how long a caller waits.
//
// Tier: beta.
package podsync
