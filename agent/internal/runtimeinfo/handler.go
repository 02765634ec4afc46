package runtimeinfo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/podspec"
)

// handlersLast is how long an answer about the handlers is used. It is limited, since the runtime
// may be upgraded while the agent runs.
const handlersLast = time.Minute

// Handlers caches the runtime's handlers. It calls the runtime only for pods that need them.
type Handlers struct {
	Runtime criapi.RuntimeService
	// Classes returns the handler of a RuntimeClass. If it is nil, the name of a class is the
	// name of its handler.
	Classes func(ctx context.Context, name string) (handler string, err error)

	mu    sync.Mutex
	asked time.Time
	list  []*runtimeapi.RuntimeHandler

	groups atomic.Pointer[bool] // supplementalGroupsPolicy; nil is not known
}

// learnTimeout limits the wait for the runtime's features at the agent's start.
const learnTimeout = 2 * time.Second

// Learn reads the runtime's features in advance. It waits at most two seconds. After an error the
// features are not known yet.
func (h *Handlers) Learn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	_, err := h.all(ctx)
	return err
}

// GroupsPolicy reports whether the runtime supports supplementalGroupsPolicy. The result known is
// false before the runtime has answered. The call does not wait.
func (h *Handlers) GroupsPolicy() (supported, known bool) {
	if b := h.groups.Load(); b != nil {
		return *b, true
	}
	return false, false
}

// ForPod returns the handler for the pod's runtime class, and its features. Without a cluster there
// are no RuntimeClass objects: the class name is the handler's name. It returns an error if the
// class or the handler does not exist, or if the runtime does not answer.
func (h *Handlers) ForPod(ctx context.Context, pod *v1.Pod) (name string, f podspec.HandlerFeatures, err error) {
	if c := pod.Spec.RuntimeClassName; c != nil {
		name = *c
		if h.Classes != nil && name != "" {
			if name, err = h.Classes(ctx, name); err != nil {
				return "", f, fmt.Errorf("spec.runtimeClassName: %w", err)
			}
		}
	}
	if name == "" && !wantsFeatures(pod) {
		return "", f, nil
	}
	list, err := h.all(ctx)
	if err != nil {
		return name, f, fmt.Errorf("read the runtime's handlers: %w", err)
	}
	f.SupplementalGroupsPolicy, _ = h.GroupsPolicy()
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

func (h *Handlers) all(ctx context.Context) ([]*runtimeapi.RuntimeHandler, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.asked.IsZero() && time.Since(h.asked) < handlersLast {
		return h.list, nil
	}
	st, err := h.Runtime.Status(ctx, false)
	if err != nil {
		return nil, err
	}
	h.asked, h.list = time.Now(), st.GetRuntimeHandlers()
	groups := st.GetFeatures().GetSupplementalGroupsPolicy()
	h.groups.Store(&groups)
	return h.list, nil
}

// wantsFeatures reports whether a pod needs features that some handlers lack.
func wantsFeatures(pod *v1.Pod) bool {
	if pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers {
		return true
	}
	if sc := pod.Spec.SecurityContext; sc != nil && sc.SupplementalGroupsPolicy != nil {
		return true
	}
	recursive := func(list []v1.Container) bool {
		return slices.ContainsFunc(list, func(c v1.Container) bool {
			return slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.RecursiveReadOnly != nil })
		})
	}
	return recursive(pod.Spec.InitContainers) || recursive(pod.Spec.Containers)
}
