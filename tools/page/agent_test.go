package page_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/agent/local"
)

// agent is one with pods as the tests want them.
type agent struct {
	mu   sync.Mutex
	pods []v1.Pod
	whys map[types.UID]local.Why
	down bool
	now  time.Time
}

// past is that of each pod but "none": a container that crashes again and again, while the agent was
// away for some time.
func past(q local.PastQuery) (p local.Past, err error) {
	if q.Name == "none" {
		return p, local.ErrNotFound
	}
	code := int32(137)
	begin := time.Now().Truncate(time.Second).Add(-3 * time.Hour)
	p.Moments = append(p.Moments, local.Moment{At: begin, UID: "1", Kind: "wanted", Text: "it was added to its source (file)"})
	for i := range 6 {
		at := begin.Add(time.Duration(i) * 30 * time.Minute)
		end, next := at.Add(20*time.Minute), at.Add(30*time.Minute)
		p.Stretches = append(p.Stretches,
			local.Stretch{Container: "app", From: at, To: end, State: local.Running, Text: "ran for 20m"},
			local.Stretch{Container: "app", From: end, To: next, State: local.Waiting, Text: "it was killed for using more than its memory limit of 16 MiB", ExitCode: &code, Problem: true})
		p.Moments = append(p.Moments, local.Moment{At: end, UID: "1", Container: "app", Kind: "probe", Text: "the liveness probe of container app failed three times, HTTP 503 from 10.1.2.3:8080/healthz", Problem: true})
	}
	p.Stretches = append(p.Stretches, local.Stretch{Container: "setup", From: begin, To: begin.Add(time.Minute), State: local.Running, Text: "ran for 60s"},
		local.Stretch{Container: "setup", From: begin.Add(time.Minute), State: local.Ended, Text: "it ended with exit code 0", ExitCode: new(int32)},
		local.Stretch{From: begin.Add(time.Hour), To: begin.Add(80 * time.Minute), State: local.AgentAway, Text: "no agent ran"})
	return p, nil
}

var errDown = errors.New("no agent answers at /run/nodewright/agent.sock: connect: connection refused")

func (a *agent) answer() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		return errDown
	}
	return nil
}

func (a *agent) set(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = down
}

// fault is how a pod is broken.
type fault struct {
	name, state, cause string
	restarts           int32
	evidence, do       []string
}

var faults = []fault{
	{"checkout", "CrashLoopBackOff", "container c has ended 5 times, last after less than 1s at 08:38:30, with exit code 3", 5, []string{"its last words: cannot open /data/db: no such file"}, []string{"look at its log: agent logs checkout-vm -n shop", "change spec.containers[0] in /etc/nodewright/manifests/checkout.yaml (it takes effect once saved)"}},
	{"catalog", "ImagePullBackOff", "image registry.example/shop/catalog:7 from registry.example cannot be pulled: registry.example: no such host", 0, nil, []string{"agent images load FILE, with an archive of registry.example/shop/catalog:7"}},
	{"reports", "Running", "the readiness probe of container c has failed 21 times since 08:34:52: GET http://10.214.4.4:8080/healthz: connection refused: nothing listens on port 8080 in the pod", 0, nil, nil},
	{"cache", "CrashLoopBackOff", "container c was killed 4 times for using more than its memory limit of 16Mi", 4, nil, nil},
	{"orders", "Init:0/1", "init container wait-db has been running for 39s; c begins after its end", 0, nil, nil},
	{"ledger", "CreateContainerConfigError", `spec.containers[0].envFrom[0].configMapRef: configmap "settings" not found`, 0, nil, nil},
}

