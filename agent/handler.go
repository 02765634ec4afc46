package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/podspec"
)

// handlersLast is how long an answer about the runtime's handlers is trusted:
// a runtime may be upgraded below the agent.
const handlersLast = time.Minute

// handlers knows the runtime's handlers. It asks only for pods to which it
// matters.
type handlers struct {
	runtime criapi.RuntimeService
	classes func(ctx context.Context, name string) (handler string, err error) // may be nil

	mu    sync.Mutex
	asked time.Time
	list  []*runtimeapi.RuntimeHandler
}

// forPod returns the handler for the pod's runtime class, and what it can do.
// Without a cluster there are no RuntimeClass objects: the class is the
// handler's name.
func (h *handlers) forPod(ctx context.Context, pod *v1.Pod) (name string, f podspec.HandlerFeatures, err error) {
	if c := pod.Spec.RuntimeClassName; c != nil {
		name = *c
		if h.classes != nil && name != "" {
			if name, err = h.classes(ctx, name); err != nil {
				return "", f, fmt.Errorf("spec.runtimeClassName: %w", err)
			}
		}
	}
	if name == "" && !wantsFeatures(pod) {
		return "", f, nil
	}
	list, err := h.all(ctx)
	if err != nil {
		return name, f, fmt.Errorf("runtime handlers: %w", err)
	}
	i := slices.IndexFunc(list, func(h *runtimeapi.RuntimeHandler) bool { return h.GetName() == name })
	switch {
	case i >= 0:
		f.UserNamespaces = list[i].GetFeatures().GetUserNamespaces()
		f.RecursiveReadOnly = list[i].GetFeatures().GetRecursiveReadOnlyMounts()
	case name != "":
		var names []string
		for _, h := range list {
			names = append(names, fmt.Sprintf("%q", h.GetName()))
		}
		return name, f, fmt.Errorf("spec.runtimeClassName: %q: the runtime has no such handler, but %s", name, strings.Join(names, ", "))
	}
	return name, f, nil
}

func (h *handlers) all(ctx context.Context) ([]*runtimeapi.RuntimeHandler, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.asked.IsZero() && time.Since(h.asked) < handlersLast {
		return h.list, nil
	}
	st, err := h.runtime.Status(ctx, false)
	if err != nil {
		return nil, err
	}
	h.asked, h.list = time.Now(), st.GetRuntimeHandlers()
	return h.list, nil
}

// wantsFeatures tells whether a pod asks for what not every handler can do.
func wantsFeatures(pod *v1.Pod) bool {
	if pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers {
		return true
	}
	recursive := func(list []v1.Container) bool {
		return slices.ContainsFunc(list, func(c v1.Container) bool {
			return slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.RecursiveReadOnly != nil })
		})
	}
	return recursive(pod.Spec.InitContainers) || recursive(pod.Spec.Containers)
}
