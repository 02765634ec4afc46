package shutdown

// What the kubelet says of the node and of pods that come during a shutdown; clients
// compare some of it. Of those that are ended [podlife.Shutdown] has it.
const (
	// ReasonNotAdmitted is the reason in the status of a pod that came too
	// late.
	ReasonNotAdmitted  = "NodeShutdown"
	messageNotAdmitted = "Pod was rejected as the node is shutting down."

	// reasonShutdown is the reason of the events on the node.
	reasonShutdown = "Shutdown"
	messageBegun   = "Shutdown manager detected shutdown event"
	messageOff     = "Shutdown manager detected shutdown cancellation"
)
