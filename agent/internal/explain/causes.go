package explain

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/volumemgr"
)

// kindWords has, for each kind, a sentence that says why a pod or a container ended or waits.
var kindWords = map[podlife.Kind]string{
	podlife.Evicted:          "it was evicted, as the node ran short",
	podlife.OverLimit:        "it was evicted, as it used more local storage than its own limit",
	podlife.Preempted:        "it was preempted: it made room for a critical pod",
	podlife.Shutdown:         "it was ended, as the machine goes down",
	podlife.DeadlineExceeded: "it ran for longer than its spec.activeDeadlineSeconds",
	podlife.VolumesExhausted: "the node can have no more volumes of a CSI driver",
	podlife.Rejected:         "the node rejected it",
	podlife.Waits:            "it waits to be admitted",
	podlife.Changed:          "its definition was changed, and it starts anew with the new one",
	podlife.LivenessFailed:   "its liveness probe failed",
	podlife.StartupFailed:    "its startup probe failed",
	podlife.StateUnknown:     "the container runtime could not tell its state",
	podlife.HookFailed:       "its postStart hook failed",
	podlife.Resized:          "its resources were changed, and its resizePolicy wants a restart for that",
	podlife.Surplus:          "it ran beside a newer instance of itself",
}

// causeOf returns a cause in a sentence.
func (e *explanation) causeOf(c podlife.Cause) string {
	words := cmp.Or(kindWords[c.Kind], "it was ended ("+c.Reason+")")
	switch c.Kind {
	case podlife.Rejected, podlife.Waits:
		words += ": " + c.Reason
	case podlife.DeadlineExceeded:
		if s := e.Pod.Spec.ActiveDeadlineSeconds; s != nil {
			words += fmt.Sprintf(" of %d", *s)
		}
		return words
	}
	if c.Message != "" {
		words += ": " + c.Message
	}
	return words
}

// advise adds the action for a cause.
func (e *explanation) advise(c podlife.Cause) {
	switch c.Kind {
	case podlife.Evicted:
		e.do("agent why node shows what the node is short of")
		e.edit("spec.containers[].resources.requests to what it uses", "give it a spec.priorityClassName")
	case podlife.OverLimit:
		e.edit("the limit (sizeLimit of the volume, or resources.limits.ephemeral-storage)", "have it write less")
	case podlife.Preempted:
		e.edit("spec.priorityClassName", "the requests of the pods")
	case podlife.Shutdown:
		e.do("nothing: it begins again when the machine is up")
	case podlife.DeadlineExceeded:
		e.edit("spec.activeDeadlineSeconds", "")
	case podlife.VolumesExhausted:
		e.do("remove a pod that has volumes of this driver")
	case podlife.Rejected, podlife.Waits:
		switch {
		case strings.HasPrefix(c.Reason, "OutOf"):
			e.edit("spec.containers[].resources.requests", "make room on the node")
		case c.Reason == "NodePorts":
			e.edit("hostPort", "end the pod that has it")
		case c.Reason == "NodeAffinity":
			e.edit("spec.nodeSelector or spec.affinity", "give the node the label")
		case c.Kind == podlife.Rejected:
			e.edit("what the reason names", "")
		}
	}
}

// image explains a pod that waits for the pull of an image.
func (e *explanation) image() bool {
	if len(e.Pulls) == 0 {
		return false
	}
	p := &e.Pulls[0]
	what := fmt.Sprintf("image %s from %s", p.Image, p.Registry)
	state, failed := notUp, doesntRun
	if ready(e.Pod) { // only an ephemeral container waits
		state, failed = runsWithout, runsWithout
	}
	if p.State == images.HeldBack {
		e.because(failed, "%s cannot be pulled: %s", what, shown(p.LastError))
		e.why.WaitingFor = fmt.Sprintf("%s: try %d at %s", what, p.Try, clock(p.RetryAt))
		e.why.Next, e.why.NextAt = fmt.Sprintf("next pull (try %d)", p.Try), p.RetryAt
		e.adviseImage(p.Image, p.LastError)
		return true
	}
	since := spell(e.Now.Sub(p.Since))
	switch p.State {
	case images.Queued:
		return e.waits(state, fmt.Sprintf("%s: number %d in the queue, for %s", what, p.Position, since))
	case images.Throttled:
		return e.waits(state, fmt.Sprintf("%s: next, as soon as the rate of pulls allows, for %s", what, since))
	}
	if p.Credentials > 1 {
		what += fmt.Sprintf(" with credential %d of %d", p.Credential, p.Credentials)
	}
	how := "the runtime pulls it"
	if p.Total > 0 {
		e.why.Pull = share(p.Received, p.Total)
		how += ": " + e.why.Pull
	}
	return e.waits(state, fmt.Sprintf("%s: %s, for %s", what, how, since))
}

