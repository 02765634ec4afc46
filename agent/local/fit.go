package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/nodewright/nodewright/internal/manifestguard"
)

// Fitter is an [Agent] that can check whether a pod would fit.
type Fitter interface {
	// Fit reports whether the node would admit a pod now, in addition to its own pods and the pods
	// in beside. The result lists the shortages, or where the pod's containers would run. A pod of
	// the node that has the name of a given pod counts as removed. Fit reserves nothing and
	// changes no pod.
	Fit(pod *v1.Pod, beside ...*v1.Pod) Fit
}

// Fit is the answer to "would this pod run here, and where?".
type Fit struct {
	Fits bool `json:"fits"`
	// Reason and Message say why the pod does not fit, as its status would.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// RetryUntil is not zero if the pod would wait for terminating pods, until this time at the
	// latest.
	RetryUntil time.Time `json:"retryUntil,omitzero"`
	// Shortages has a line for each resource that is short, with the requested and the free amount.
	// If the pod fits, Requests has a line for each of its resources, with the requested and the
	// free amount.
	Shortages []string `json:"shortages,omitempty"`
	Requests  []string `json:"requests,omitempty"`
	// Missing lists the objects that the pod needs and the node does not have. A pod that fits
	// waits for them.
	Missing []FitMissing `json:"missing,omitempty"`
	// Containers says where each container would run; empty if the pod does not fit.
	Containers []FitContainer `json:"containers,omitempty"`
	// Steps explains the placement on NUMA nodes, a line for each decision.
	Steps []string `json:"steps,omitempty"`
}

// Values of FitMissing.Kind that are not the kind of a Kubernetes object. The name of a Volume is
// its name in the pod.
const (
	KindImage    = "Image"
	KindHostPort = "HostPort"
	KindVolume   = "Volume"
)

// FitMissing is something that a pod needs and the node does not have.
type FitMissing struct {
	Kind string `json:"kind"` // a ConfigMap, a PersistentVolumeClaim, an Image, a HostPort, a Volume, ...
	Name string `json:"name"` // with its namespace, if it has one
	// Message describes it in one line.
	Message string `json:"message"`
	// Comes reports that the agent will get the object itself when the pod starts, such as an
	// image that it can pull.
	Comes bool `json:"comes,omitempty"`
}

// FitContainer says where a container would run. Lists have the kernel's format, such as "0-3,8";
// "" means any.
type FitContainer struct {
	Name string `json:"name"`
	CPUs string `json:"cpus,omitempty"`
	// Own reports that the container would have its CPUs exclusively.
	Own         bool   `json:"own,omitempty"`
	MemoryNodes string `json:"memoryNodes,omitempty"`
	// Memory is the memory on these nodes, in bytes by resource.
	Memory map[string]uint64 `json:"memory,omitempty"`
	// Devices are the IDs of its devices, by resource.
	Devices map[string][]string `json:"devices,omitempty"`
	Hint    FitHint             `json:"hint,omitzero"`
}

// FitHint has the NUMA nodes on which all resources agreed.
type FitHint struct {
	Nodes     string `json:"nodes,omitempty"`
	Preferred bool   `json:"preferred,omitempty"`
}

// Limits of a request about pods: its length, and its size in memory, both in bytes.
const (
	longestPods = 16 << 20
	largestPods = 128 << 20
)

func (h *handler) fit(w http.ResponseWriter, r *http.Request) {
	f, ok := h.agent.(Fitter)
	if !ok {
		say(w, http.StatusNotImplemented, errors.New("this agent cannot check whether a pod would fit"))
		return
	}
	var pods v1.PodList
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestPods))
	if err == nil {
		err = manifestguard.Decodable(body, &pods, largestPods)
	}
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(body, &pods) // only fields with the checked names
	}
	if err != nil {
		say(w, http.StatusBadRequest, fmt.Errorf("decode pods: %w", err))
		return
	}
	out := make([]Fit, 0, len(pods.Items))
	var fitting []*v1.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		out = append(out, f.Fit(p, fitting...))
		if out[i].Fits {
			fitting = append(fitting, p)
		}
	}
	extend(http.NewResponseController(w))
	reply(w, out)
}

// Fit checks whether the agent's node would admit pods now, and where their containers would run.
// Each pod is checked beside the earlier ones that fit. There is a result for each pod.
func (c *Client) Fit(ctx context.Context, pods ...*v1.Pod) ([]Fit, error) {
	var list v1.PodList
	for _, p := range pods {
		list.Items = append(list.Items, *p)
	}
	var out []Fit
	if err := c.post(ctx, "/v1/fit", &list, &out); err != nil {
		return nil, err
	}
	if len(out) != len(pods) {
		return nil, fmt.Errorf("the agent returned %d results; want %d", len(out), len(pods))
	}
	return out, nil
}
