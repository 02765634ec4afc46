package local

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	v1 "k8s.io/api/core/v1"
)

// ErrInvalid means that a request has a mistake. Over HTTP the answer is 400 with the error's text.
var ErrInvalid = errors.New("invalid request")

// Debugger is an [Agent] that adds ephemeral containers to pods of manifests.
type Debugger interface {
	// Debug adds an ephemeral container to a pod, and does not wait for its start. For a pod that
	// is in no manifest, the error is errors.ErrUnsupported. For an invalid r, it is ErrInvalid.
	Debug(ctx context.Context, pod *v1.Pod, r DebugRequest) error
}

// DebugRequest requests an ephemeral container for debugging.
type DebugRequest struct {
	Name    string   `json:"name"`
	Image   string   `json:"image"`
	Command []string `json:"command,omitempty"` // empty: the command of the image
	// Target is the container of the pod whose processes the new one sees; "" means none.
	Target string `json:"target,omitempty"`
	Stdin  bool   `json:"stdin,omitempty"`
	TTY    bool   `json:"tty,omitempty"`
}

// Container returns the requested container. Like one of kubectl debug, it may trace the processes
// that it sees.
func (r *DebugRequest) Container() v1.EphemeralContainer {
	return v1.EphemeralContainer{
		TargetContainerName: r.Target,
		EphemeralContainerCommon: v1.EphemeralContainerCommon{
			Name: r.Name, Image: r.Image, Command: r.Command, Stdin: r.Stdin, TTY: r.TTY,
			SecurityContext: &v1.SecurityContext{Capabilities: &v1.Capabilities{Add: []v1.Capability{"SYS_PTRACE"}}},
		},
	}
}

func (h *handler) debug(w http.ResponseWriter, r *http.Request, pod *v1.Pod) {
	d, ok := h.agent.(Debugger)
	if !ok {
		say(w, http.StatusNotImplemented, errors.New("this agent adds no containers to pods"))
		return
	}
	var req DebugRequest
	if !decode(w, r, "debug", &req) {
		return
	}
	if err := d.Debug(r.Context(), pod, req); err != nil {
		fail(w, err)
		return
	}
	reply(w, struct{}{})
}

// Debug adds an ephemeral container to a pod of a manifest.
func (c *Client) Debug(ctx context.Context, namespace, name string, r DebugRequest) error {
	return c.post(ctx, podPath(namespace, name)+"/debug", r, &struct{}{})
}

// Patch sends a patch of the given media type to a path of the socket, such as an object of an
// agent that serves the Kubernetes API. If the path does not exist, the error wraps ErrNotFound.
func (c *Client) Patch(ctx context.Context, path, mediaType string, patch []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, "http://agent"+path, bytes.NewReader(patch))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", mediaType)
	resp, err := c.answer(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
