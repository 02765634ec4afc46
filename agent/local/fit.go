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

// Fitter is an [Agent] that can tell where a pod would run.
type Fitter interface {
	// Fit reports whether the node would admit a pod now beside its own pods and
	// others, what it would lack, and where its containers would run. A pod of the
	// node with the name of one of these counts as gone. Nothing is taken, and no pod is changed.
	Fit(pod *v1.Pod, beside ...*v1.Pod) Fit
}

// Fit is the answer to "would this pod run here, and where?".
type Fit struct {
	Fits bool `json:"fits"`
	// Reason and Message say why it does not fit, as its status would.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// RetryUntil is not zero if the pod would wait for pods that are ending,
	// until then at the latest.
	RetryUntil time.Time `json:"retryUntil,omitzero"`
	// Shortages say of each resource of which there is too little what the pod wants and what is
	// free; Requests of a pod that fits how much of the free amounts it requests.
	Shortages []string `json:"shortages,omitempty"`
	Requests  []string `json:"requests,omitempty"`
	// Missing are what the pod needs and the node does not have. A pod that fits waits for them.
	Missing []FitMissing `json:"missing,omitempty"`
	// Containers say where each would run; none if it does not fit.
	Containers []FitContainer `json:"containers,omitempty"`
	// Steps tell how well the resources go together, a line for each decision.
	Steps []string `json:"steps,omitempty"`
}

// Kinds of FitMissing beside those of objects.
const (
	KindImage    = "Image"
	KindHostPort = "HostPort"
)

// FitMissing is something that a pod needs and the node does not have.
type FitMissing struct {
	Kind string `json:"kind"` // a ConfigMap, a PersistentVolumeClaim, an Image, a HostPort, ...
	Name string `json:"name"` // with its namespace, if it has one
	// Message says so in a line.
	Message string `json:"message"`
	// Comes reports that the agent gets it when the pod starts: an image, from its registry.
	Comes bool `json:"comes,omitempty"`
}

// FitContainer is where one container would run. Lists are as the kernel has
// them, such as "0-3,8"; "" means any.
type FitContainer struct {
	Name string `json:"name"`
	CPUs string `json:"cpus,omitempty"`
	// Own reports that no other container would run on these CPUs.
	Own         bool   `json:"own,omitempty"`
	MemoryNodes string `json:"memoryNodes,omitempty"`
	// Memory is what it would be given on these nodes, in bytes by resource.
	Memory map[string]uint64 `json:"memory,omitempty"`
	// Devices are the IDs of those it would have, by resource.
	Devices map[string][]string `json:"devices,omitempty"`
	Hint    FitHint             `json:"hint,omitzero"`
}

// FitHint are the NUMA nodes that all resources agreed on.
type FitHint struct {
	Nodes     string `json:"nodes,omitempty"`
	Preferred bool   `json:"preferred,omitempty"`
}

// Bounds of a request about pods: its length, and what it may come to in memory, both in bytes.
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
		err = kjson.UnmarshalCaseSensitivePreserveInts(body, &pods) // the names that were looked at, and no others
	}
	if err != nil {
		say(w, http.StatusBadRequest, fmt.Errorf("pods: %w", err))
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

// Fit asks whether the agent's node would admit pods now, and where their containers would run.
// Each is asked about beside those before it that fit. There is an answer for each pod.
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
		return nil, fmt.Errorf("the agent answers for %d pods; it was asked about %d", len(out), len(pods))
	}
	return out, nil
}