// newAgent returns an agent with n pods, of which as many are broken.
func newAgent(n, broken int) *agent {
	a := &agent{whys: map[types.UID]local.Why{}, now: time.Now()}
	for i := range n {
		name, namespace, state, why := fmt.Sprintf("worker-%d", i), "jobs", "", local.Why{Good: true, State: "runs"}
		restarts := int32(0)
		ready := v1.ConditionTrue
		if i < broken {
			f := faults[i%len(faults)]
			name, namespace, state, restarts, ready = f.name, "shop", f.state, f.restarts, v1.ConditionFalse
			if i >= len(faults) {
				name += fmt.Sprintf("-%d", i)
			}
			why = local.Why{State: "does not run", Cause: f.cause, Evidence: f.evidence, Do: f.do, Next: "next start", NextAt: a.now.Add(33 * time.Second), Failures: 5}
		} else if i == broken {
			name, namespace = "web", "default"
		}
		p := podOf(a.now, namespace, name+"-vm", i, restarts, ready)
		if state != "" && state != "Running" {
			p.Status.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: state}}
		}
		if i == n-1 && n > 5 {
			p.DeletionTimestamp = &metav1.Time{Time: a.now}
			why = local.Why{State: "is ending", Cause: "its end was asked for 5s ago; its containers have until 08:39:02"}
		}
		why.Namespace, why.Name, why.UID, why.Manifest = p.Namespace, p.Name, string(p.UID), "/etc/nodewright/manifests/"+name+".yaml"
		a.pods, a.whys[p.UID] = append(a.pods, p), why
	}
	return a
}

func podOf(now time.Time, namespace, name string, i int, restarts int32, ready v1.ConditionStatus) v1.Pod {
	started := metav1.NewTime(now.Add(-time.Duration(i+3) * 7 * time.Minute))
	p := v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(fmt.Sprintf("uid-%d", i)), CreationTimestamp: started, Labels: map[string]string{"app": name}},
		Spec: v1.PodSpec{
			NodeName: "vm", RestartPolicy: v1.RestartPolicyAlways,
			Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/srv/data"}}}},
			Containers: []v1.Container{{
				Name: "c", Image: "registry.example/shop/" + name + ":7", Command: []string{"/bin/server"}, Args: []string{"--listen", ":8080"},
				Ports:          []v1.ContainerPort{{ContainerPort: 8080, HostPort: 18080}},
				Env:            []v1.EnvVar{{Name: "PORT", Value: "8080"}, {Name: "DATABASE"}},
				VolumeMounts:   []v1.VolumeMount{{Name: "data", MountPath: "/data"}},
				Resources:      v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("50m"), v1.ResourceMemory: resource.MustParse("32Mi")}, Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi"), v1.ResourceCPU: resource.MustParse("200m")}},
				ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/healthz"}}, PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1},
				LivenessProbe:  &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/livez"}}, PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1},
			}, {Name: "side", Image: "registry.example/shop/side:2"}},
		},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, StartTime: &started, QOSClass: v1.PodQOSBurstable, PodIPs: []v1.PodIP{{IP: fmt.Sprintf("10.214.4.%d", i%250+2)}},
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}},
			ContainerStatuses: []v1.ContainerStatus{
				{Name: "c", Ready: ready == v1.ConditionTrue, RestartCount: restarts, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: started}}},
				{Name: "side", Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: started}}},
			},
		},
	}
	if restarts > 0 {
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &v1.ContainerStateTerminated{
			ExitCode: 3, Reason: "Error", StartedAt: metav1.NewTime(now.Add(-20 * time.Second)), FinishedAt: metav1.NewTime(now.Add(-17 * time.Second)),
		}
	}
	return p
}

func (a *agent) Pods(context.Context) (*v1.PodList, error) {
	return &v1.PodList{Items: slices.Clone(a.pods)}, a.answer()
}

func (a *agent) Pod(_ context.Context, namespace, name string) (*v1.Pod, error) {
	for i := range a.pods {
		if p := &a.pods[i]; p.Namespace == namespace && p.Name == name {
			return p, a.answer()
		}
	}
	return nil, local.ErrNotFound
}

