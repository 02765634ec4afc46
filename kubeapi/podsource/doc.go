// Package podsource is the API server as a source of pods: those that are bound
// to this node, and the ConfigMaps, Secrets, claims of volumes and of devices, and
// volumes that they refer to.
//
//	src, err := podsource.New(podsource.Config{Client: client, NodeName: "edge-1", Memory: store})
//	...
//	pods, err := podmgr.New(podmgr.Config{Sources: []podmgr.Source{src}})
//
// Pods are followed by one watch, each object that they refer to by a watch of
// its own, since a node may read no others: it begins with the first pod that
// refers to the object and ends with the last one, or when the object says that
// it never changes. Claims, of volumes and of devices, and volumes are read again
// and again, since a node may not watch them: soon while a pod waits for them, and
// a ResourceClaim when one more pod uses it. Pods that are over, and mirror pods,
// need nothing any more.
//
// A new pod is handed on when all it refers to has been read, or is known not
// to be there, or two seconds have passed, so that it does not begin with an
// error that is over in a moment. What is handed on first is complete.
//
// # Offline
//
// With a Memory, the last pods and objects are kept, each in a file of its own;
// Secrets encrypted, if there is a key. At start they are handed on if the API
// server fails or has not answered after a second. When it answers, what it
// says counts: pods of the same UID are the same pods, those that it no longer
// has are over.
//
// What is not an answer changes nothing: while the server is away, hangs, or
// refuses the node's credentials (401, 403), everything stays as it was last.
//
// A server whose store was wiped, or restored from a copy of earlier, is
// recognised by a resource version lower than one that was seen. Pods that it
// does not have then are held for five minutes, so that whoever repairs it can
// put them back with nothing restarted; after that, or when another pod takes
// their name, they end gracefully like any pod that is gone. An empty answer of
// a store with its history intact is taken at its word.
//
// A deletion is never taken back: a pod that was once seen as to be deleted
// stays so.
package podsource
