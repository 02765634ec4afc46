// Package agenttest runs a whole node agent in a test: over a container runtime in
// memory, fed by the test, without root, containers or a network.
//
//	func TestLicence(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			n := agenttest.New(t)
//			n.Config.Parts = []part.Part{licence.New(server)}
//			n.Start()
//			n.Want(agenttest.Pod("web", agenttest.Container("c")))
//			n.Await("web", agenttest.Ready)
//		})
//	}
//
// In a bubble of testing/synctest an hour of back-off takes no time. Without a bubble,
// the same test uses the machine's clock. The arguments of a container are the script
// of its process; see package critest, whose runtime can also fail on demand.
//
// # A single part
//
// A [Host] takes the place of an agent in tests of one part. The test sets its pods and
// its runtime, and it records the calls of the part. [RunPart] runs the part.
//
// Tier: kit.
package agenttest
