package resources

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/topology"
)

// reasonDevicesNotReady is the reason of a pod that waits for a device plugin.
const reasonDevicesNotReady = "DevicesNotReady"

// deviceTimeout is how long a pod waits if the manager's error has no time limit. The rejection
// is Outside, so each decision resets the time.
const deviceTimeout = 5 * time.Minute

func wait(message string) *part.Rejection {
	return &part.Rejection{Reason: reasonDevicesNotReady, Message: message, RetryUntil: time.Now().Add(deviceTimeout), Outside: true}
}

// rejectionOf converts an error of the manager: the pod waits for a plugin, or is rejected with the
// kubelet's reason. A pod without a scheduler waits also for a plugin that has been away for long,
// since nobody would try it again.
func rejectionOf(pod *v1.Pod, err error) *part.Rejection {
	if own := (*part.Rejection)(nil); errors.As(err, &own) {
		return own
	}
	if notYet := (*devicemgr.NotYetError)(nil); errors.As(err, &notYet) {
		return &part.Rejection{Reason: reasonDevicesNotReady, Message: notYet.Resource + ": " + notYet.Why, RetryUntil: notYet.Until, Outside: true}
	}
	if gone := (*devicemgr.GoneError)(nil); errors.As(err, &gone) && !podmeta.IsScheduled(pod) {
		return wait(gone.Resource + ": " + gone.Why)
	}
	r := &part.Rejection{Reason: topology.ReasonUnexpected, Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
	if misplaced := (*topology.Rejection)(nil); errors.As(err, &misplaced) {
		r.Reason, r.Message = misplaced.Reason(), misplaced.Error()
	}
	r.Final = errors.As(err, new(*devicemgr.PluginError))
	return r
}

// containers returns the containers of a pod that can have devices, in the order of fit.Pod.
func containers(pod *v1.Pod) []v1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

// named returns the container with that name.
func named(pod *v1.Pod, container string) []v1.Container {
	return slices.DeleteFunc(containers(pod), func(c v1.Container) bool { return c.Name != container })
}

// asksForSome reports whether containers request extended resources, which plugins may offer.
func asksForSome(list []v1.Container) bool {
	return slices.ContainsFunc(list, func(c v1.Container) bool {
		for name, q := range c.Resources.Limits {
			domain, _, ok := strings.Cut(string(name), "/")
			if ok && !strings.HasSuffix(domain, "kubernetes.io") && !q.IsZero() {
				return true
			}
		}
		return false
	})
}
