package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/internal/admit"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/podmeta"
)

// Dry runs of an admission, before a pod is created.

var _ local.Fitter = (*Agent)(nil)

// dryUID stands for the UID of a pod that has none.
const dryUID = "dry-run"

// shower is a part.Reservation of a dry run that can show where containers would run.
type shower interface{ ShowFit(*local.Fit) }

// Fit reports whether the node would admit a pod now, and where its containers would run. It
// reserves nothing and changes no pod. It blocks until the parts have answered, and may be called
// before Run.
//
// beside has further pods that would exist too. A pod of the node that has the name of one of
// these pods counts as removed, since the new pod would replace it.
func (a *Agent) Fit(pod *v1.Pod, beside ...*v1.Pod) local.Fit {
	pod = pod.DeepCopy()
	if pod.Namespace == "" {
		pod.Namespace = v1.NamespaceDefault
	}
	if pod.UID == "" {
		// Parts store their state by the UID of a pod; all pods without a UID would share one
		// state.
		pod.UID = dryUID
	}
	out := local.Fit{Fits: true}
	for i := range pod.Spec.InitContainers {
		out.Containers = append(out.Containers, local.FitContainer{Name: pod.Spec.InitContainers[i].Name})
	}
	for i := range pod.Spec.Containers {
		out.Containers = append(out.Containers, local.FitContainer{Name: pod.Spec.Containers[i].Name})
	}
	others := a.besides(pod, beside)
	r := a.admission.Ask(pod, others)
	if r == nil {
		// The caller has no context; the timeout is the same as for a real reservation.
		ctx, cancel := context.WithTimeout(context.Background(), admit.ReserveTimeout)
		defer cancel()
		var held []part.Reservation
		held, r = a.hooks.Rehearse(ctx, a.guard, pod)
		for _, res := range held {
			if s, ok := res.(shower); ok {
				s.ShowFit(&out)
			}
		}
	}
	if r = a.admission.Later(pod, others, r); r != nil {
		out.Fits, out.Containers = false, nil
		out.Reason, out.Message, out.RetryUntil = r.Reason, r.Message, r.RetryUntil
		out.Shortages = a.node.Shortages(pod, others)
	} else {
		out.Requests = a.node.Requests(pod, others)
	}
	out.Missing = slices.Concat(a.lacksObjects(pod), a.lacksVolumes(pod), a.lacksPorts(pod))
	return out
}

// besides returns the pods that would hold resources of the node at the same time as
// pod.
func (a *Agent) besides(pod *v1.Pod, beside []*v1.Pod) []*v1.Pod {
	replaced := map[string]bool{podmeta.FullName(pod.Namespace, pod.Name): true}
	for _, p := range beside {
		replaced[podmeta.FullName(p.Namespace, p.Name)] = true
	}
	others := slices.DeleteFunc(a.admission.Active(pod.UID), func(p *v1.Pod) bool { return replaced[podmeta.FullName(p.Namespace, p.Name)] })
	return append(others, beside...)
}

// lacksObjects returns the objects that a pod needs and no source has.
func (a *Agent) lacksObjects(pod *v1.Pod) (out []local.FitMissing) {
	configMaps, secrets := a.pods.ConfigMaps(pod.Namespace), a.pods.Secrets(pod.Namespace)
	claims := a.pods.ResourceClaims(pod.Namespace)
	for _, r := range podmeta.References(pod) {
		there := r.Optional
		switch r.Kind {
		case "ConfigMap":
			there = there || configMaps[r.Name] != nil
		case "Secret":
			there = there || secrets[r.Name] != nil
		case "ResourceClaim":
			there = there || claims[r.Name] != nil
		case "PersistentVolumeClaim":
			_, found := a.pods.Claim(pod.Namespace, r.Name)
			there = there || found
		}
		if !there {
			name := pod.Namespace + "/" + r.Name
			out = append(out, local.FitMissing{Kind: r.Kind, Name: name, Message: r.Kind + " " + name + " is not here"})
		}
	}
	return out
}

// volumeTimeout limits the checks of a pod's volumes in a dry run.
const volumeTimeout = 5 * time.Second

// lacksVolumes returns the volumes of a pod that could not be mounted now. Volumes of missing
// claims are left out: the claims are in lacksObjects.
func (a *Agent) lacksVolumes(pod *v1.Pod) (out []local.FitMissing) {
	v, ok := a.volumes.(VolumeChecker)
	if !ok {
		return nil
	}
	there := pod.DeepCopy()
	there.Spec.Volumes = slices.DeleteFunc(there.Spec.Volumes, func(v v1.Volume) bool {
		if v.PersistentVolumeClaim == nil {
			return v.Ephemeral != nil
		}
		_, found := a.pods.Claim(pod.Namespace, v.PersistentVolumeClaim.ClaimName)
		return !found
	})
	ctx, cancel := context.WithTimeout(context.Background(), volumeTimeout)
	defer cancel()
	for _, err := range v.Check(ctx, there) {
		out = append(out, local.FitMissing{Kind: local.KindVolume, Name: err.Volume, Message: err.Error()})
	}
	return out
}

// lacksPorts returns the host ports of a pod at which a process of the node listens. It
// leaves out ports of other pods, since these are a reason to reject the pod.
func (a *Agent) lacksPorts(pod *v1.Pod) (out []local.FitMissing) {
	type number struct {
		protocol v1.Protocol
		port     int32
	}
	declared := map[number]bool{}
	for _, p := range a.admission.Active("") {
		for _, port := range fit.HostPorts(p) {
			declared[number{port.Protocol, port.Port}] = true
		}
	}
	for _, port := range fit.HostPorts(pod) {
		if declared[number{port.Protocol, port.Port}] {
			continue
		}
		if who := a.query.Holder(port); who != "" {
			name := fmt.Sprintf("%d/%s", port.Port, port.Protocol)
			out = append(out, local.FitMissing{Kind: local.KindHostPort, Name: name, Message: "host port " + name + " is taken by " + who})
		}
	}
	return out
}
