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
// In a bubble of testing/synctest an hour of back-off takes no time; without one,
// the same test runs by the machine's clock. What a container does is a script of the
// runtime's: see package critest, which has faults, too.
//
// # A single part
//
// A [Host] is an agent for tests of one part: the test sets its pods and its runtime, and
// it records what the part asks for. [RunPart] runs the part.
//
// Tier: kit.
package agenttest
