package localapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var metricsV1 = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}

// maxSummary limits the node's summary of its pods, in bytes: some KiB for each of thousands of
// containers.
const maxSummary = 32 << 20

// metricsWindow is the approximate time over which the node measures CPU. Metrics servers report
// it; clients do not rely on it.
const metricsWindow = 10 * time.Second

// nodeUsage and podUsage are NodeMetrics and PodMetrics of metrics.k8s.io/v1beta1.
type nodeUsage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Timestamp metav1.Time     `json:"timestamp"`
	Window    metav1.Duration `json:"window"`
	Usage     v1.ResourceList `json:"usage"`
}

type podUsage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Timestamp  metav1.Time      `json:"timestamp"`
	Window     metav1.Duration  `json:"window"`
	Containers []containerUsage `json:"containers"`
}

type containerUsage struct {
	Name  string          `json:"name"`
	Usage v1.ResourceList `json:"usage"`
}

type usageList[T any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []T `json:"items"`
}

// figures has the amounts of CPU and memory from the node's summary.
type figures struct {
	CPU *struct {
		Time           metav1.Time `json:"time"`
		UsageNanoCores *uint64     `json:"usageNanoCores"`
	} `json:"cpu"`
	Memory *struct {
		WorkingSetBytes *uint64 `json:"workingSetBytes"`
	} `json:"memory"`
}

// usage returns the amounts of CPU and memory. It returns nil if one of them is unknown, as
// for a container that has just started.
func (f *figures) usage() v1.ResourceList {
	if f.CPU == nil || f.CPU.UsageNanoCores == nil || f.Memory == nil || f.Memory.WorkingSetBytes == nil {
		return nil
	}
	return v1.ResourceList{
		v1.ResourceCPU:    *resource.NewScaledQuantity(int64(min(*f.CPU.UsageNanoCores, 1<<62)), resource.Nano),   //nolint:gosec // limited
		v1.ResourceMemory: *resource.NewQuantity(int64(min(*f.Memory.WorkingSetBytes, 1<<62)), resource.BinarySI), //nolint:gosec // limited
	}
}

func (f *figures) at() metav1.Time {
	if f.CPU == nil {
		return metav1.Time{}
	}
	return f.CPU.Time
}

// summary has the fields of the node's /stats/summary that this package uses.
type summary struct {
	Node figures `json:"node"`
	Pods []struct {
		PodRef struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
			UID       string `json:"uid"`
		} `json:"podRef"`
		Containers []struct {
			figures

			Name string `json:"name"`
		} `json:"containers"`
	} `json:"pods"`
}

// firstSample is the time between the first two samples of a node. A CPU rate needs two
// samples, and the node is sampled only when a client asks.
const firstSample = time.Second

// summary returns the node's summary. If the node has no earlier sample, it is read twice.
func (s *Server) summary(ctx context.Context) (*summary, error) {
	first, err := s.summaryNow(ctx)
	if err != nil || first.Node.usage() != nil {
		return first, err
	}
	select {
	case <-time.After(firstSample):
		return s.summaryNow(ctx)
	case <-ctx.Done():
		return first, nil
	}
}

// summaryNow reads the summary from the node's own API.
func (s *Server) summaryNow(ctx context.Context) (*summary, error) {
	if s.cfg.Kubelet == nil {
		return nil, apierrors.NewServiceUnavailable("this server has no metrics")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, (&url.URL{Path: "/stats/summary", RawQuery: "only_cpu_and_memory=true"}).String(), nil)
	if err != nil {
		return nil, err
	}
	r.RequestURI = r.URL.RequestURI()
	kept := &recorder{header: http.Header{}}
	s.cfg.Kubelet.ServeHTTP(kept, r)
	if kept.code >= http.StatusBadRequest {
		return nil, apierrors.NewServiceUnavailable("the node has no metrics: " + trimNewline(string(kept.text.Bytes()[:min(kept.text.Len(), maxText)])))
	}
	out := &summary{}
	if err := json.Unmarshal(kept.text.Bytes(), out); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("usage of the node: %w", cmp.Or(kept.err, err)))
	}
	return out, nil
}

