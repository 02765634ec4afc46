// Package status computes the status of a node: the Status of its v1.Node.
//
//	m, err := status.New(status.Config{
//		Hostname: name, MaxPods: 110, MaxImages: 50, Version: "v1.37.2", Port: 10250,
//		Machine: status.System{Files: os.DirFS("/")},
//		Runtime: source, Images: source, // see package cristatus
//		Pressures: eviction,
//	})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)
//	<-m.Changes()
//	events, err := m.Fill(node)
//
// [Apply] is the pure part: it writes [Inputs], which are values, into a node and
// returns the resulting events. Reasons, messages and transition rules are the
// kubelet's. [Same] compares two statuses, and [ParseNodeIPs] reads --node-ip.
//
// The Manager collects the inputs. [Manager.Changes] reports when one of them has
// changed: at once after [Manager.Changed], [Manager.RuntimeChanged] and
// [Manager.ImagesChanged], and within 10 s for inputs that it polls. The component that
// writes the Node to the API server then calls [Manager.Fill]; it also calls it from
// time to time for the heartbeat.
//
// # Faults
//
// Fill makes no call and never waits. A machine, a name server or a runtime that
// hangs has a deadline of 5 or 10 s, and the last values are used meanwhile. A
// runtime that does not answer is called each second; the node is not ready after
// 30 s without an answer, and ready again within a second of the
// next one. An error of one input does not affect the others.
//
// Tier: beta.
package status
