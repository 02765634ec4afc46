package agent

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/fit"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

var _ local.Fitter = (*Agent)(nil)

// dryUID stands for the UID of a pod that has none.
const dryUID = "dry-run"

// Fit tells whether the node would admit a pod now, and where its containers
// would run. Nothing is taken.
func (a *Agent) Fit(pod *v1.Pod) local.Fit {
	pod = pod.DeepCopy()
	if pod.UID == "" {
		pod.UID = dryUID
	}
	out := local.Fit{Fits: true}
	others := a.activePods(pod)
	for _, ad := range a.admit {
		if r := ad.Admit(pod, others); r != nil {
			r = a.orLater(pod, others, r)
			return local.Fit{Reason: r.Reason, Message: r.Message, RetryUntil: r.RetryUntil}
		}
	}
	n := fit.Pod(pod)
	devices, err := a.dryDevices(pod)
	if err != nil {
		r := a.orLater(pod, others, deviceRejection(err))
		return local.Fit{Reason: r.Reason, Message: r.Message, RetryUntil: r.RetryUntil}
	}
	if a.placement == nil && len(devices) == 0 {
		for _, c := range n.Containers {
			out.Containers = append(out.Containers, local.FitContainer{Name: c.Name})
		}
		return out
	}
	result, err := a.nodeNow().Place(n, devices...)
	for _, s := range result.Steps {
		out.Steps = append(out.Steps, stepOf(n, s.Container)+": "+s.Explain())
	}
	if err != nil {
		r := a.orLater(pod, others, deviceRejection(err))
		out.Fits, out.Reason, out.Message, out.RetryUntil = false, r.Reason, r.Message, r.RetryUntil
		return out
	}
	for i, c := range result.Containers {
		f := local.FitContainer{Name: c.Name, CPUs: c.CPUs.String(), Own: c.Own, Hint: local.FitHint{Preferred: c.Hint.Preferred}}
		f.MemoryNodes, f.Hint.Nodes = nodeList(c.Nodes), nodeList(c.Hint.Nodes)
		for _, b := range c.Memory {
			if f.Memory == nil {
				f.Memory = map[string]uint64{}
			}
			f.Memory[string(b.Resource)] = b.Bytes
		}
		for _, o := range result.Others {
			f.Devices = o.(*devicemgr.Admission).Chosen(i)
		}
		out.Containers = append(out.Containers, f)
	}
	return out
}

// dryDevices lets the devices of a pod that asks for some take part in a dry run.
// Their plugins may be asked for their preference.
func (a *Agent) dryDevices(pod *v1.Pod) ([]topology.Provider, error) {
	if a.cfg.Devices == nil {
		return nil, nil
	}
	adm, err := a.cfg.Devices.Begin(a.decisions.ctx, pod)
	if err != nil || !adm.Asks() {
		return nil, err
	}
	return []topology.Provider{adm}, nil
}

// nodeList is "" for any nodes.
func nodeList(s numa.NodeSet) string {
	if s == 0 {
		return ""
	}
	return s.String()
}

func stepOf(pod numa.Pod, container int) string {
	if container < 0 {
		return "the pod"
	}
	return "container " + pod.Containers[container].Name
}
