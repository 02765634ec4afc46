//go:build kubelet

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// settled is how long a status must have stayed the same to count as final, and
// passing is the same of one that cannot last.
const (
	settled = 3 * time.Second
	passing = 700 * time.Millisecond
)

// seen is what one program made of a pod: fields of its status and events by path.
type seen map[string]string

// Pods run first by the kubelet and then by the agent have the same statuses and
// events in the end, but for what testdata/differences.txt names.
func TestDifferential(t *testing.T) {
	program(t, kubelet)
	n := newNode(t, "nodeStatusUpdateFrequency: 2s\nmaxPods: 200\nserializeImagePulls: false\n")
	text, err := os.ReadFile(filepath.Join("testdata", "differential.yaml"))
	n.must(err)
	pods := strings.NewReplacer("IMAGE", busybox, "NODE", n.cluster.node, "FOREVER", forever).Replace(string(text))

	theirs := n.outcome(kubelet, pods)
	ours := n.outcome(agent, pods)

	allowed := n.differences()
	fields := 0
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		paths := map[string]bool{}
		for _, s := range []seen{theirs[name], ours[name]} {
			for path := range s {
				paths[path] = true
			}
		}
		fields += len(paths)
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			a, hasA := theirs[name][path]
			b, hasB := ours[name][path]
			if hasA == hasB && a == b || allowed.has(name, path) {
				continue
			}
			t.Errorf("%s: %s\n\tkubelet: %s\n\tagent:   %s", name, path, shown(a, hasA), shown(b, hasB))
		}
	}
	used := 0
	for i := range allowed {
		used += allowed[i].used
		if allowed[i].used == 0 {
			t.Logf("no difference of this kind this time: %s %s (%s)", allowed[i].pod, allowed[i].path, allowed[i].why)
		}
	}
	t.Logf("%d pods, %d fields and events compared, %d differ for reasons in testdata/differences.txt", len(theirs), fields, used)
}

func shown(value string, has bool) string {
	if !has {
		return "(none)"
	}
	return value
}

// outcome has a program run pods until each has come to where it leads, and delete
// them. It returns what became of each.
func (n *node) outcome(program, manifests string) map[string]seen {
	n.t.Helper()
	n.run(program)
	n.until("the namespace is ready for pods", func() error {
		_, err := n.try("get", "serviceaccount/default", "configmap/kube-root-ca.crt")
		return err
	})
	n.apply(manifests)
	all := map[string]seen{}
	since := map[string]time.Time{}
	latest := map[string]seen{}
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(250 * time.Millisecond) {
		pods, err := n.pods("")
		n.must(err)
		events := n.events()
		for name, p := range pods {
			if all[name] != nil {
				continue
			}
			s := statusOf(p)
			if !reached(p, events[name]) || !maps.Equal(s, latest[name]) {
				latest[name], since[name] = s, time.Now()
				continue
			}
			long := settled
			if strings.Contains(p.Annotations["until"], "restarted") {
				long = passing
			}
			if time.Since(since[name]) >= long {
				all[name] = s
			}
		}
		if len(all) == len(pods) {
			break
		}
		if time.Now().After(end) {
			for name, p := range pods {
				if all[name] == nil {
					n.t.Errorf("%s: %s does not come to %q: %v", program, name, p.Annotations["until"], latest[name])
					all[name] = latest[name]
				}
			}
			break
		}
	}
	n.deleteAll("pods")
	n.until("the pods are gone", func() error {
		pods, err := n.pods("")
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("left: %v", slices.Sorted(maps.Keys(pods)))
		}
		return err
	})
	time.Sleep(settled) // events come after what they tell of
	for name, events := range n.events() {
		for e := range events {
			if all[name] != nil {
				all[name]["event "+e] = "yes"
			}
		}
	}
	n.deleteAll("events")
	n.end()
	return all
}

func (n *node) deleteAll(what string) {
	n.t.Helper()
	n.must(n.cp.Do(n.t.Context(), http.MethodDelete, "/api/v1/namespaces/default/"+what, nil, nil))
}

