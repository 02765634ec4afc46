// Package events reports to the cluster what happens to pods and to the node, as
// Event objects.
//
//	rec, err := events.New(events.Config{Client: client.Once(), NodeName: "edge-1"})
//	...
//	go rec.Run(ctx)
//	rec.Event(pod, v1.EventTypeWarning, "FailedMount", "no such disk")
//
// Recording never waits. An event like one before it is the same Event, with a
// higher count, which is a PATCH. More than ten of one reason and object that
// differ in nothing but their message within ten minutes are combined into one.
// Of an object no more than 25 events are told, and then one more each five
// minutes. These are the numbers of client-go's correlator.
//
// # Faults
//
// While the server cannot be reached, what happens is kept, told later with the
// times at which it happened, and counted up where it repeats: 1000 events, of
// which the oldest go first. What the server refuses for good is dropped.
//
// Tier: beta.
package events
