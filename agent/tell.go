package agent

import (
	"context"
	"fmt"
	"net"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podspec"
)

// Events of the core about pods and the node, with the kubelet's texts where it has them.

// Reasons of events, as in the kubelet.
const (
	reasonSync       = "FailedSync"
	reasonValidation = "FailedValidation"
	reasonFamilies   = "HostIPsIPFamilyMismatch"
	reasonResolvConf = "CheckLimitsForResolvConf"
)

// Reasons of events of manifests, which the kubelet does not report.
const (
	reasonManifest      = "ManifestRefused"
	reasonManifestValid = "ManifestValid"
)

// event records why a pod ends, is rejected or waits.
func (a *Agent) event(pod *v1.Pod, why podlife.Cause) {
	if eventType, reason, message := why.Event(); eventType != "" {
		a.events.Event(pod, eventType, reason, message)
	}
}

// refused records that a pod is not in effect because another pod has its name or UID.
func (a *Agent) refused(pod *v1.Pod, why string) {
	a.events.Event(pod, v1.EventTypeWarning, reasonValidation, why)
}

// mistakes records the problems of a manifest as one event of the node. When there are no
// problems any more, it records that too.
func (a *Agent) mistakes(file string, problems []podmgr.Problem) {
	if len(problems) == 0 {
		a.events.Node(v1.EventTypeNormal, reasonManifestValid, file+" is in order again")
		return
	}
	text := problems[0].Error()
	if more := len(problems) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	if problems[0].Kept {
		text += "; its last good version stays in effect"
	}
	a.events.Node(v1.EventTypeWarning, reasonManifest, text)
}

// observe returns the state of a pod in the runtime. After an error it records an event.
func (a *Agent) observe(ctx context.Context, pod *v1.Pod, newerThan time.Time) (*observed.Pod, error) {
	obs, err := a.pleg.GetNewerThan(ctx, pod.UID, newerThan)
	if err != nil && ctx.Err() == nil {
		a.events.Event(pod, v1.EventTypeWarning, reasonSync, "error determining status: "+err.Error())
	}
	return obs, err
}

// warnOfFamilies records an event if the first address of a pod is of another family than the
// node's, once for each address.
func (a *Agent) warnOfFamilies(pod *v1.Pod, before, now *v1.PodStatus) {
	if pod.Spec.HostNetwork || now.PodIP == "" || now.HostIP == "" || before != nil && before.PodIP == now.PodIP {
		return
	}
	host, own := net.ParseIP(now.HostIP), net.ParseIP(now.PodIP)
	// The family of an invalid address is unknown, so there is no event.
	if host == nil || own == nil || (host.To4() == nil) == (own.To4() == nil) {
		return
	}
	a.events.Event(pod, v1.EventTypeWarning, reasonFamilies,
		fmt.Sprintf("the node's first address is %s, the pod's is %s: they are of different IP families", now.HostIP, now.PodIP))
}

// checkResolv records an event if the node's resolver configuration exceeds the limits for pods,
// once for each content.
func (a *Agent) checkResolv(content string) {
	if old := a.run.resolv.Swap(&content); old != nil && *old == content {
		return
	}
	for _, problem := range podspec.CheckResolvConf(a.cfg.DNS.ResolvConf, content, a.cfg.DNS.ClusterDomain) {
		a.events.Node(v1.EventTypeWarning, reasonResolvConf, problem)
	}
}
