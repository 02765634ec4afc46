package localapi

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/internal/podtext"
)

// Table columns of the kinds that package podtext does not have.

var leaseColumns = []podtext.Column{
	podtext.NameColumn,
	podtext.Text("Holder", func(o metav1.Object) any {
		if h := o.(*coordinationv1.Lease).Spec.HolderIdentity; h != nil {
			return *h
		}
		return ""
	}),
	podtext.AgeColumn,
}

var resourceClaimColumns = []podtext.Column{
	podtext.NameColumn,
	podtext.Text("State", func(o metav1.Object) any {
		c := o.(*resourcev1.ResourceClaim)
		var states []string
		if c.DeletionTimestamp != nil {
			states = append(states, "deleted")
		}
		if c.Status.Allocation != nil {
			states = append(states, "allocated")
		} else if c.DeletionTimestamp == nil {
			states = append(states, "pending")
		}
		if len(c.Status.ReservedFor) > 0 {
			states = append(states, "reserved")
		}
		return strings.Join(states, ",")
	}),
	podtext.AgeColumn,
}
