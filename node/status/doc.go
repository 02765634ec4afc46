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
// [Apply] is the pure part: it writes [Inputs], which are values, into a node
// and says which events that means. Reasons, messages and transition rules are
// the kubelet's. [Same] compares two statuses, and [ParseNodeIPs] reads
// --node-ip.
//
// The Manager around it collects the inputs. It says on [Manager.Changes] when
// one of them is another, at once where it is told ([Manager.Changed],
// [Manager.RuntimeChanged], [Manager.ImagesChanged]) and within 10 s where it
// has to look. Whoever reports to an API server calls [Manager.Fill] then, and
// now and then for the heartbeat.
//
// # Faults
//
// Fill calls nobody, and never waits. A machine, a name server or a runtime
// that hangs is given 5 or 10 s, and what was known before holds meanwhile. A
// runtime that does not answer is asked each second; the node is not ready
// after Config.RuntimeGrace without an answer, at that moment, and ready again
// within a second of the next one. Errors of one input leave the others alone.
//
// Tier: beta.
package status
