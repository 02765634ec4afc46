package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/internal/admit"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
)

// The dry run of an admission, for whoever wants to know before a pod is made.

var _ local.Fitter = (*Agent)(nil)

// dryUID stands for the UID of a pod that has none.
const dryUID = "dry-run"

// shower is a part.Reservation of a dry run that can say where containers go.
type shower interface{ ShowFit(*local.Fit) }

// Fit reports whether the node would admit a pod now, and where its containers would
// run. Nothing is taken. It may block for as long as parts take to answer, and may
// be called before Run. The pod is not changed.
func (a *Agent) Fit(pod *v1.Pod) local.Fit {
	pod = pod.DeepCopy()
	if pod.Namespace == "" {
		pod.Namespace = v1.NamespaceDefault
	}
	if pod.UID == "" {
		// Parts keep what they know of a pod by its UID; an empty one would be that
		// of every pod without.
		pod.UID = dryUID
	}
	out := local.Fit{Fits: true}
	for i := range pod.Spec.InitContainers {
		out.Containers = append(out.Containers, local.FitContainer{Name: pod.Spec.InitContainers[i].Name})
	}
	for i := range pod.Spec.Containers {
		out.Containers = append(out.Containers, local.FitContainer{Name: pod.Spec.Containers[i].Name})
	}
	others := a.admission.Active(pod.UID)
	r := a.admission.Ask(pod, others)
	if r == nil {
		// Whoever asks has no context to give; this bound is that of a real
		// reservation.
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
	}
	return out
}
