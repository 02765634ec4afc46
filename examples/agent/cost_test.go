package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

// What a pod may cost, counted, as a busy machine changes times alone. The pods have
// cgroups of no kind and no volumes; what the node reports meanwhile counts for them.
const (
	costPods   = 60
	maxPatches = 2.3 // it is being made, and it runs; seldom one between
	maxEvents  = 3.2
	maxCalls   = 8.0 // of the runtime
	maxSyncs   = 3.0
	maxObjects = 5500 // allocated
)

func TestCostOfAPod(t *testing.T) {
	bare := bareLab(t)
	rt := critest.New()
	rt.AddImage(costImage)
	rt.Delay("RunPodSandbox", 50*time.Millisecond)
	bare.socket = filepath.Join(filepath.Dir(bare.manifests), "cri.sock")
	sock, err := net.Listen("unix", bare.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rt.Serve(sock))
	l := clusterLabOf(t, bare)
	l.start()
	l.nodeIs(v1.ConditionTrue)

	objects := func() float64 { return l.metric("go_memstats_mallocs_total") }
	syncs := func() float64 {
		return l.metric(`kubelet_pod_worker_duration_seconds_count{operation_type="create"}`) +
			l.metric(`kubelet_pod_worker_duration_seconds_count{operation_type="sync"}`)
	}
	objects() // the first answer makes the series
	l.api.ForgetRequests()
	rt.ForgetCalls()
	began, objectsBefore, syncsBefore := time.Now(), objects(), syncs()
	for i := range costPods {
		p := bound(fmt.Sprintf("p%02d", i))
		p.Spec.NodeSelector, p.Spec.Containers[0].Env, p.Spec.Containers[0].Image = nil, nil, costImage
		l.api.Create(p)
	}
	l.eventually("all pods are shown as ready", func() error {
		for i := range costPods {
			if p, _ := l.api.Get(&v1.Pod{}, "default", fmt.Sprintf("p%02d", i)).(*v1.Pod); !ready(p) {
				return fmt.Errorf("pod %d: %+v", i, p.Status)
			}
		}
		return nil
	})
	// The last events are on their way, as is the echo of the last status.
	l.eventually("each pod has its events", func() error {
		if n := l.api.Count("create", kubeapi.Events); n < 3*costPods {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	// Meanwhile the agent allocates as at rest, the more the slower the machine is. So as much is
	// subtracted as it allocates at rest in the same time. A scrape allocates, too.
	took, allocated := time.Since(began), objects()
	scraped := objects()
	time.Sleep(took)
	atRest := max(0, objects()-scraped-(scraped-allocated))
	for _, c := range []struct {
		what     string
		got, max float64
	}{
		{"patches of its status", float64(l.count("patch", "status")), maxPatches},
		{"events", float64(l.api.Count("create", kubeapi.Events)), maxEvents},
		{"calls of the runtime", float64(len(rt.Calls())), maxCalls},
		{"objects allocated", allocated - objectsBefore - atRest, maxObjects},
		{"syncs", syncs() - syncsBefore, maxSyncs},
	} {
		if got := c.got / costPods; got > c.max {
			t.Errorf("a pod takes %.1f %s; want at most %.1f", got, c.what, c.max)
		} else {
			t.Logf("a pod takes %.1f %s of %.1f", got, c.what, c.max)
		}
	}
}

const costImage = "localhost/cost:1"

// count counts the calls for pods of a verb and a subresource.
func (l *clusterLab) count(verb, subresource string) (n int) {
	for _, q := range l.api.Requests() {
		if kubeapitest.Of(verb, kubeapi.Pods)(q) && q.Subresource == subresource {
			n++
		}
	}
	return n
}

// metric is the value of a series of the node, 0 if it has none of that name.
func (l *clusterLab) metric(series string) float64 {
	l.t.Helper()
	code, body := l.nodeGet("/metrics", "good")
	if code != 200 {
		l.t.Fatalf("metrics: %d %.300q", code, body)
	}
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			l.must(err)
			return v
		}
	}
	return 0
}
