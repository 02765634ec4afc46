package e2e_test

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/e2e/controlplane"
)

var burst = flag.Int("burst", 20, "how many pods are made at once")

// maxCalls bounds what a pod may cost the API server from its creation until it
// is ready: its status after each of three steps, its token, its events.
const maxCalls = 10

// Many pods at once: how long until all are ready, what they cost the API
// server, and how late statuses are.
func TestBurst(t *testing.T) {
	l := newCluster(t)
	l.start()
	l.apply(pod("first", forever)) // what is made once
	l.ready(1, "app=first")
	began := time.Now()
	var all sync.WaitGroup
	for i := range *burst {
		all.Go(func() {
			name := fmt.Sprintf("p%03d", i)
			err := l.cp.Do(t.Context(), http.MethodPost, "/api/v1/namespaces/default/pods", &v1.Pod{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "burst"}},
				Spec: v1.PodSpec{TerminationGracePeriodSeconds: new(int64(2)), Containers: []v1.Container{
					{Name: "main", Image: busybox, ImagePullPolicy: v1.PullNever, Command: []string{"sh", "-c", forever}},
				}},
			}, nil)
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	made := time.Since(began)
	l.ready(*burst, "app=burst")
	ready := time.Since(began)
	calls := l.perPod(began)
	t.Logf("%d pods: all made after %v, all ready after %v", *burst, made.Round(time.Millisecond), ready.Round(time.Millisecond))
	t.Logf("calls a pod until it was ready: %.2f: %s", total(calls), list(calls))
	t.Logf("status lag: p50 %s, p99 %s", l.quantile("kubelet_pod_status_sync_duration_seconds", 0.5), l.quantile("kubelet_pod_status_sync_duration_seconds", 0.99))
	t.Logf("the agent's memory: %s", l.memory())
	if n := total(calls); n > maxCalls {
		t.Errorf("a pod costs %.2f calls, more than %d", n, maxCalls)
	}

	began = time.Now()
	l.must(l.cp.Do(t.Context(), http.MethodDelete, "/api/v1/namespaces/default/pods?labelSelector=app%3Dburst", nil, nil))
	l.until("all are gone", func() error {
		pods, err := l.pods("app=burst")
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d are left", len(pods))
		}
		return err
	})
	calls = l.perPod(began)
	t.Logf("all deleted after %v; calls a pod: %.2f: %s", time.Since(began).Round(time.Millisecond), total(calls), list(calls))
}

// perPod are the node's calls since a time, for each pod of the burst: by verb
// and resource. What the node does anyhow is left out.
func (l *cluster) perPod(since time.Time) map[string]float64 {
	l.t.Helper()
	calls, err := l.cp.Calls(since)
	l.must(err)
	out := map[string]float64{}
	for _, c := range calls {
		if !ofNode(c) {
			out[fmt.Sprintf("%s %s %d", c.Verb, c.Resource, c.Code)] += 1 / float64(*burst)
		}
	}
	return out
}

func ofNode(c controlplane.Call) bool {
	return c.Resource == "leases" || strings.HasPrefix(c.Resource, "nodes") || strings.HasPrefix(c.Resource, "csinodes")
}

func total(calls map[string]float64) (n float64) {
	for _, c := range calls {
		n += c
	}
	return n
}

func list(calls map[string]float64) string {
	var out []string
	for _, k := range slices.SortedFunc(maps.Keys(calls), func(a, b string) int { return cmp.Compare(calls[b], calls[a]) }) {
		out = append(out, fmt.Sprintf("%s %.2f", k, calls[k]))
	}
	return strings.Join(out, ", ")
}

// memory is what the agent has resident.
func (l *cluster) memory() string { return l.status("VmRSS:") }

// status is a value of the agent's /proc/PID/status.
func (l *cluster) status(field string) string {
	l.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.cmd.Process.Pid))
	l.must(err)
	_, rest, _ := strings.Cut(string(text), field)
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// quantile is the bound of a histogram's bucket that a part of its values is
// below.
func (l *cluster) quantile(name string, part float64) string {
	l.t.Helper()
	var text []byte
	l.must(l.get("/api/v1/nodes/"+l.node+"/proxy/metrics", &text))
	type bucket struct {
		bound string
		count float64
	}
	var all []bucket
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), name+`_bucket{le="`)
		if !ok {
			continue
		}
		bound, count, _ := strings.Cut(rest, `"} `)
		n, err := strconv.ParseFloat(count, 64)
		l.must(err)
		all = append(all, bucket{bound, n})
	}
	if len(all) == 0 {
		l.t.Fatalf("no %s", name)
	}
	of := all[len(all)-1].count
	for _, b := range all {
		if b.count >= part*of {
			return fmt.Sprintf("<= %s s (of %.0f)", b.bound, of)
		}
	}
	return "?"
}