// reached reports whether a pod is where its annotation says that it leads.
func reached(p *v1.Pod, events map[string]bool) bool {
	containers := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	anyOf := func(is func(v1.ContainerStatus) bool) bool { return slices.ContainsFunc(containers, is) }
	for want := range strings.FieldsSeq(p.Annotations["until"]) {
		key, value, _ := strings.Cut(want, "=")
		ok := false
		switch key {
		case "phase":
			ok = string(p.Status.Phase) == value
		case "ready":
			ok = isReady(p)
		case "unready":
			ok = p.Status.Phase == v1.PodRunning && !isReady(p)
		case "running":
			ok = anyOf(func(c v1.ContainerStatus) bool { return c.State.Running != nil })
		case "init-running":
			ok = len(p.Status.InitContainerStatuses) > 0 && p.Status.InitContainerStatuses[0].State.Running != nil
		case "waiting":
			ok = anyOf(func(c v1.ContainerStatus) bool { return c.State.Waiting != nil && c.State.Waiting.Reason == value })
		case "crashed": // the kubelet shows one or the other
			ok = anyOf(func(c v1.ContainerStatus) bool {
				return c.State.Terminated != nil || c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff"
			})
		case "restarted":
			ok = anyOf(func(c v1.ContainerStatus) bool { return c.RestartCount > 0 })
		case "event":
			for e := range events {
				ok = ok || strings.Contains(e, " "+value+" ")
			}
		}
		if !ok {
			return false
		}
	}
	return true
}

// statusOf is a status by paths, without what no two pods share.
func statusOf(p *v1.Pod) seen {
	b, err := json.Marshal(p.Status)
	var status map[string]any
	if err = errors.Join(err, json.Unmarshal(b, &status)); err != nil {
		panic(err)
	}
	out := seen{}
	flatten(out, "status", status)
	return out
}

// present are fields whose value is not compared, only that there is one.
var present = []string{
	"containerID", "podIP", "ip", "hostIP", "startTime", "startedAt", "finishedAt", "lastTransitionTime", "lastProbeTime",
}

func flatten(out seen, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			_, text := field.(string)
			switch count, number := field.(float64); {
			case text && slices.Contains(present, key):
				field = "present"
			case number && key == "restartCount" && count > 0:
				field = "some"
			}
			flatten(out, path+"."+key, field)
		}
	case []any:
		for i, item := range v {
			key := strconv.Itoa(i)
			if m, ok := item.(map[string]any); ok { // lists of the API are maps by one of these
				for _, by := range []string{"type", "name"} {
					if s, ok := m[by].(string); ok {
						key = normal(s)
					}
				}
			}
			flatten(out, path+"["+key+"]", item)
		}
	default:
		out[path] = normal(fmt.Sprint(v))
	}
}

// What a text has of a single pod or moment.
var (
	identities = []struct {
		pattern *regexp.Regexp
		name    string
	}{
		{regexp.MustCompile(`\bkube-api-access-[a-z0-9]{5}\b`), "kube-api-access"}, // before durations: it may end in 2m5s
		{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "UID"},
		{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "ID"},
		{regexp.MustCompile(`\b(\d{1,3}\.){3}\d{1,3}(:\d+)?\b`), "ADDRESS"},
		{regexp.MustCompile(`\b(\d+(\.\d+)?(ms|µs|s|m))+\b`), "DURATION"},
		{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)`), "TIME"},
	}
)

func normal(text string) string {
	for _, id := range identities {
		text = id.pattern.ReplaceAllString(text, id.name)
	}
	return text
}

// events are those of each pod, each as one line and once, without those of the
// scheduler.
func (n *node) events() map[string]map[string]bool {
	n.t.Helper()
	var list v1.EventList
	n.must(n.get("/api/v1/namespaces/default/events", &list))
	out := map[string]map[string]bool{}
	for _, e := range list.Items {
		if e.InvolvedObject.Kind != "Pod" || e.Source.Component == "default-scheduler" || e.ReportingController == "default-scheduler" {
			continue
		}
		name := e.InvolvedObject.Name
		if out[name] == nil {
			out[name] = map[string]bool{}
		}
		out[name][normal(fmt.Sprintf("%s %s %s: %s", e.Type, e.Reason, e.InvolvedObject.FieldPath, e.Message))] = true
	}
	return out
}

// A difference that is meant: pods and paths by pattern, and why.
type difference struct {
	pod, path *regexp.Regexp
	why       string
	used      int
}

type differences []difference

func (d differences) has(pod, path string) bool {
	found := false
	for i := range d {
		if d[i].pod.MatchString(pod) && d[i].path.MatchString(path) {
			d[i].used++
			found = true
		}
	}
	return found
}

// differences reads testdata/differences.txt: lines of a pod, a path and a reason,
// with " | " between them.
func (n *node) differences() differences {
	n.t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "differences.txt"))
	n.must(err)
	var all differences
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, " | ")
		if len(f) != 3 {
			n.t.Fatalf("differences.txt: %q: want pod | path | why", line)
		}
		all = append(all, difference{pod: regexp.MustCompile("^(" + f[0] + ")$"), path: regexp.MustCompile("^(" + f[1] + ")"), why: f[2]})
	}
	return all
}
