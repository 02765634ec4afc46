package hollow_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent/hollow"
)

const testTimeout = 3 * time.Minute

// eventually waits for a condition, which is looked at often.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for at := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(at) > testTimeout {
			t.Fatalf("not within %v: %s", testTimeout, what)
		}
	}
}

// begin runs a node until the test ends.
func begin(t *testing.T, api *kubeapitest.Server, cfg hollow.Config) *hollow.Node {
	t.Helper()
	cfg.Transport = api.Transport()
	if cfg.Dir == "" {
		cfg.Dir = filepath.Join(t.TempDir(), cfg.Name)
	}
	n, err := hollow.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, n.Run)
	return n
}

// podOn is a pod that somebody has bound to a node.
func podOn(node, name string, change func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{}},
		Spec: v1.PodSpec{
			NodeName: node, RestartPolicy: v1.RestartPolicyAlways, DNSPolicy: v1.DNSDefault, TerminationGracePeriodSeconds: new(int64(30)),
			Containers: []v1.Container{{Name: "c", Image: "registry.example/web:1", ImagePullPolicy: v1.PullIfNotPresent, Command: []string{"/usr/sbin/web"}}},
		},
	}
	if change != nil {
		change(p)
	}
	return p
}

func status(api *kubeapitest.Server, name string) v1.PodStatus {
	if p, ok := api.Get(&v1.Pod{}, "default", name).(*v1.Pod); ok {
		return p.Status
	}
	return v1.PodStatus{}
}

func ready(n *v1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// Ten nodes of one process have their own pods, and none another's.
func TestTenNodes(t *testing.T) {
	t.Parallel()
	const nodes, pods = 10, 5
	api := kubeapitest.New()
	defer api.Stop()
	for i := range nodes {
		node := fmt.Sprintf("hollow-%d", i)
		begin(t, api, hollow.Config{Name: node, Labels: map[string]string{"example.com/rack": fmt.Sprint(i)}, Taints: []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}})
		for j := range pods {
			api.Create(podOn(node, fmt.Sprintf("web-%d-%d", i, j), func(p *v1.Pod) {
				p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
			}))
		}
	}
	eventually(t, "all nodes are ready", func() bool {
		n := 0
		for _, o := range api.All(kubeapi.Nodes) {
			if ready(o.(*v1.Node)) {
				n++
			}
		}
		return n == nodes
	})
	eventually(t, "all pods run", func() bool {
		n := 0
		for _, o := range api.All(kubeapi.Pods) {
			if o.(*v1.Pod).Status.Phase == v1.PodRunning {
				n++
			}
		}
		return n == nodes*pods
	})
	for i := range nodes {
		node := fmt.Sprintf("hollow-%d", i)
		n := api.Get(&v1.Node{}, "", node).(*v1.Node)
		if n.Labels["example.com/rack"] != fmt.Sprint(i) || len(n.Spec.Taints) != 1 || n.Status.Capacity.Cpu().Value() != 4 ||
			n.Status.Capacity.Memory().Value() != 16<<30 || n.Status.Allocatable.Pods().Value() != 110 || n.Status.Addresses[0].Address != "198.18.0.1" {
			t.Errorf("%s: %+v", node, n)
		}
		eventually(t, "the node has a lease of its own", func() bool {
			l, ok := api.Get(&coordinationv1.Lease{}, "kube-node-lease", node).(*coordinationv1.Lease)
			return ok && *l.Spec.HolderIdentity == node
		})
	}
	api.Delete(kubeapi.Pods, "default", "web-3-0")
	eventually(t, "the pod is gone", func() bool { return api.Get(&v1.Pod{}, "default", "web-3-0") == nil })
}

