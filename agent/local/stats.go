package local

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Measurer is an [Agent] that measures the usage of its node. If it returns an error, the result
// still has the values that could be read.
type Measurer interface {
	Summary(ctx context.Context) (*statsapi.Summary, error)
	// CPUAndMemory is a Summary without file systems, networks and volumes.
	CPUAndMemory(ctx context.Context) (*statsapi.Summary, error)
}

// onlyCPUAndMemory is the kubelet's name of the parameter.
const onlyCPUAndMemory = "only_cpu_and_memory"

// summary answers like the kubelet's /stats/summary. Values that could not be read are missing, and
// a Warning header says so (RFC 7234, 5.5, warn-code 199).
func (h *handler) summary(w http.ResponseWriter, r *http.Request) {
	m, ok := h.agent.(Measurer)
	if !ok {
		say(w, http.StatusNotImplemented, errors.New("this agent has no usage statistics"))
		return
	}
	ask := m.Summary
	if v := r.URL.Query().Get(onlyCPUAndMemory); v != "" {
		small, err := strconv.ParseBool(v)
		if err != nil {
			say(w, http.StatusBadRequest, fmt.Errorf("%s=%q: want true or false", onlyCPUAndMemory, v))
			return
		}
		if small {
			ask = m.CPUAndMemory
		}
	}
	s, err := ask(r.Context())
	if errors.Is(err, errors.ErrUnsupported) && s == nil {
		fail(w, err)
		return
	}
	if s == nil {
		say(w, http.StatusInternalServerError, errors.Join(err, errors.New("no statistics could be read")))
		return
	}
	if err != nil {
		w.Header().Set("Warning", "199 - "+strconv.QuoteToASCII(strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
	reply(w, s)
}

// Summary returns the usage of the node; with small, without file systems, networks and volumes.
func (c *Client) Summary(ctx context.Context, small bool) (*statsapi.Summary, error) {
	var s statsapi.Summary
	return &s, c.get(ctx, "/stats/summary?"+onlyCPUAndMemory+"="+strconv.FormatBool(small), &s)
}
