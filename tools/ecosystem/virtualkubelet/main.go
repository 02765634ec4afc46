// Virtualkubelet is a node of Virtual Kubelet whose provider computes what to run with podspec,
// and what runs with podstatus. Its containers are simulated: they run until their pod is
// deleted. Virtual Kubelet's end-to-end suite runs against it.
//
//	virtualkubelet -node NAME -address ADDRESS
//
// It uses the service account of its pod, and serves the API of a node at port 10250.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"io"
	"log"
	"net/http"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/podstatus"
)

func main() {
	name := flag.String("node", "virtual", "the `name` of the node")
	address := flag.String("address", "", "the `address` of the node, at which the API server reaches port 10250")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *name, *address); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, name, address string) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	p := &provider{node: name, pods: map[string]*task{}}
	mux := http.NewServeMux()
	n, err := nodeutil.NewNode(name, func(nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) { return p, nil, nil },
		nodeutil.WithClient(client), nodeutil.AttachProviderRoutes(mux), func(c *nodeutil.NodeConfig) error {
			c.Handler = mux
			c.NodeSpec.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address}}
			c.NodeSpec.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
			c.NodeSpec.Spec.Taints = []v1.Taint{{Key: "virtual-kubelet.io/provider", Value: "nodewright", Effect: v1.TaintEffectNoSchedule}}
			return nil
		}, nodeutil.WithTLSConfig(func(c *tls.Config) error {
			c.Certificates = []tls.Certificate{pair}
			return nil
		}))
	if err != nil {
		return err
	}
	return n.Run(ctx)
}

// task is a pod and what is simulated of it.
type task struct {
	pod  *v1.Pod
	seen *observed.Pod
}

type provider struct {
	node   string
	mu     sync.Mutex
	notify func(*v1.Pod)
	pods   map[string]*task // by namespace and name
}

func key(namespace, name string) string { return namespace + "/" + name }

// CreatePod computes what each container is to run. Virtual Kubelet has replaced the variables
// from ConfigMaps and Secrets by their values.
func (p *provider) CreatePod(_ context.Context, pod *v1.Pod) error {
	in := podspec.Input{Pod: pod, Node: podspec.Node{Name: p.node, PodLogsDir: "/var/log/pods"}, PodIPs: []string{"192.0.2.1"}, PodDir: "/var/lib/virtual/" + string(pod.UID), Volumes: map[string]string{}}
	for _, v := range pod.Spec.Volumes {
		in.Volumes[v.Name] = in.PodDir + "/volumes/" + v.Name
	}
	seen := &observed.Pod{Sandboxes: []observed.Sandbox{{ID: "task-" + string(pod.UID), State: observed.Running, IPs: in.PodIPs, CreatedAt: time.Now()}}}
	for _, c := range pod.Spec.Containers {
		plan, err := podspec.Container(in, c.Name, podspec.ContainerOptions{Image: podspec.ImageFacts{Ref: c.Image}})
		if err != nil {
			return errdefs.AsInvalidInput(err)
		}
		log.Println("start", key(pod.Namespace, pod.Name), plan.Config.Image.Image)
		seen.Containers = append(seen.Containers, observed.Container{ID: string(pod.UID) + "-" + c.Name, Name: c.Name, SandboxID: seen.Sandboxes[0].ID, State: observed.Running, StartedAt: time.Now()})
	}
	t := &task{pod: pod.DeepCopy(), seen: seen}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods[key(pod.Namespace, pod.Name)] = t
	p.notify(t.current())
	return nil
}

// UpdatePod takes the new specification.
func (p *provider) UpdatePod(_ context.Context, pod *v1.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.pods[key(pod.Namespace, pod.Name)]; t != nil {
		t.pod = pod.DeepCopy()
	}
	return nil
}