// Pods have CPUs of one NUMA node and the devices near to them; one that does not fit is
// rejected.
func TestHardware(t *testing.T) {
	t.Parallel()
	api := kubeapitest.New()
	defer api.Stop()
	n := begin(t, api, hollow.Config{
		Name: "big", CPUs: 16, Memory: 64 << 30, NUMANodes: 2, Devices: map[string]int{"example.com/gpu": 4},
		Configure: func(c *kubeletconfig.Config) {
			c.CPUManagerPolicy, c.TopologyManagerPolicy, c.ReservedSystemCPUs = "static", "single-numa-node", "0"
		},
	})
	eventually(t, "the node has devices", func() bool {
		o, ok := api.Get(&v1.Node{}, "", "big").(*v1.Node)
		if !ok {
			return false
		}
		q := o.Status.Allocatable["example.com/gpu"]
		return q.Value() == 4 && ready(o)
	})
	asks := func(cpus, gpus string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			r := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpus), v1.ResourceMemory: resource.MustParse("1Gi"), "example.com/gpu": resource.MustParse(gpus)}
			p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: r, Limits: r}
		}
	}
	api.Create(podOn("big", "fits", asks("6", "1")))
	eventually(t, "the pod runs", func() bool { return status(api, "fits").Phase == v1.PodRunning })
	pod := api.Get(&v1.Pod{}, "default", "fits").(*v1.Pod)
	list, err := n.Runtime.ListContainers(t.Context(), nil)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d containers of pod %s, %v", len(list), pod.UID, err)
	}
	st, err := n.Runtime.ContainerStatus(t.Context(), list[0].GetId(), false)
	if err != nil || st.GetStatus().GetResources().GetLinux().GetCpusetCpus() != "1-6" && st.GetStatus().GetResources().GetLinux().GetCpusetCpus() != "8-13" {
		t.Errorf("CPUs %q, %v", st.GetStatus().GetResources().GetLinux().GetCpusetCpus(), err)
	}
	api.Create(podOn("big", "torn", asks("2", "3")))
	eventually(t, "the pod that no NUMA node has room for is rejected", func() bool {
		s := status(api, "torn")
		return s.Phase == v1.PodFailed && s.Reason == "TopologyAffinityError"
	})
}

// Volumes of all kinds are there and hold nothing: nothing of the machine is touched,
// and no Secret is on its disk.
func TestVolumesHoldNothing(t *testing.T) {
	t.Parallel()
	api := kubeapitest.New()
	defer api.Stop()
	api.Create(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Data: map[string][]byte{"key": []byte("very hidden")}})
	dir := t.TempDir()
	begin(t, api, hollow.Config{Name: "n", Dir: filepath.Join(dir, "n")})
	host := filepath.Join(dir, "host")
	kind := v1.HostPathDirectoryOrCreate
	api.Create(podOn("n", "p", func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{
			{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}},
			{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: host, Type: &kind}}},
			{Name: "memory", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
		}
		for _, v := range p.Spec.Volumes {
			p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name, SubPath: "part"})
		}
		p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "S", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Key: "key"}}}}
	}))
	eventually(t, "the pod runs", func() bool { return status(api, "p").Phase == v1.PodRunning })
	if _, err := os.Lstat(host); err == nil {
		t.Error("the host has a directory")
	}
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !d.Type().IsRegular() {
			return nil // records come and go
		}
		b, _ := os.ReadFile(path)
		if bytes.Contains(b, []byte("very hidden")) || bytes.Contains(b, []byte(base64.StdEncoding.EncodeToString([]byte("very hidden")))) {
			t.Errorf("%s has the Secret", path)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	api.Delete(kubeapi.Pods, "default", "p")
	eventually(t, "the pod is gone", func() bool { return api.Get(&v1.Pod{}, "default", "p") == nil })
	eventually(t, "nothing is left of it", func() bool {
		left, _ := os.ReadDir(filepath.Join(dir, "n", "root", "pods"))
		return len(left) == 0
	})
}