// recorder stores an answer of the node's own API.
type recorder struct {
	header http.Header
	code   int
	text   bytes.Buffer
	err    error
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(code int) {
	if r.code == 0 {
		r.code = code
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if r.text.Len()+len(b) > maxSummary {
		r.err = errors.New("the summary has more than 32 MiB")
		return 0, r.err
	}
	return r.text.Write(b)
}

// nodeMetrics answers with the usage of the node.
func (s *Server) nodeMetrics(ctx context.Context, w http.ResponseWriter, r *http.Request, q *query) error {
	if q.name != "" && q.name != s.cfg.Node {
		return notFound(s.nodes, q.name)
	}
	sum, err := s.summary(ctx)
	if err != nil {
		return err
	}
	n := nodeUsage{
		TypeMeta:  metav1.TypeMeta{APIVersion: metricsV1.String(), Kind: "NodeMetrics"},
		Timestamp: sum.Node.at(), Window: metav1.Duration{Duration: metricsWindow}, Usage: sum.Node.usage(),
	}
	n.Name, n.CreationTimestamp = s.cfg.Node, metav1.Now()
	if it, ok := s.item(s.nodes, key{Name: s.cfg.Node}); ok {
		n.Labels = it.Object.GetLabels()
	}
	if q.name != "" {
		if n.Usage == nil {
			return notFound(s.nodes, q.name)
		}
		respondJSON(w, n)
		return nil
	}
	list := usageList[nodeUsage]{TypeMeta: metav1.TypeMeta{APIVersion: metricsV1.String(), Kind: "NodeMetricsList"}, Items: []nodeUsage{}}
	selects, err := selectorOf(q)
	if err != nil {
		return err
	}
	if n.Usage != nil && selects(&n.ObjectMeta) {
		list.Items = append(list.Items, n)
	}
	respondJSON(w, list)
	return nil
}

// podMetrics answers with the usage of pods.
func (s *Server) podMetrics(ctx context.Context, w http.ResponseWriter, r *http.Request, q *query) error {
	selects, err := selectorOf(q)
	if err != nil {
		return err
	}
	sum, err := s.summary(ctx)
	if err != nil {
		return err
	}
	list := usageList[podUsage]{TypeMeta: metav1.TypeMeta{APIVersion: metricsV1.String(), Kind: "PodMetricsList"}, Items: []podUsage{}}
	for i := range sum.Pods {
		ref := &sum.Pods[i].PodRef
		if q.namespace != "" && ref.Namespace != q.namespace || q.name != "" && ref.Name != q.name {
			continue
		}
		it, ok := s.item(s.pods, key{Namespace: ref.Namespace, Name: ref.Name})
		if !ok || string(it.Object.GetUID()) != ref.UID {
			continue // the pod is gone, or is not in this API
		}
		p := podUsage{TypeMeta: metav1.TypeMeta{APIVersion: metricsV1.String(), Kind: "PodMetrics"}, Window: metav1.Duration{Duration: metricsWindow}}
		p.Name, p.Namespace, p.Labels, p.CreationTimestamp = ref.Name, ref.Namespace, it.Object.GetLabels(), metav1.Now()
		for j := range sum.Pods[i].Containers {
			c := &sum.Pods[i].Containers[j]
			usage := c.usage()
			if usage == nil {
				continue
			}
			p.Containers = append(p.Containers, containerUsage{c.Name, usage})
			if at := c.at(); p.Timestamp.Before(&at) {
				p.Timestamp = at
			}
		}
		if len(p.Containers) > 0 && selects(&p.ObjectMeta) {
			list.Items = append(list.Items, p)
		}
	}
	if q.name != "" {
		if len(list.Items) == 0 {
			return notFound(s.pods, q.name)
		}
		respondJSON(w, list.Items[0])
		return nil
	}
	slices.SortFunc(list.Items, func(a, b podUsage) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	respondJSON(w, list)
	return nil
}

// selectorOf returns a function that selects objects by their labels, names and namespaces.
func selectorOf(q *query) (func(*metav1.ObjectMeta) bool, error) {
	byLabels, err := labels.Parse(q.values.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest("labelSelector: " + err.Error())
	}
	byFields, err := fields.ParseSelector(q.values.Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest("fieldSelector: " + err.Error())
	}
	for _, r := range byFields.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("fieldSelector names %.100q; want metadata.name or metadata.namespace", r.Field))
		}
	}
	return func(m *metav1.ObjectMeta) bool {
		return byLabels.Matches(labels.Set(m.Labels)) && byFields.Matches(fields.Set{"metadata.name": m.Name, "metadata.namespace": m.Namespace})
	}, nil
}