// DeletePod ends the pod's containers.
func (p *provider) DeletePod(_ context.Context, pod *v1.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.pods[key(pod.Namespace, pod.Name)]
	if t == nil {
		return errdefs.NotFoundf("pod %s/%s", pod.Namespace, pod.Name)
	}
	code := int32(0)
	for i := range t.seen.Containers {
		c := &t.seen.Containers[i]
		c.State, c.ExitCode, c.FinishedAt = observed.Exited, &code, time.Now()
	}
	delete(p.pods, key(pod.Namespace, pod.Name))
	p.notify(t.current())
	return nil
}

// current is the pod with its status. Its containers are restarted by nobody.
func (t *task) current() *v1.Pod {
	pod := t.pod.DeepCopy()
	pod.Status = podstatus.Of(podstatus.Input{Pod: t.pod, Observed: t.seen, Runtime: "virtual", Terminal: t.seen.Containers[0].State == observed.Exited, Now: time.Now()})
	return pod
}

func (p *provider) GetPod(_ context.Context, namespace, name string) (*v1.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.pods[key(namespace, name)]; t != nil {
		return t.current(), nil
	}
	return nil, errdefs.NotFoundf("pod %s/%s", namespace, name)
}

func (p *provider) GetPodStatus(ctx context.Context, namespace, name string) (*v1.PodStatus, error) {
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

func (p *provider) GetPods(context.Context) (all []*v1.Pod, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.pods {
		all = append(all, t.current())
	}
	return all, nil
}

// NotifyPods sets what is called with each change of a pod. The callback does not block.
func (p *provider) NotifyPods(_ context.Context, notify func(*v1.Pod)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notify = func(pod *v1.Pod) { go notify(pod) }
}

// errSimulated is the answer to what needs a process.
var errSimulated = errors.New("the containers are simulated")

func (p *provider) GetContainerLogs(context.Context, string, string, string, api.ContainerLogOpts) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("simulated\n")), nil
}

func (p *provider) RunInContainer(context.Context, string, string, string, []string, api.AttachIO) error {
	return errSimulated
}

func (p *provider) AttachToContainer(context.Context, string, string, string, api.AttachIO) error {
	return errSimulated
}

func (p *provider) PortForward(context.Context, string, string, int32, io.ReadWriteCloser) error {
	return errSimulated
}

// GetStatsSummary lists the pods and containers; they use nothing.
func (p *provider) GetStatsSummary(ctx context.Context) (*stats.Summary, error) {
	s := &stats.Summary{Node: stats.NodeStats{NodeName: p.node}}
	pods, _ := p.GetPods(ctx)
	for _, pod := range pods {
		ps := stats.PodStats{PodRef: stats.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)}}
		for _, c := range pod.Spec.Containers {
			ps.Containers = append(ps.Containers, stats.ContainerStats{Name: c.Name})
		}
		s.Pods = append(s.Pods, ps)
	}
	return s, nil
}

// GetMetricsResource lists the same as metrics.
func (p *provider) GetMetricsResource(ctx context.Context) ([]*dto.MetricFamily, error) {
	counter, zero := dto.MetricType_COUNTER, 0.0
	family := func(name string) *dto.MetricFamily {
		return &dto.MetricFamily{Name: &name, Help: &name, Type: &counter}
	}
	label := func(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }
	ofPods, ofContainers := family("pod_cpu_usage_seconds_total"), family("container_cpu_usage_seconds_total")
	pods, _ := p.GetPods(ctx)
	for _, pod := range pods {
		labels := []*dto.LabelPair{label("namespace", pod.Namespace), label("pod", pod.Name)}
		ofPods.Metric = append(ofPods.Metric, &dto.Metric{Label: labels, Counter: &dto.Counter{Value: &zero}})
		for _, c := range pod.Spec.Containers {
			ofContainers.Metric = append(ofContainers.Metric, &dto.Metric{Label: append(labels[:2:2], label("container", c.Name)), Counter: &dto.Counter{Value: &zero}})
		}
	}
	return []*dto.MetricFamily{ofPods, ofContainers}, nil
}
