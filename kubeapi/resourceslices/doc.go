// Package resourceslices deletes the ResourceSlices of DRA drivers that have gone from
// the node, so that no scheduler counts on their devices.
//
//	w, err := resourceslices.New(resourceslices.Config{Client: client, NodeName: "edge-7", Connected: drivers})
//	go w.Run(ctx)
//	w.Changed() // drivers have come or gone
//
// A driver publishes its devices itself, and may go without a word. What it has
// published for this node is deleted when it has not been connected for
// Config.Delay; likewise what drivers published that are not connected that long
// after the agent's start. One that comes back publishes its devices again.
//
// # Faults
//
// One call deletes what all others but those that are connected, or went just now,
// have published; it names the node, which is all that a node may delete. A call that
// fails is made again after 1 s, 2 s and so on up to 5 min. Names of drivers are
// escaped.
package resourceslices
