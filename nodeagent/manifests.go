package nodeagent

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podspec"
)

// Static pods that were left by a kubelet. Its UIDs for them depend on the file and
// the node in its own way; a pod with another UID would be another pod, and its
// containers would be killed and made again.

// How often the runtime is asked at the start until it answers, and how long one
// question may take.
const (
	staticAgain    = time.Second
	staticPatience = 10 * time.Second
)

// staticPods finds the static pods that run, with one look at the runtime: a
// kubelet that ran the node before gave them other UIDs than this agent would. It
// is used by one goroutine, that of the source of manifests.
type staticPods struct {
	runtime criapi.RuntimeService
	dir     string // of the directories of pods
	log     *zap.Logger
	// looked is set by the first successful look; pods and made do not change after
	// it.
	looked bool
	pods   []*runtimeapi.PodSandbox
	made   map[string][]*runtimeapi.Container // those that run, by sandbox
}

// find returns those that run under the name of a pod, with containers that the
// pod's spec could have made. Where a kubelet may have left any it waits until the
// runtime answers; elsewhere pods are known without the runtime. It blocks until
// then, or until ctx ends, which is its only error.
func (s *staticPods) find(ctx context.Context, pod *v1.Pod) ([]podmgr.Found, error) {
	if !s.looked && !s.mayBeLeft(pod.UID) {
		return nil, nil
	}
	for !s.looked {
		err := s.look(ctx)
		if err == nil {
			break
		}
		s.log.Info("waiting for the runtime to show static pods", zap.Error(err))
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(staticAgain):
		}
	}
	var found []podmgr.Found
	for _, p := range s.pods {
		m, a := p.GetMetadata(), p.GetAnnotations()
		uid := types.UID(p.GetLabels()[cri.LabelPodUID])
		// The runtime's labels and annotations are those that the kubelet and this
		// agent both write.
		switch {
		case m.GetNamespace() != pod.Namespace || m.GetName() != pod.Name:
		// Only a static pod has its hash as its UID.
		case a[podmeta.AnnotationSource] != "file" || a[podmeta.AnnotationHash] != string(uid):
		case !couldMake(pod, s.made[p.GetId()]):
		default:
			found = append(found, podmgr.Found{UID: uid, Since: time.Unix(0, p.GetCreatedAt())})
		}
	}
	return found, nil
}

// mayBeLeft reports whether the directory of some static pod is there, and not that
// of the one with this UID, which this agent has run already. A directory that
// cannot be read may hold some: to wait is safer than to start a pod twice.
func (s *staticPods) mayBeLeft(own types.UID) bool {
	dir, err := safefile.OpenDir(s.dir, ".")
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer func() { _ = dir.Close() }()
	if _, err := dir.Lstat(string(own)); err == nil {
		return false
	}
	entries, err := dir.Entries(maxPodDirs)
	return err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return podmeta.IsHashUID(types.UID(e.Name()))
	})
}

// maxPodDirs is how many directories of pods are looked at.
const maxPodDirs = 10_000

// look asks the runtime once which static pods are ready, and which of their
// containers run. On error nothing is kept.
func (s *staticPods) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, staticPatience)
	defer cancel()
	pods, err := s.runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}})
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(pods, func(p *runtimeapi.PodSandbox) bool { return p.GetAnnotations()[podmeta.AnnotationSource] != "file" })
	s.made = map[string][]*runtimeapi.Container{}
	// Most starts have none, and are spared the second list.
	if len(pods) > 0 {
		running := &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
		containers, err := s.runtime.ListContainers(ctx, running)
		if err != nil {
			return err
		}
		for _, c := range containers {
			s.made[c.GetPodSandboxId()] = append(s.made[c.GetPodSandboxId()], c)
		}
	}
	s.pods, s.looked = pods, true
	return nil
}

// couldMake reports whether each of some containers is one of a pod, by its name
// and its image. A manifest that was changed while no agent ran makes other
// containers: the old pod has to go then, with its UID.
func couldMake(pod *v1.Pod, containers []*runtimeapi.Container) bool {
	hashes := map[string]string{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		hashes[c.Name] = podspec.Hash(&c)
	}
	return !slices.ContainsFunc(containers, func(c *runtimeapi.Container) bool {
		return c.GetAnnotations()[cri.AnnotationHash] != hashes[c.GetLabels()[cri.LabelContainerName]]
	})
}
