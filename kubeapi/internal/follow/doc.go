// Package follow keeps somebody up to date with the objects of one kind that an
// API server has: all of them first, then every change.
//
//	f, err := follow.New(follow.Config[*v1.Pod]{
//		Client: client, Resource: apiclient.Pods, Fields: "spec.nodeName=edge-1",
//		NewList: func() runtime.Object { return &v1.PodList{} },
//		Replace: func(all []*v1.Pod, version string) { ... },
//		Put:     func(pod *v1.Pod) { ... },
//		Delete:  func(pod *v1.Pod) { ... },
//	})
//	...
//	err = f.Run(ctx)
//
// It does what a client-go reflector does, for an agent that follows hundreds
// of single objects and whose server may be away for days: one goroutine each,
// nothing that outlives Run, every failure told, and a [Gate] by which one of
// them finds out that the server is back, for all.
//
// # Faults
//
// The first state comes with the watch itself where the server offers that, and
// from a list otherwise; always from a quorum, never from a cache that may lag.
// A watch that ends in its time is continued from the last version; after one
// that was cut off, after 410 Gone, or when the server was not to be reached,
// everything is read anew. A server whose history is another one, because its
// store was wiped, is so noticed at once, or by a bookmark or a refusal. A watch that goes silent ends after three minutes if the server
// sends bookmarks, which it does each minute, and otherwise ten minutes after
// it began at the latest, whatever becomes of the connection. Failures are
// followed by pauses from 200 ms to 10 s with jitter, longer if the server says
// so.
package follow
