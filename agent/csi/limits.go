package csi

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	block "github.com/nodewright/nodewright/csi"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/volumemgr"
)

// Admit implements part.Admitter. A driver may report how many of its volumes the node
// can have. Volumes whose driver is not known do not count.
func (p *Part) Admit(pod *v1.Pod, others []*v1.Pod) *part.Rejection {
	own := p.volumesOf(pod)
	if len(own) == 0 {
		return nil
	}
	all := map[string]map[string]bool{} // handles by driver
	add := func(list []block.Volume) {
		for _, v := range list {
			if all[v.Driver] == nil {
				all[v.Driver] = map[string]bool{}
			}
			all[v.Driver][v.Handle] = true
		}
	}
	add(own)
	limits := map[string]int{}
	for driver := range all {
		if n := p.manager.Limit(driver); n > 0 {
			limits[driver] = int(n)
		}
	}
	if len(limits) == 0 {
		return nil
	}
	for _, o := range others {
		if o.UID != pod.UID {
			add(p.volumesOf(o))
		}
	}
	for _, driver := range slices.Sorted(maps.Keys(limits)) {
		if n := len(all[driver]); n > limits[driver] {
			return &part.Rejection{Reason: podlife.VolumesExhausted.Reason(), Message: fmt.Sprintf(
				"it would bring the node to %d volumes of driver %s, which allows %d", n, driver, limits[driver])}
		}
	}
	return nil
}

// volumesOf returns the persistent volumes of CSI drivers that a pod has. Unknown claims are
// skipped.
func (p *Part) volumesOf(pod *v1.Pod) (out []block.Volume) {
	for i := range pod.Spec.Volumes {
		claim := claimOf(pod, &pod.Spec.Volumes[i])
		if claim == "" {
			continue
		}
		c, ok := p.storage.Claim(pod.Namespace, claim)
		if !ok || c.Spec.VolumeName == "" {
			continue
		}
		pv, ok := p.storage.Volume(c.Spec.VolumeName)
		if !ok {
			continue
		}
		if v, ok := block.VolumeOf(&volumemgr.Spec{PersistentVolume: pv}); ok {
			out = append(out, v)
		}
	}
	return out
}

// claimOf returns the name of the PersistentVolumeClaim of a volume, or "" if it has none.
func claimOf(pod *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name // KEP-1698
	}
	return ""
}
