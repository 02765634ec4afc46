package fit

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/podmeta"
)

// firstOffer is how long a pod waits for a plugin that has never registered on this node: when a
// machine boots for the first time, pods may start before plugins.
const firstOffer = 5 * time.Minute

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

// isScheduled reports whether a scheduler has bound the pod to the node. As in the kubelet,
// resources that no plugin offers are then not checked: they belong to the whole cluster or come
// from a claim (KEP-5004), and the scheduler has checked them.
func isScheduled(pod *v1.Pod) bool {
	return pod.Annotations[podmeta.AnnotationSource] == podmeta.SourceAPI
}

// declared returns the amount of a resource from Node.Declared.
func (p *Node) declared(name v1.ResourceName) (q resource.Quantity, known bool) {
	if p.Declared == nil {
		return q, false
	}
	q, known = p.Declared()[name]
	return q, known
}

// notOffered returns a Rejection that lets a pod wait for a resource that no plugin has offered
// yet. After firstOffer the pod is rejected.
func (p *Node) notOffered(name v1.ResourceName, known bool) *Rejection {
	if p.Extended == nil || known || !extended(name) {
		return nil
	}
	return &Rejection{
		Reason: "OutOf" + string(name), RetryUntil: time.Now().Add(firstOffer),
		Message: "no device plugin has offered " + string(name) + " on this node yet",
	}
}
