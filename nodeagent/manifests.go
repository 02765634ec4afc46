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

// How often the runtime is asked at the start until it answers, and how long one
// question may take.
const (
	staticAgain    = time.Second
	staticPatience = 10 * time.Second
)

// staticPods finds the static pods that run, with one look at the runtime: a kubelet
// that ran the node before gave them other UIDs than this agent would.
type staticPods struct {
	runtime criapi.RuntimeService
	dir     string // of the directories of pods
	log     *zap.Logger
	looked  bool
	pods    []*runtimeapi.PodSandbox
	made    map[string][]*runtimeapi.Container // those that run, by sandbox
}

// find returns those that run under the name of a pod, with containers that the
// pod's spec could have made. Where a kubelet may have left any it waits until the
// runtime answers; elsewhere pods are known without the runtime.
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
		switch {
		case m.GetNamespace() != pod.Namespace || m.GetName() != pod.Name:
		case a[podmeta.AnnotationSource] != "file" || a[podmeta.AnnotationHash] != string(uid):
		case !couldMake(pod, s.made[p.GetId()]):
		default:
			found = append(found, podmgr.Found{UID: uid, Since: time.Unix(0, p.GetCreatedAt())})
		}
	}
	return found, nil
}

// mayBeLeft reports whether the directory of some static pod is there, and not that
// of the one with this UID, which this agent has run already.
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

func (s *staticPods) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, staticPatience)
	defer cancel()
	pods, err := s.runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}})
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(pods, func(p *runtimeapi.PodSandbox) bool { return p.GetAnnotations()[podmeta.AnnotationSource] != "file" })
	s.made = map[string][]*runtimeapi.Container{}
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
// and its image.
func couldMake(pod *v1.Pod, containers []*runtimeapi.Container) bool {
	hashes := map[string]string{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		hashes[c.Name] = podspec.Hash(&c)
	}
	return !slices.ContainsFunc(containers, func(c *runtimeapi.Container) bool {
		return c.GetAnnotations()[cri.AnnotationHash] != hashes[c.GetLabels()[cri.LabelContainerName]]
	})
}
