package shutdown

// The kubelet's texts for the node and for pods that come during a shutdown; clients
// compare some of them. [podlife.Shutdown] has the texts for terminated pods.
const (
	// ReasonNotAdmitted is the reason in the status of a pod that was rejected.
	ReasonNotAdmitted  = "NodeShutdown"
	messageNotAdmitted = "Pod was rejected as the node is shutting down."

	// reasonShutdown is the reason of the events on the node.
	reasonShutdown = "Shutdown"
	messageBegun   = "Shutdown manager detected shutdown event"
	messageOff     = "Shutdown manager detected shutdown cancellation"
)
