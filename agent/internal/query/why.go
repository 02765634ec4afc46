package query

import (
	"bytes"
	"cmp"
	"context"
	"net/netip"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/explain"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/cri/crilog"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/internal/hostports"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

// wordsTimeout limits the time for reading the last log line of a container.
const wordsTimeout = time.Second

// maxWords limits the bytes that are read of a log line.
const maxWords = 1 << 10

// Why explains a pod of [Query.Pods] with package explain.
func (q *Query) Why(pod *v1.Pod) local.Why {
	f := q.facts(pod)
	return explain.Pod(&f)
}

// facts collects the facts about a pod. Those about the runtime come from memory; logs are read
// only when needed.
func (q *Query) facts(pod *v1.Pod) explain.Facts {
	f := explain.Facts{
		Now: time.Now(), Pod: pod, RuntimeError: q.Runtime.Healthy(), Pulls: q.Images.Waiting(pod.UID), Observed: q.Runtime.View(pod.UID).Pod,
		Parts: q.Explain(pod), Manifest: q.Sources.File(pod.UID), Events: q.Events(pod),
		Holder: func(port int32) string { return q.Holder(fit.HostPort{Protocol: v1.ProtocolTCP, Port: port}) },
	}
	f.Answer, f.Reserving = q.Admission(pod.UID)
	if f.Answer != nil {
		f.Shortages = q.Short(pod)
	}
	if last, ok := q.Statuses.Last(pod.UID); ok {
		f.Cause = last.Why
	}
	if w, ok := q.Workers.State(pod.UID); ok {
		f.Worker = &w
	}
	if v, ok := q.Volumes.(VolumeExplainer); ok {
		f.Volumes = v.Why(pod.UID)
	}
	for _, h := range q.Runtime.Hung() {
		if h.UID == pod.UID {
			f.Hung = h.Since
		}
	}
	f.Problems = problemsOf(pod, f.Manifest, q.Problems())
	f.EndedFor = func(id string) podlife.Kind { return q.EndedFor(pod.UID, id) }
	f.LastWords = func(container string, previous bool) string { return q.lastWords(pod, container, previous) }
	return f
}

// problemsOf returns those of all that are about a pod, or about the manifest file in which it is.
func problemsOf(pod *v1.Pod, file string, all []local.Problem) []local.Problem {
	var out []local.Problem
	for _, p := range all {
		if p.Pod != "" && (p.Pod == pod.Namespace+"/"+pod.Name || p.Pod == pod.Namespace+"/"+written(pod)) && (file == "" || p.File == file) || p.Pod == "" && p.File != "" && p.File == file {
			out = append(out, p)
		}
	}
	return out
}

// written returns the name of a pod in its manifest, without the suffix with the node's name.
func written(pod *v1.Pod) string {
	if !podmeta.IsStatic(pod) {
		return pod.Name
	}
	return strings.TrimSuffix(pod.Name, "-"+strings.ToLower(pod.Spec.NodeName))
}

// lastWords returns the last line of the log of a container's newest instance or, if previous is
// true, of the one before it. It returns "" if there is no log.
func (q *Query) lastWords(pod *v1.Pod, container string, previous bool) string {
	c := instanceIn(q.Runtime.View(pod.UID).Pod, container, previous)
	if c == nil || c.LogPath == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), wordsTimeout)
	defer cancel()
	var b bytes.Buffer
	if err := crilog.Copy(ctx, &b, c.LogPath, crilog.Options{Tail: 1, Limit: maxWords, Root: q.PodLogs}); err != nil {
		return ""
	}
	return b.String()
}

// Holder returns the pod or process that listens on a port of the node.
func (q *Query) Holder(p fit.HostPort) string {
	proto, known := hostports.Proto(strings.ToLower(string(p.Protocol)))
	if !known {
		return ""
	}
	addr, _ := netip.ParseAddr(p.IP) // an invalid address counts as all addresses
	uid, process := q.Listener(proto, addr, uint16(p.Port))
	return cmp.Or(q.podName(types.UID(uid)), process)
}

// podName returns "pod NAMESPACE/NAME" for a wanted pod, and otherwise "".
func (q *Query) podName(uid types.UID) string {
	if p, ok := q.Sources.Pod(uid); ok {
		return "pod " + p.Namespace + "/" + p.Name
	}
	return ""
}