func (a *agent) event(p *v1.Pod, kind, reason, message string, count int32, ago time.Duration) v1.Event {
	return v1.Event{
		InvolvedObject: v1.ObjectReference{Namespace: p.Namespace, Name: p.Name, FieldPath: "spec.containers{c}"}, Type: kind, Reason: reason, Message: message, Count: count,
		LastTimestamp: metav1.NewTime(a.now.Add(-ago)),
	}
}

func (a *agent) Events(_ context.Context, namespace, name string) (*v1.EventList, error) {
	p := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return &v1.EventList{Items: []v1.Event{
		a.event(&p, "Normal", "Pulled", "Container image is present on the machine already", 1, 9*time.Minute),
		a.event(&p, "Normal", "Started", "Started container c", 5, 20*time.Second),
		a.event(&p, "Warning", "Unhealthy", "Readiness probe failed: connection refused", 21, 10*time.Second),
		a.event(&p, "Warning", "BackOff", "Back-off restarting failed container c", 4, 4*time.Second),
	}}, a.answer()
}

func (a *agent) Why(_ context.Context, namespace, name string) (*local.Why, error) {
	p, err := a.Pod(context.Background(), namespace, name)
	if err != nil {
		return nil, err
	}
	w := a.whys[p.UID]
	return &w, nil
}

func (a *agent) Whys(context.Context) (all []local.Why, err error) {
	for i := range a.pods {
		all = append(all, a.whys[a.pods[i].UID])
	}
	return all, a.answer()
}

func (a *agent) AllEvents(ctx context.Context) (*v1.EventList, error) {
	all := &v1.EventList{}
	for i := range a.pods[:min(3, len(a.pods))] {
		e, err := a.Events(ctx, a.pods[i].Namespace, a.pods[i].Name)
		if err != nil {
			return nil, err
		}
		all.Items = append(all.Items, e.Items...)
	}
	return all, a.answer()
}

func (a *agent) Node(context.Context) (*v1.Node, error) {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vm"}}
	n.Status.Capacity = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("24Gi")}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}, {Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse}}
	n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.7"}}
	n.Status.NodeInfo = v1.NodeSystemInfo{OSImage: "Debian GNU/Linux 12 (bookworm)", KernelVersion: "6.1.0-18-amd64", Architecture: "amd64"}
	return n, a.answer()
}

func (a *agent) WhyNode(context.Context) (*local.NodeWhy, error) {
	return &local.NodeWhy{
		Name: "vm", Runtime: "localcri", Network: "bridge: no valid network configuration in /etc/cni/net.d",
		Figures: []local.NodeFigure{
			{Signal: "memory.available", Available: "19Gi", Capacity: "24Gi", Threshold: "1Gi"}, {Signal: "nodefs.available", Available: "100Gi", Capacity: "400Gi", Threshold: "40Gi"},
		},
	}, a.answer()
}

func (a *agent) Problems(context.Context) ([]local.Problem, error) {
	if len(a.pods) == 0 {
		return nil, a.answer()
	}
	return []local.Problem{
		{File: "/etc/nodewright/manifests/e01-field.yaml", Line: 10, Pod: "default/e01", Field: "spec.containers[0].imagePullpolicy", Reason: "unknown field; did you mean imagePullPolicy?"},
		{File: "/etc/nodewright/manifests/web.yaml", Line: 11, Pod: "default/web", Reason: "a [ is not closed", Kept: true},
	}, a.answer()
}

func (a *agent) Images(context.Context) (*local.Images, error) {
	i := &local.Images{Summary: "75 % of the disk is full; collection begins at 85 %"}
	for n := range min(12, len(a.pods)) {
		i.Images = append(i.Images, local.Image{Name: fmt.Sprintf("registry.example/shop/part-%d:7", n), Size: int64(n+1) << 22, Verdict: "in use", Why: "a pod uses it: shop/checkout-vm", LastUsed: a.now})
	}
	return i, a.answer()
}

func usage(i int) (*statsapi.CPUStats, *statsapi.MemoryStats) {
	return &statsapi.CPUStats{UsageNanoCores: new(uint64(i*1_700_000%140_000_000 + 1_000_000))}, &statsapi.MemoryStats{WorkingSetBytes: new(uint64(i*311+300) << 12)}
}

