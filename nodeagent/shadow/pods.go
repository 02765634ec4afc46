package shadow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/podmeta"
)

// maxPods limits the answer of a kubelet, in bytes. A pod with its status takes some 10 KiB.
const maxPods = 64 << 20

// KubeletPods returns a function for [Config.Pods] that gets the pods from a kubelet, including
// pods of manifest files. url is the URL of the kubelet's endpoint, such as
// http://127.0.0.1:10255/pods. The client should have a timeout.
func KubeletPods(client *http.Client, url string) func(context.Context) ([]*v1.Pod, error) {
	return func(ctx context.Context) ([]*v1.Pod, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("%s: the kubelet answered %q", url, resp.Status)
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxPods+1))
		if err != nil {
			return nil, err
		}
		if len(body) > maxPods {
			return nil, fmt.Errorf("%s: an answer of more than %d bytes", url, maxPods)
		}
		var list v1.PodList
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, fmt.Errorf("%s: %w", url, err)
		}
		out := make([]*v1.Pod, len(list.Items))
		for i := range list.Items {
			out[i] = &list.Items[i]
		}
		return out, nil
	}
}

// APIPods has the pods of a node at an API server.
type APIPods struct {
	follow *kubeapi.Follower[*v1.Pod]

	mu   sync.Mutex
	read bool
	pods map[types.UID]*v1.Pod
}

// NewAPIPods returns the pods of the node with that name. A node's own credentials may read them.
func NewAPIPods(client kubeapi.ListWatcher, node string, log *zap.Logger) (*APIPods, error) {
	if log == nil {
		log = zap.NewNop()
	}
	p := &APIPods{pods: map[types.UID]*v1.Pod{}}
	put := func(pod *v1.Pod) { p.pods[pod.UID] = pod }
	var err error
	p.follow, err = kubeapi.NewFollower(kubeapi.FollowConfig[*v1.Pod]{
		Client: client, Resource: kubeapi.Pods, Fields: "spec.nodeName=" + node,
		NewList: func() runtime.Object { return &v1.PodList{} },
		Replace: func(all []*v1.Pod, _ string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			clear(p.pods)
			p.read = true
			for _, pod := range all {
				put(pod)
			}
		},
		Put: func(pod *v1.Pod) {
			p.mu.Lock()
			defer p.mu.Unlock()
			put(pod)
		},
		Delete: func(pod *v1.Pod) {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.pods, pod.UID)
		},
		Failed: func(err error, _ time.Duration) { log.Warn("failed to read the node's pods", zap.Error(err)) },
	})
	return p, err
}

// Run follows the pods until ctx ends.
func (p *APIPods) Run(ctx context.Context) error { return p.follow.Run(ctx) }

// errUnread means that the API server has not answered yet.
var errUnread = errors.New("the API server has not answered yet")

// Pods is a function for [Config.Pods].
func (p *APIPods) Pods(context.Context) ([]*v1.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.read {
		return nil, errUnread
	}
	out := make([]*v1.Pod, 0, len(p.pods))
	for _, pod := range p.pods {
		out = append(out, pod)
	}
	slices.SortFunc(out, func(a, b *v1.Pod) int {
		return strings.Compare(podmeta.FullName(a.Namespace, a.Name), podmeta.FullName(b.Namespace, b.Name))
	})
	return out, nil
}