// noImage explains a container whose image cannot be pulled.
func (e *explanation) noImage(c *container, w *v1.ContainerStateWaiting) {
	switch w.Reason {
	case "ErrImageNeverPull":
		e.because(doesntRun, "image %s of %s is not on the node, and its imagePullPolicy is Never", c.spec.Image, c.name())
		e.do("agent images load FILE")
		e.edit(c.path+".imagePullPolicy", "")
		return
	case "InvalidImageName":
		e.because(doesntRun, "%s of %s is no name of an image: %s", c.spec.Image, c.name(), shown(w.Message))
		e.edit(c.path+".image", "")
		return
	}
	e.because(doesntRun, "image %s of %s cannot be pulled: %s", c.spec.Image, c.name(), shown(w.Message))
	e.why.Next = "next pull"
	e.adviseImage(c.spec.Image, w.Message)
}

// adviseImage adds how to get an image onto the node, after a pull failed with an error.
func (e *explanation) adviseImage(image, failure string) {
	if strings.Contains(failure, images.ReasonBadSignature) {
		e.do("sign %s, or change the policy that the message names", image)
		return
	}
	e.do("agent images load FILE, with an archive of %s", image)
	field := "the image's name"
	e.each(func(c *container) bool {
		if c.spec.Image == image {
			field = c.path + ".image"
		}
		return c.spec.Image == image
	})
	e.edit(field, "give the pod spec.imagePullSecrets, if the registry wants to know who asks")
}

var notFound = regexp.MustCompile(`(?i)(configmap|secret|persistentvolumeclaim|claim) "?(?:[^" :/]+/)?([^" :/]+)"?:? (?:is )?not found`)

// absent adds where to create an object that an error reports as not found.
func (e *explanation) absent(message string) {
	m := notFound.FindStringSubmatch(message)
	if m == nil {
		return
	}
	kind := map[string]string{"configmap": "ConfigMap", "secret": "Secret", "persistentvolumeclaim": "PersistentVolumeClaim", "claim": "PersistentVolumeClaim"}[strings.ToLower(m[1])]
	if e.Manifest != "" {
		e.do("put a %s %q of namespace %s into the directory of %s", kind, m[2], e.Pod.Namespace, e.Manifest)
		return
	}
	e.do("make the %s %q in namespace %s", kind, m[2], e.Pod.Namespace)
}

// volume explains a pod that waits for its volumes.
func (e *explanation) volume() bool {
	line := e.volumeLine()
	if line == "" {
		return false
	}
	if e.Parts != "" {
		line += "; " + e.Parts
	}
	e.waits(e.why.State, line)
	for _, s := range e.Volumes {
		if s.Failures > 0 && !s.Next.IsZero() {
			e.why.Next, e.why.NextAt = "next try", s.Next
			if i := strings.LastIndex(s.Plugin, "/"); i >= 0 && s.Plugin[i+1:] == "host-path" {
				e.edit("spec.volumes[].hostPath (path, or type: DirectoryOrCreate)", "make the path on the node")
			} else {
				e.absent(s.Last)
				e.edit("spec.volumes", "make what it names")
			}
			break
		}
	}
	return true
}

// volumeLine returns, in one line, the volumes that a pod waits for.
func (e *explanation) volumeLine() string {
	for _, s := range e.Volumes {
		if s.State == volumemgr.StateMounted && s.Failures == 0 || len(s.Names) == 0 {
			continue
		}
		line := fmt.Sprintf("volume %s (%s): %s since %s", strings.Join(s.Names, ", "), s.Plugin, s.State, clock(s.Since))
		if s.Hung {
			line += ", and it hangs"
		}
		if s.Failures > 0 {
			line += fmt.Sprintf("; failed %d times, first with: %s", s.Failures, shown(s.First))
			if s.Last != s.First {
				line += "; last with: " + shown(s.Last)
			}
		}
		if !s.Next.IsZero() {
			line += "; next try at " + clock(s.Next)
		}
		return line
	}
	return ""
}

// found returns what a probe checks, and its last result.
func (e *explanation) found(p *v1.Probe, output string) string {
	if url, rest, ok := httpFailure(output); ok {
		return "GET " + url + ": " + rest
	}
	return e.target(p) + ": " + shortened(shown(output))
}

// target returns what a probe checks.
func (e *explanation) target(p *v1.Probe) string {
	pod := cmp.Or(e.Pod.Status.PodIP, "POD")
	switch h := p.ProbeHandler; {
	case h.Exec != nil:
		return "exec " + strings.Join(h.Exec.Command, " ")
	case h.HTTPGet != nil:
		u := url.URL{Scheme: strings.ToLower(string(cmp.Or(h.HTTPGet.Scheme, v1.URISchemeHTTP))), Host: cmp.Or(h.HTTPGet.Host, pod) + ":" + h.HTTPGet.Port.String()}
		return "GET " + u.String() + h.HTTPGet.Path
	case h.TCPSocket != nil:
		return "TCP " + cmp.Or(h.TCPSocket.Host, pod) + ":" + h.TCPSocket.Port.String()
	case h.GRPC != nil:
		return fmt.Sprintf("gRPC %s:%d", pod, h.GRPC.Port)
	default:
		return "nothing"
	}
}

// clock returns the local time of day.
func clock(t time.Time) string { return t.Local().Format(time.TimeOnly) }