// Probes and hooks succeed, and connect to nobody: a pod's address may be somebody else's.
func TestProbesConnectToNobody(t *testing.T) {
	t.Parallel()
	api := kubeapitest.New()
	defer api.Stop()
	begin(t, api, hollow.Config{Name: "n"})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	reached := make(chan struct{}, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
			reached <- struct{}{}
		}
	}()
	port := intstr.FromInt32(int32(l.Addr().(*net.TCPAddr).Port))
	get := &v1.HTTPGetAction{Host: "127.0.0.1", Port: port, Path: "/"}
	api.Create(podOn("n", "probed", func(p *v1.Pod) {
		c := &p.Spec.Containers[0]
		c.StartupProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: "127.0.0.1", Port: port}}, PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1}
		c.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: get}, PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1}
		c.LivenessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: port.IntVal}}, PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1}
		c.Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{HTTPGet: get}}
	}))
	eventually(t, "the pod is ready", func() bool {
		c := status(api, "probed").ContainerStatuses
		return len(c) == 1 && c[0].Ready
	})
	select {
	case <-reached:
		t.Error("somebody was reached")
	default:
	}
}

// What uses more memory than the node has is evicted; what ends begins again.
func TestPodsOfAllKinds(t *testing.T) {
	t.Parallel()
	api := kubeapitest.New()
	defer api.Stop()
	begin(t, api, hollow.Config{Name: "small", Memory: 4 << 30, Latency: time.Millisecond, FailureRate: 0.2, Seed: 7})
	api.Create(podOn("small", "modest", func(p *v1.Pod) { p.Annotations[hollow.MemoryAnnotation] = "1Gi" }))
	api.Create(podOn("small", "job", func(p *v1.Pod) {
		p.Annotations[hollow.ScriptAnnotation], p.Spec.RestartPolicy = "exit 0", v1.RestartPolicyNever
	}))
	api.Create(podOn("small", "crashes", func(p *v1.Pod) { p.Annotations[hollow.ScriptAnnotation] = "exit 3" }))
	eventually(t, "they run, end and crash", func() bool {
		c := status(api, "crashes").ContainerStatuses
		return status(api, "modest").Phase == v1.PodRunning && status(api, "job").Phase == v1.PodSucceeded && len(c) > 0 && c[0].RestartCount > 0
	})
	api.Create(podOn("small", "greedy", func(p *v1.Pod) { p.Annotations[hollow.MemoryAnnotation] = "4Gi" }))
	eventually(t, "the greedy pod is evicted", func() bool { return status(api, "greedy").Reason == "Evicted" })
	eventually(t, "the node is under pressure", func() bool {
		n := api.Get(&v1.Node{}, "", "small").(*v1.Node)
		for _, c := range n.Status.Conditions {
			if c.Type == v1.NodeMemoryPressure && c.Status == v1.ConditionTrue {
				return true
			}
		}
		return false
	})
	if s := status(api, "modest"); s.Phase != v1.PodRunning {
		t.Errorf("the modest pod: %s %s", s.Phase, s.Reason)
	}
}

func TestBadConfig(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*hollow.Config)
		want   string
	}{
		{"name", func(c *hollow.Config) { c.Name = "" }, "Config.Name is required"},
		{"dir", func(c *hollow.Config) { c.Dir = "x" }, `Config.Dir is "x"; want an absolute path`},
		{"server", func(c *hollow.Config) { c.Transport = nil }, "one of Config.Kubeconfig and Config.Transport"},
		{"cpus", func(c *hollow.Config) { c.CPUs, c.NUMANodes = 3, 2 }, "Config.CPUs is 3 and NUMANodes 2"},
		{"memory", func(c *hollow.Config) { c.Memory = -1 }, "Config.Memory is -1"},
		{"rate", func(c *hollow.Config) { c.FailureRate = 2 }, "Config.FailureRate is 2; want 0 to 1"},
		{"latency", func(c *hollow.Config) { c.Latency = -1 }, "Config.Latency is -1ns"},
		{"devices", func(c *hollow.Config) { c.Devices = map[string]int{"example.com/gpu": 0} }, "Config.Devices[example.com/gpu] is 0"},
	} {
		cfg := hollow.Config{Name: "n", Dir: t.TempDir(), Transport: kubeapitest.New().Transport()}
		tc.change(&cfg)
		n, err := hollow.New(t.Context(), cfg)
		if err == nil {
			_ = n.Close()
		}
		wantError(t, tc.name, err, tc.want)
	}
}

func wantError(t *testing.T, name string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v; want %q", name, err, want)
	}
}
