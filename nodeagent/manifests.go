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

// Static pods left by a kubelet. Their UIDs depend on the file and the node in the
// kubelet's way; a pod with another UID would be another pod, and its containers
// would be replaced.

// The interval of calls of the runtime at the start until it answers, and the limit
// of one call.
const (
	staticAgain    = time.Second
	staticPatience = 10 * time.Second
)

// staticPods finds the running static pods, with one listing of the runtime: an
// earlier kubelet gave them other UIDs than this agent would. It is used by one
// goroutine, that of the source of manifests.
type staticPods struct {
	runtime criapi.RuntimeService
	dir     string // of the directories of pods
	log     *zap.Logger
	// looked is set after the first successful listing; pods and made do not change
	// afterwards.
	looked bool
	pods   []*runtimeapi.PodSandbox
	made   map[string][]*runtimeapi.Container // running ones, by sandbox
}

// find returns the running pods with the name of a pod, whose containers match its
// spec. If a kubelet may have left any, it waits until the runtime answers;
// otherwise the runtime is not needed. It blocks until ctx ends at most, which is
// its only error.
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
		// Labels and annotations that both the kubelet and this agent write.
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

// maxPodDirs limits the directories of pods that are read.
const maxPodDirs = 10_000

// look lists the ready static pods and their running containers once. After an
// error nothing is stored.
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
