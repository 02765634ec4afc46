package agent_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/record"
)

// recordInto gives the next process of a node's agent a part that records into dir.
func recordInto(t *testing.T, n *agenttest.Node, dir string) {
	t.Helper()
	r, err := record.New(record.Config{Dir: dir, Node: "node", Boot: "boot-1"})
	if err != nil {
		t.Fatal(err)
	}
	n.Config.Parts = []part.Part{r}
}

// recorded returns the entries about a pod.
func recorded(t *testing.T, dir, name string) (out []record.Entry) {
	t.Helper()
	for e, err := range record.Read(dir, record.Filter{Name: name}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// told is a part that keeps what it is told.
type told struct {
	mu  sync.Mutex
	all []record.Entry
}

func (*told) Name() string { return "told" }

func (p *told) Record(e record.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, e)
}

// A part is told of sandboxes and of each call of the pod's worker, with how long both took.
func TestDurationsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := agenttest.New(t)
		p := &told{}
		n.Config.Parts = []part.Part{p}
		n.Start()
		pod := agenttest.Pod("web", agenttest.Container("c"))
		n.Want(pod)
		time.Sleep(10 * time.Second)
		n.Want()
		time.Sleep(2 * time.Minute)
		synctest.Wait()

		p.mu.Lock()
		defer p.mu.Unlock()
		sandboxes, calls := 0, map[string]bool{}
		for _, e := range p.all {
			switch f := e.Fact.(type) {
			case *record.SandboxRun:
				sandboxes++
				if f.ID == "" || f.Error != "" || e.Pod.UID != pod.UID || e.Pod.Name != "web" || f.Took < 0 {
					t.Errorf("sandbox %+v of %+v", f, e.Pod)
				}
			case *record.Sync:
				calls[f.Call] = true
			}
		}
		if sandboxes != 1 || !calls["syncPod"] || !calls["syncTerminatingPod"] || !calls["syncTerminatedPod"] {
			t.Errorf("%d sandboxes, calls %v", sandboxes, calls)
		}
	})
}

func TestLifeIsRecorded(t *testing.T) {
	const marker = "hunter2"
	synctest.Test(t, func(t *testing.T) {
		n := agenttest.New(t)
		dir := filepath.Join(t.TempDir(), "record")
		recordInto(t, n, dir)
		n.Start()
		begin := time.Now()
		pod := agenttest.Pod("web", agenttest.Container("c"))
		c := &pod.Spec.Containers[0]
		c.LivenessProbe = &v1.Probe{
			ProbeHandler:  v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Host: "127.0.0.1", Path: "/healthz?" + marker, Port: intstr.FromInt32(1), HTTPHeaders: []v1.HTTPHeader{{Name: marker, Value: marker}}}},
			PeriodSeconds: 10, FailureThreshold: 3, TimeoutSeconds: 1,
		}
		pod.Annotations, pod.Labels = map[string]string{marker: marker}, map[string]string{"x": marker}
		c.Env = []v1.EnvVar{{Name: marker, Value: marker}}
		c.WorkingDir = "/" + marker
		n.Want(pod)
		time.Sleep(35 * time.Second)
		synctest.Wait()
		n.Want()
		time.Sleep(2 * time.Minute)
		synctest.Wait()

		all := recorded(t, dir, "web")
		var probe *record.Probe
		var ended, began, wanted, admitted, decided int
		for _, e := range all {
			if e.Pod.UID != pod.UID || e.Pod.Namespace != pod.Namespace {
				t.Errorf("an entry of %+v", e.Pod)
			}
			switch f := e.Fact.(type) {
			case *record.Probe:
				if !f.OK {
					probe = f
				}
			case *record.Instance:
				if f.State == "exited" {
					ended++
				}
				if f.State == "running" {
					began++
				}
			case *record.Wanted:
				wanted++
			case *record.Verdict:
				if f.Admitted {
					admitted++
				}
			case *record.Decision:
				if slices.ContainsFunc(f.Result.Regular, func(a record.Act) bool { return a.Do == "end" && a.Why == "LivenessProbe" }) {
					decided++
				}
				if diff := f.Differs(f.Again()); len(diff) > 0 {
					t.Errorf("decided otherwise: %q", diff)
				}
			}
		}
		if probe == nil || probe.Times != 3 || probe.How != "http" || probe.Target != "127.0.0.1:1/healthz" || probe.Error != "connection refused" || probe.Since.IsZero() {
			t.Errorf("the failed probe is %+v", probe)
		}
		if ended != 2 || began != 2 || wanted != 2 || admitted != 1 || decided != 1 {
			t.Errorf("%d ends, %d starts, %d of the source, %d admissions, %d decisions to end", ended, began, wanted, admitted, decided)
		}
		past, err := agent.Past(dir, local.PastQuery{Name: "web", At: begin, Within: 34 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(past.Answer, "restarted at ") || !strings.Contains(past.Answer, ": the liveness probe failed three times, 127.0.0.1:1/healthz: connection refused, since ") {
			t.Errorf("the answer is %q", past.Answer)
		}
		if _, err := agent.Past(dir, local.PastQuery{Name: "other"}); !errors.Is(err, local.ErrNotFound) {
			t.Errorf("of an unknown pod: %v", err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("files %q, %v", files, err)
		}
		for _, f := range files {
			if b, err := os.ReadFile(f); err != nil || bytes.Contains(b, []byte(marker)) {
				t.Errorf("%s has the marker, or %v", f, err)
			}
		}
	})
}

// A restart of the agent records its own start and end, and nothing of a pod at rest, nor do hours
// at rest.
func TestRestIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := agenttest.New(t)
		dir := filepath.Join(t.TempDir(), "record")
		recordInto(t, n, dir)
		n.Start()
		n.Want(agenttest.Pod("web", agenttest.Container("c")))
		time.Sleep(time.Minute)
		synctest.Wait()
		before := kindsRecorded(recorded(t, dir, "web"))
		for range 3 {
			time.Sleep(time.Hour)
			synctest.Wait()
			n.Stop()
			recordInto(t, n, dir)
			n.Start()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if after := kindsRecorded(recorded(t, dir, "web")); after != before {
			t.Errorf("recorded %s\nbefore   %s", after, before)
		}
	})
}

func kindsRecorded(all []record.Entry) string {
	var b strings.Builder
	for _, e := range all {
		_ = record.Write(&b, []record.Entry{{Fact: e.Fact}})
	}
	return b.String()
}

// recordSize returns the bytes of the files of a record.
func recordSize(t *testing.T, dir string) (n int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		n += info.Size()
	}
	return n
}
