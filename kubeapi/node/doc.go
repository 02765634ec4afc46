// Package node makes a machine a node of a cluster: it registers the Node
// object, reports the node's status, watches the object and holds the Lease.
//
//	heartbeat, err := node.Heartbeat(restConfig, 0, nil)
//	m, err := node.New(node.Config{
//		Name: "edge-1", API: heartbeat, Status: status, // a *status.Manager
//		Register: true, Changed: func(n *v1.Node) { ... }, Event: events,
//	})
//	lease, err := node.NewLease(node.LeaseConfig{Name: "edge-1", API: heartbeat, Owner: m.UID})
//	err = m.Restore()
//	go m.Run(ctx)
//	go lease.Run(leaseCtx) // ends last
//
// # Reports
//
// A change is reported at once; if there is none, a report is made every
// Config.Report, and nothing is computed or called in between. [Patch] is what
// is sent: the differences of labels, annotations and status. Conditions of
// others stay. Events are told when the server has the state they speak of.
//
// A node that is there already is taken over by [Reconcile]: default labels,
// sizes of huge pages and the like are brought up to date, taints and other
// labels stay.
//
// # Faults
//
// Registration never gives up. A report that fails is tried again after 200 ms,
// then less and less often down to once per Config.Update, on a Node that was
// read anew; from the second failure on all connections are closed first, as
// they may be dead. The watch goes on by itself. The Node that was seen last is
// kept in Config.Store, for a start without an API server. A Node that is
// deleted while the agent runs stays deleted, as that is how nodes are taken
// out of service, unless Config.Reregister is set: then it is made again. One
// that a wiped or restored store does not have is always made again.
//
// The lease does not wait for the Node: it is held at once, and gets its owner
// when that is known.
//
// Tier: beta.
package node
