package main

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// probed is a pod of one container with probes; container is flow YAML.
func probed(name, steps, container string) string {
	return strings.Replace(box(name, steps), "args:", container+", args:", 1)
}

// said reports whether an event of a pod was recorded.
func (l *lab) said(pod, reason, message string) bool {
	l.t.Helper()
	list, err := l.api.Events(l.t.Context(), "default", pod+"-lab")
	l.must(err)
	return slices.ContainsFunc(list.Items, func(e v1.Event) bool { return e.Reason == reason && strings.Contains(e.Message, message) })
}

// inside has a step of the test image done in a pod's container.
func (l *lab) inside(pod string, step ...string) {
	l.t.Helper()
	l.ask(append([]string{"exec", pod, "--", "/testbox"}, step...)...)
}

func started(p *v1.Pod) bool {
	return p != nil && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Running != nil
}

func restarts(p *v1.Pod) int32 {
	if p == nil || len(p.Status.ContainerStatuses) == 0 {
		return -1
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

// Each kind of probe reaches real containers: those that are not ready become so, and one
// that is not alive is restarted. What probes decide is tested in package probe.
func TestProbed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const often = "periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 60"
	kinds := map[string]string{
		"http": "httpGet: {port: web, path: /healthz}",
		"grpc": "grpc: {port: 8080}",
		"exec": "exec: {command: [/testbox, cat, /tmp/ok]}",
	}
	for name, probe := range kinds {
		l.write(name+".yaml", probed(name, "health, ':8080', /tmp/ok",
			"ports: [{name: web, containerPort: 8080}], readinessProbe: {"+probe+", "+often+"}"))
	}
	l.write("tcp.yaml", probed("tcp", "wait, /tmp/ok, listen, ':9000'", "readinessProbe: {tcpSocket: {port: 9000}, "+often+"}"))
	// It is asked whether it is alive once it is known to catch the signal.
	l.write("live.yaml", probed("live", "trap, '7', 0s, write, /tmp/ok, healthy, sleep, forever",
		"startupProbe: {exec: {command: [/testbox, cat, /tmp/ok]}, periodSeconds: 1, failureThreshold: 600, timeoutSeconds: 60}, "+
			"livenessProbe: {exec: {command: [/testbox, cat, /tmp/ok]}, "+often+"}"))
	l.start()
	waiting := []string{"http", "grpc", "exec", "tcp"}
	pods := l.until("all run", func(now map[string]*v1.Pod) bool {
		return ready(now["live"]) && !slices.ContainsFunc(waiting, func(n string) bool { return !started(now[n]) })
	})
	for _, n := range waiting {
		if ready(pods[n]) {
			t.Errorf("pod %s is ready", n)
		}
	}
	for _, e := range [][2]string{
		{"http", "Readiness probe failed: HTTP probe failed with statuscode: 503"},
		{"grpc", "Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")"},
		{"tcp", "Readiness probe failed: dial tcp"},
		{"exec", "Readiness probe failed: "},
	} {
		l.until("Unhealthy event of "+e[0], func(map[string]*v1.Pod) bool { return l.said(e[0], "Unhealthy", e[1]) })
	}
	for _, n := range waiting {
		l.inside(n, "write", "/tmp/ok", "healthy")
	}
	l.untilReady(waiting...)

	l.inside("live", "remove", "/tmp/ok")
	pods = l.until("restarted", func(now map[string]*v1.Pod) bool { return restarts(now["live"]) > 0 && ready(now["live"]) })
	if end := pods["live"].Status.ContainerStatuses[0].LastTerminationState.Terminated; end == nil || end.ExitCode != 7 || end.Reason != "Error" {
		t.Errorf("the unhealthy container ended with %+v", end)
	}
	l.until("events of live", func(map[string]*v1.Pod) bool {
		return l.said("live", "Unhealthy", "Liveness probe failed: ") && l.said("live", "Killing", "Container c failed liveness probe, will be restarted")
	})
}
