package agent_test

import (
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
	"github.com/nodewright/nodewright/podmgr"
)

// recorder takes events as an embedder's does that knows containers.
type recorder struct {
	mu  sync.Mutex
	got []string
}

func (r *recorder) note(parts ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, strings.Join(parts, " "))
}

func (r *recorder) has(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.got, func(s string) bool { return strings.HasPrefix(s, text) })
}

// all gives a copy of what was recorded until now.
func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func (r *recorder) Event(pod *v1.Pod, _, reason, message string) { r.note(pod.Name, reason, message) }

func (r *recorder) ContainerEvent(pod *v1.Pod, container, _, reason, message string) {
	r.note(pod.Name+"/"+container, reason, message)
}

func (r *recorder) NodeEvent(_, reason, message string) { r.note("node", reason, message) }

// Events of containers name them, to recorders and to local readers.
func TestEventsNameTheirContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		rec := &recorder{}
		n.configure = func(c *agent.Config) { c.Events = rec }
		l := n.start()
		defer l.stop()
		pod := newPod("web", runs("a"), runs("b"), runs("bad"))
		pod.Spec.Containers[2].Image = "localhost/none:1"
		pod.Spec.Containers[0].LivenessProbe = &v1.Probe{
			ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Host: "127.0.0.1", Port: intstr.FromInt32(1)}}, PeriodSeconds: 1, FailureThreshold: 100, TimeoutSeconds: 1,
		}
		n.want = []*v1.Pod{pod}
		l.tell()
		settle()
		for _, want := range []string{"web/a Created", "web/b Started", "web/a Pulled", "web/bad Pulling", "web/bad Failed"} {
			if !rec.has(want) {
				t.Errorf("no %q among %q", want, rec.all())
			}
		}
		paths := map[string]int{}
		for _, e := range l.Events(pod) {
			if e.Reason == "Started" {
				paths[e.InvolvedObject.FieldPath]++
			}
		}
		if len(paths) != 2 || paths["spec.containers{a}"] != 1 || paths["spec.containers{b}"] != 1 {
			t.Errorf("Started of %v", paths)
		}
	})
}

// A pod that another keeps from running has an event, once; so has one whose state the
// runtime does not tell.
func TestEventsOfPodsThatDoNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		rec := &recorder{}
		n.configure = func(c *agent.Config) { c.Events = rec }
		api := newAPISource()
		n.more = []podmgr.Source{api}
		l := n.start()
		defer l.stop()
		web, twin := newPod("web", runs("c")), newPod("web", runs("c"))
		twin.UID = "uid-twin"
		n.want = []*v1.Pod{web}
		l.tell()
		settle()
		for range 3 {
			api.tell(twin)
			settle()
		}
		count := 0
		for _, s := range rec.all() {
			if strings.HasPrefix(s, "web FailedValidation pod from api is not in effect: metadata.name: ") {
				count++
			}
		}
		if count != 1 {
			t.Errorf("%d events of the twin among %q", count, rec.all())
		}
		id := n.id("c")
		n.rt.Fail("ListContainers", errors.New("damaged"))
		n.rt.Fail("ContainerStatus", errors.New("damaged"))
		n.rt.Fail("PodSandboxStatus", errors.New("damaged"))
		n.rt.Kill(id)
		time.Sleep(2 * time.Minute)
		settle()
		if !rec.has("web FailedSync error determining status: ") {
			t.Errorf("no event about the status among %q", rec.all())
		}
		n.rt.Fail("ListContainers", nil)
		n.rt.Fail("ContainerStatus", nil)
		n.rt.Fail("PodSandboxStatus", nil)
	})
}

// What the node lacks for its pods is told of it: a server for names, a resolver's
// configuration that fits, and addresses of one family.
func TestEventsOfTheNodesNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		rec := &recorder{}
		resolv := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(resolv, []byte("nameserver 192.0.2.1\nsearch"+strings.Repeat(" a", 40)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.configure = func(c *agent.Config) {
			c.Events, c.DNS = rec, agent.DNS{ClusterDomain: "cluster.local", ResolvConf: resolv}
		}
		n.rt.SetIPs("2001:db8::7")
		l := n.start()
		defer l.stop()
		pod := newPod("web", runs("c"))
		pod.Spec.DNSPolicy = v1.DNSClusterFirst
		n.want = []*v1.Pod{pod}
		l.tell()
		settle()
		for _, want := range []string{
			"web MissingClusterDNS", "node MissingClusterDNS", "node CheckLimitsForResolvConf Resolv.conf file '" + resolv, "web HostIPsIPFamilyMismatch the node's first address is 192.0.2.7, the pod's is 2001:db8::7",
		} {
			if !rec.has(want) {
				t.Errorf("no %q among %q", want, rec.all())
			}
		}
		before := len(rec.all())
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		for _, s := range rec.all()[before:] {
			if strings.Contains(s, "ResolvConf") || strings.Contains(s, "Mismatch") {
				t.Errorf("told again: %s", s)
			}
		}
	})
}
