package local

import (
	"context"
	"encoding/json"
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
	// Fit reports whether the node would admit a pod now, and where its
	// containers would run. Nothing is taken, and pod is not changed.
	Fit(pod *v1.Pod) Fit
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
	// Containers say where each would run; none if it does not fit.
	Containers []FitContainer `json:"containers,omitempty"`
	// Steps tell how well the resources go together, a line for each decision.
	Steps []string `json:"steps,omitempty"`
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

// longestPod bounds what is read of a request about a pod; the API server has
// about as much for one object.
const longestPod = 3 << 20

// largestPod is what a pod may come to in memory, in bytes, as for a manifest.
const largestPod = 32 << 20

func (h *handler) fit(w http.ResponseWriter, r *http.Request) {
	f, ok := h.agent.(Fitter)
	if !ok {
		say(w, http.StatusNotImplemented, errors.New("this agent does not tell where a pod would run"))
		return
	}
	var pod v1.Pod
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestPod))
	if err == nil {
		err = manifestguard.Decodable(body, &pod, largestPod)
	}
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(body, &pod) // the names that were looked at, and no others
	}
	if err != nil {
		say(w, http.StatusBadRequest, fmt.Errorf("pod: %w", err))
		return
	}
	reply(w, f.Fit(&pod))
}

// Fit asks whether the agent's node would admit a pod now, and where its
// containers would run.
func (c *Client) Fit(ctx context.Context, pod *v1.Pod) (*Fit, error) {
	body, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	resp, err := c.do(ctx, http.MethodPost, "/v1/fit", body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var f Fit
	return &f, json.NewDecoder(resp.Body).Decode(&f)
}
