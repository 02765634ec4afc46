package agent

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// restorePatience is how long FreshDevices waits for what is known of devices.
const restorePatience = 5 * time.Second

// FreshDevices tells that no device plugin has registered on this node, in this
// life of the agent or an earlier one: devices that an older Node object still
// has are nowhere. It waits a moment for what is kept of them, and does not say
// so of an agent without Devices.
func (a *Agent) FreshDevices() bool {
	if a.cfg.Devices == nil {
		return false
	}
	select {
	case <-a.decisions.restored:
		return len(a.cfg.Devices.Capacity()) == 0
	case <-time.After(restorePatience):
		return false
	}
}

// VolumesInUse are those that a controller has attached to the node and pods use,
// and whether that is known: when all sources have said what is to run. There are
// none: no kind of volume that this module makes is attached by a controller.
func (a *Agent) VolumesInUse() (volumes []v1.UniqueVolumeName, known bool) {
	select {
	case <-a.settled:
		return nil, true
	default:
		return nil, false
	}
}
