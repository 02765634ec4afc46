package pressure

import (
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

const (
	// reasonEvicted is the reason in the status of a pod that was evicted, or
	// rejected for pressure.
	reasonEvicted = "Evicted"
	// messageRejected begins the message of a pod that was rejected.
	messageRejected = "Pod was rejected: "
)

// comesBack reports whether an evicted pod is started again by this agent. That holds
// for static pods on a standalone node: no controller replaces them, and the kubelet
// evicts none. A pod with restartPolicy Never is not started again.
func (p *Eviction) comesBack(pod *v1.Pod, st *v1.PodStatus) bool {
	return p.cfg.Standalone && podmeta.IsStatic(pod) && pod.Spec.RestartPolicy != v1.RestartPolicyNever &&
		st.Phase == v1.PodFailed && st.Reason == reasonEvicted &&
		!(strings.HasPrefix(st.Message, messageRejected) && len(st.ContainerStatuses) == 0)
}

// Revives implements part.Reviver.
func (p *Eviction) Revives(pod *v1.Pod, st *v1.PodStatus) bool {
	if !p.comesBack(pod, st) || p.cfg.Hold() {
		return false
	}
	if w, known := p.host.Worker(pod.UID); known && !w.Finished {
		return false // its volumes are not gone yet
	}
	now := time.Now()
	if !p.backoffs.over(pod.UID, now) || p.underPressure() {
		return false
	}
	p.backoffs.began(pod.UID, now)
	p.cfg.Log.Info("pod begins again after its eviction", zap.String("pod", pod.Namespace+"/"+pod.Name))
	return true
}

// Explain implements part.Explainer.
func (p *Eviction) Explain(pod *v1.Pod) string {
	if st, ok := p.host.Status(pod.UID); !ok || !p.comesBack(pod, &st) {
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

// Housekeep implements part.Housekeeper: it forgets the pods that nobody wants
// any more.
func (p *Eviction) Housekeep(desired []*v1.Pod) {
	want := make(map[types.UID]bool, len(desired))
	for _, pod := range desired {
		want[pod.UID] = true
	}
	p.backoffs.retain(func(uid types.UID) bool { return want[uid] })
}
