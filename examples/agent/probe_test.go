package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/sampleimage"
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

// Each kind of probe decides as it should about real containers.
func TestProbed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const often = "periodSeconds: 1, failureThreshold: 1"
	l.write("live.yaml", probed("live", "write, /tmp/ok, healthy, trap, '7', 0s, sleep, forever",
		"livenessProbe: {exec: {command: [/testbox, cat, /tmp/ok]}, "+often+"}"))
	ready3 := map[string]string{
		"http": "httpGet: {port: web, path: /healthz}",
		"grpc": "grpc: {port: 8080}",
		"exec": "exec: {command: [/testbox, cat, /tmp/ok]}",
	}
	for name, probe := range ready3 {
		l.write(name+".yaml", probed(name, "health, ':8080', /tmp/ok",
			"ports: [{name: web, containerPort: 8080}], readinessProbe: {"+probe+", "+often+"}"))
	}
	l.write("tcp.yaml", probed("tcp", "wait, /tmp/ok, listen, ':9000'", "readinessProbe: {tcpSocket: {port: 9000}, "+often+"}"))
	// Its liveness would have it killed long before it has started.
	l.write("slow.yaml", probed("slow", "wait, /tmp/ok, health, ':8080', /tmp/ok",
		"startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 300}, livenessProbe: {httpGet: {port: 8080}, "+often+"}"))
	l.write("never.yaml", probed("never", "sleep, forever",
		"startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 2}"))
	// It ignores TERM; the probe's own grace is shorter than the pod's.
	l.write("stubborn.yaml", strings.Replace(probed("stubborn", "ignore, sleep, forever",
		"livenessProbe: {tcpSocket: {port: 8080}, "+often+", terminationGracePeriodSeconds: 1}"),
		"terminationGracePeriodSeconds: 1\n", "terminationGracePeriodSeconds: 3600\n", 1))
	l.write("sidecar.yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: sidecar}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: s, image: '%[1]s', args: [wait, /tmp/ok, listen, ':9000'], restartPolicy: Always, startupProbe: {tcpSocket: {port: 9000}, periodSeconds: 1, failureThreshold: 300}}
  containers:
  - {name: c, image: '%[1]s', args: [sleep, forever]}
`, sampleimage.Testbox))
	l.start()

	// What is not ready runs, and says so; the unhealthy one is restarted.
	pods := l.until("all run", func(now map[string]*v1.Pod) bool {
		for _, n := range []string{"live", "http", "grpc", "exec", "tcp", "slow"} {
			if !started(now[n]) {
				return false
			}
		}
		return ready(now["live"]) && restarts(now["never"]) > 0 && restarts(now["stubborn"]) > 0 && now["sidecar"] != nil &&
			len(now["sidecar"].Status.InitContainerStatuses) > 0 && now["sidecar"].Status.InitContainerStatuses[0].State.Running != nil
	})
	for _, n := range []string{"http", "grpc", "exec", "tcp", "slow", "sidecar"} {
		if ready(pods[n]) {
			t.Errorf("pod %s is ready", n)
		}
	}
	if c := condition(pods["http"], v1.PodReady); c == nil || c.Reason != "ContainersNotReady" || c.Message != "containers with unready status: [c]" {
		t.Errorf("condition Ready of the pod http: %+v", c)
	}
	for _, n := range []string{"slow", "tcp"} {
		if *pods[n].Status.ContainerStatuses[0].Started != (n == "tcp") {
			t.Errorf("pod %s: started %v", n, *pods[n].Status.ContainerStatuses[0].Started)
		}
	}
	if w := pods["sidecar"].Status.ContainerStatuses[0].State.Waiting; w == nil {
		t.Errorf("the container after a sidecar that has not started is %s", state(pods["sidecar"].Status.ContainerStatuses[0].State))
	}
	if end := pods["stubborn"].Status.ContainerStatuses[0].LastTerminationState.Terminated; end == nil || end.ExitCode != 137 {
		t.Errorf("the stubborn container ended with %+v", end)
	}
	for _, e := range [][3]string{
		{"http", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503"},
		{"grpc", "Unhealthy", "Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")"},
		{"tcp", "Unhealthy", "Readiness probe failed: dial tcp"},
		{"exec", "Unhealthy", "Readiness probe failed: "},
		{"never", "Unhealthy", "Startup probe failed: "},
		{"never", "Killing", "Container c failed startup probe, will be restarted"},
		{"stubborn", "Killing", "Container c failed liveness probe, will be restarted"},
	} {
		l.until(e[1]+" event of "+e[0], func(map[string]*v1.Pod) bool { return l.said(e[0], e[1], e[2]) })
	}
	l.remove("never.yaml")
	l.remove("stubborn.yaml")

	// They recover.
	for _, n := range []string{"http", "grpc", "exec", "tcp", "slow"} {
		l.inside(n, "write", "/tmp/ok", "healthy")
	}
	l.ask("exec", "sidecar", "-c", "s", "--", "/testbox", "write", "/tmp/ok", "healthy")
	l.untilReady("http", "grpc", "exec", "tcp", "slow", "sidecar", "live")

	// And fall ill.
	for n := range ready3 {
		l.inside(n, "remove", "/tmp/ok")
	}
	l.inside("live", "remove", "/tmp/ok")
	l.inside("slow", "remove", "/tmp/ok")
	pods = l.until("noticed", func(now map[string]*v1.Pod) bool {
		for n := range ready3 {
			if ready(now[n]) {
				return false
			}
		}
		return restarts(now["live"]) > 0 && ready(now["live"]) && restarts(now["slow"]) > 0
	})
	for n := range ready3 {
		if restarts(pods[n]) != 0 {
			t.Errorf("pod %s was restarted since it was not ready", n)
		}
	}
	if end := pods["live"].Status.ContainerStatuses[0].LastTerminationState.Terminated; end == nil || end.ExitCode != 7 || end.Reason != "Error" {
		t.Errorf("the unhealthy container ended with %+v", end)
	}
	l.until("events of live", func(map[string]*v1.Pod) bool {
		return l.said("live", "Unhealthy", "Liveness probe failed: ") && l.said("live", "Killing", "Container c failed liveness probe, will be restarted")
	})
}

// watchFiles polls the status files until stop is closed, and returns every
// change of a Ready condition that it saw.
func (l *lab) watchFiles(stop <-chan struct{}) (flips []string) {
	dir := filepath.Join(l.root, "status")
	was := map[string]v1.ConditionStatus{}
	for {
		files, err := filepath.Glob(filepath.Join(dir, "*.json"))
		if err != nil {
			l.t.Error(err)
		}
		for _, f := range files {
			var p v1.Pod
			b, err := os.ReadFile(f)
			if os.IsNotExist(err) {
				continue
			}
			if err == nil {
				err = json.Unmarshal(b, &p)
			}
			if err != nil {
				l.t.Errorf("%s: %v", f, err)
				continue
			}
			now := v1.ConditionUnknown
			if c := condition(&p, v1.PodReady); c != nil {
				now = c.Status
			}
			if before, ok := was[p.Name]; ok && before != now {
				flips = append(flips, fmt.Sprintf("%v %s: %s to %s", time.Now().Format(time.TimeOnly), p.Name, before, now))
			}
			was[p.Name] = now
		}
		for name := range was {
			if !slices.ContainsFunc(files, func(f string) bool { return strings.Contains(f, name) }) {
				flips = append(flips, name+" has no file any more")
				delete(was, name)
			}
		}
		select {
		case <-stop:
			return flips
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// No agent's death changes what the world is told of pods that are well, or
// what runs.
func TestReadinessOutlivesTheAgent(t *testing.T) {
	long(t)
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	l := newLab(t)
	const pods = 20
	var names []string
	for i := range pods {
		name := fmt.Sprintf("p%02d", i)
		names = append(names, name)
		probes := []string{
			"readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}, livenessProbe: {httpGet: {port: 8080}, periodSeconds: 1}",
			"startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}, readinessProbe: {grpc: {port: 8080}, periodSeconds: 1}",
			"readinessProbe: {exec: {command: [/testbox, cat, /tmp/ok]}, periodSeconds: 2}, livenessProbe: {tcpSocket: {port: 8080}, initialDelaySeconds: 1, periodSeconds: 1}",
			"startupProbe: {exec: {command: [/testbox, cat, /tmp/ok]}, periodSeconds: 1}",
		}[i%4]
		l.write(name+".yaml", probed(name, "write, /tmp/ok, healthy, health, ':8080', /tmp/ok", probes))
	}
	l.start()
	l.untilReady(names...)
	running := ids(l.containers())
	l.until("all files say ready", func(map[string]*v1.Pod) bool {
		files, err := filepath.Glob(filepath.Join(l.root, "status", "*.json"))
		l.must(err)
		return len(files) == pods && !slices.ContainsFunc(files, func(f string) bool {
			var p v1.Pod
			b, err := os.ReadFile(f)
			return err != nil || json.Unmarshal(b, &p) != nil || !ready(&p)
		})
	})

	stop := make(chan struct{})
	var flips []string
	var wg sync.WaitGroup
	wg.Go(func() { flips = l.watchFiles(stop) })
	l.kill()
	for range 50 {
		l.launch()
		time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond) // the random moment
		l.kill()
	}
	l.start()
	l.untilReady(names...)
	close(stop)
	wg.Wait()
	for _, f := range flips {
		t.Errorf("readiness flipped: %s", f)
	}
	if now := ids(l.containers()); !slices.Equal(now, running) {
		t.Errorf("containers changed: %d before, %d after", len(running), len(now))
	}
	for n, p := range l.pods() {
		if restarts(p) != 0 {
			t.Errorf("pod %s: restart count %d", n, restarts(p))
		}
	}
}
