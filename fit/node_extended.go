package fit

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/podmeta"
)

// deviceWait is the time after which the admission of a pod that waits for devices is repeated at the
// latest. A change of the devices repeats it at once.
const deviceWait = 5 * time.Minute

// extended reports whether plugins may offer a resource with that name: the name has a domain that
// does not belong to Kubernetes.
func extended(name v1.ResourceName) bool {
	domain, _, ok := strings.Cut(string(name), "/")
	return ok && !strings.HasSuffix(domain, "kubernetes.io")
}

// Count has the numbers of an extended resource on the node.
type Count struct {
	// Capacity counts all devices, and Allocatable the healthy ones. Used counts those allocated
	// to pods, and Free the healthy ones that are not allocated.
	Capacity, Allocatable, Used, Free int
	// Away means that no plugin offers the resource at this moment, and pods may have
	// to wait for it.
	Away bool
}

// offered returns the counts of the plugins' resources. If none of the requested resources can be
// a plugin's, it returns nil. So most pods cause no call to the device manager.
func (p *Node) offered(requested v1.ResourceList) map[v1.ResourceName]Count {
	if p.Extended == nil {
		return nil
	}
	for name := range requested {
		if extended(name) {
			return p.Extended()
		}
	}
	return nil
}

// declared returns the amount of a resource from Node.Declared.
func (p *Node) declared(name v1.ResourceName) (q resource.Quantity, known bool) {
	if p.Declared == nil {
		return q, false
	}
	q, known = p.Declared()[name]
	return q, known
}

// awaitDevices returns a Rejection that lets a pod wait until a plugin has as many healthy devices as
// the pod requests: when a machine boots, pods may start before plugins, and a device may be plugged
// in later. have is nil if no plugin has offered the resource yet.
//
// A pod that a scheduler has bound to the node does not wait: another pod can take its place elsewhere.
func (p *Node) awaitDevices(pod *v1.Pod, name v1.ResourceName, asked resource.Quantity, have *resource.Quantity) *Rejection {
	if p.Extended == nil || !extended(name) || podmeta.IsScheduled(pod) || asked.IsZero() || have != nil && asked.Cmp(*have) <= 0 {
		return nil
	}
	r := &Rejection{
		Reason: "OutOf" + string(name), RetryUntil: time.Now().Add(deviceWait), Outside: true,
		Message: string(name) + ": no device plugin has offered it on this node yet",
	}
	if have != nil {
		r.Message = fmt.Sprintf("%s: the node has %s healthy devices, and the pod requests %s", name, have.String(), asked.String())
	}
	return r
}
