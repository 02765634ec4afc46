package pressure

import (
	"fmt"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podlife"
)

// comesBack reports whether an evicted pod is started again by this agent. That holds
// for static pods on a standalone node: no controller replaces them, and the kubelet
// evicts none.
func (p *Eviction) comesBack(pod *v1.Pod, cause podlife.Cause) bool {
	return p.cfg.Standalone && (cause.Kind == podlife.Evicted || cause.Kind == podlife.OverLimit) && cause.Returns(pod)
}

// Over implements part.Reviver.
func (p *Eviction) Over(pod *v1.Pod, cause podlife.Cause) bool {
	return p.comesBack(pod, cause) && !p.cfg.Hold() && p.backoffs.over(pod.UID, time.Now()) && !p.underPressure()
}

// Begins implements part.Reviver.
func (p *Eviction) Begins(pod *v1.Pod, _ podlife.Cause) {
	p.backoffs.began(pod.UID, time.Now())
	p.cfg.Log.Info("pod begins again after its eviction", zap.String("pod", pod.Namespace+"/"+pod.Name))
}

// Explain implements part.Explainer.
func (p *Eviction) Explain(pod *v1.Pod) string {
	st, _ := p.host.Status(pod.UID)
	if why, _ := podlife.CauseOf(&st); !p.comesBack(pod, why) {
		return ""
	}
	until := p.backoffs.until(pod.UID)
	switch {
	case p.underPressure():
		return "the node to be no longer short of anything: it was evicted, and begins again then"
	case !until.IsZero():
		return fmt.Sprintf("its time to begin again, %s: it was evicted", until.Format(time.TimeOnly))
	}
	return "its time to begin again: it was evicted"
}

// Housekeep implements part.Housekeeper: it drops pods that no source wants any more.
func (p *Eviction) Housekeep(desired []*v1.Pod) {
	want := make(map[types.UID]bool, len(desired))
	for _, pod := range desired {
		want[pod.UID] = true
	}
	p.backoffs.retain(func(uid types.UID) bool { return want[uid] })
}