func (a *agent) Summary(context.Context, bool) (*statsapi.Summary, error) {
	var s statsapi.Summary
	s.Node.CPU, s.Node.Memory = &statsapi.CPUStats{UsageNanoCores: new(uint64(820_000_000))}, &statsapi.MemoryStats{WorkingSetBytes: new(uint64(4_300 << 20))}
	for i := range a.pods {
		p := statsapi.PodStats{PodRef: statsapi.PodReference{UID: string(a.pods[i].UID)}}
		p.CPU, p.Memory = usage(i)
		c := statsapi.ContainerStats{Name: "c"}
		c.CPU, c.Memory = usage(i)
		p.Containers = append(p.Containers, c)
		s.Pods = append(s.Pods, p)
	}
	return &s, a.answer()
}

func (a *agent) History(context.Context) (*local.Usage, error) {
	u := &local.Usage{Pods: map[string]local.PodUsage{}}
	wave := func(i int, mean, swing float64, speed float64) int64 {
		return int64(mean + swing*math.Sin(float64(i)*speed) + swing*.4*math.Sin(float64(i)*speed*5.3+1))
	}
	for i := range 120 {
		u.Times = append(u.Times, a.now.Add(time.Duration(i-119)*30*time.Second))
		gone := i > 40 && i < 48
		for list, v := range map[*[]int64]int64{
			&u.Node.CPU: wave(i, 800, 300, .13), &u.Node.Memory: wave(i, 4.4e9, 9e8, .05), &u.Node.Disk: 300<<30 + int64(i)<<26,
			&u.Node.Received: wave(i, 2e6, 1.2e6, .21), &u.Node.Sent: wave(i, 9e5, 6e5, .17),
		} {
			if gone {
				v = -1
			}
			*list = append(*list, v)
		}
		for n := range a.pods {
			p := u.Pods[string(a.pods[n].UID)]
			p.CPU, p.Memory = append(p.CPU, max(0, wave(i+n*7, 60, 55, .11+float64(n%5)/20))), append(p.Memory, wave(i+n, 3e7, 8e6, .07))
			u.Pods[string(a.pods[n].UID)] = p
		}
	}
	u.Node.DiskSize = 400 << 30
	return u, a.answer()
}

// Log has a hundred lines, and with o.Follow one more every 100 ms.
func (a *agent) Log(ctx context.Context, _, _ string, o local.LogOptions) (io.ReadCloser, error) {
	if err := a.answer(); err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	go func() {
		line := func(i int, at time.Time) error {
			s := fmt.Sprintf("%s: request %d from 10.214.4.1 answered with \x1b[32m200\x1b[0m <b>in</b> %d ms\n", o.Container, i, i%17)
			if o.Timestamps {
				s = at.UTC().Format(time.RFC3339Nano) + " " + s
			}
			_, err := io.WriteString(w, s)
			return err
		}
		for i := range 100 {
			if at := a.now.Add(time.Duration(i-100) * time.Second); at.After(o.Since) && line(i, at) != nil {
				return
			}
		}
		for i := 100; o.Follow; i++ {
			select {
			case <-ctx.Done():
				_ = w.Close()
				return
			case <-time.After(100 * time.Millisecond):
			}
			if line(i, time.Now()) != nil {
				return
			}
		}
		_ = w.Close()
	}()
	return r, nil
}

// hostile gives every pod names and words that would do something if they were not escaped.
func (a *agent) hostile() *agent {
	evil := `</script><img src=x onerror="document.title='owned'">` + strings.Repeat("W", 300)
	for i := range a.pods {
		p := &a.pods[i]
		p.Status.Reason, p.Labels = evil, map[string]string{evil: evil}
		w := a.whys[p.UID]
		w.Good, w.State, w.Cause, w.Evidence = false, "does not run", evil, []string{evil}
		a.whys[p.UID] = w
	}
	return a
}
