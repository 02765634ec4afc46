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

// Static pods left by a kubelet. The kubelet derives their UIDs from the file and the node. With
// another UID a pod would be a new pod, and its containers would be replaced.

// Pause between calls of the runtime at the start, until it answers, and the timeout of one call.
const (
	staticAgain   = time.Second
	staticTimeout = 10 * time.Second
)

// staticPods finds the running static pods, with one listing of the runtime: an earlier kubelet
// gave them other UIDs than this agent would. Only the goroutine of the manifests' source uses
// it.
type staticPods struct {
	runtime criapi.RuntimeService
	dir     string // the directory with a directory for each pod
	log     *zap.Logger
	// looked is set after the first successful listing. Afterwards pods and made do not
	// change.
	looked bool
	pods   []*runtimeapi.PodSandbox
	made   map[string][]*runtimeapi.Container // running ones, by sandbox
}

// find returns the running pods that have the name of pod and containers that match its spec. If a
// kubelet may have left static pods, find waits until the runtime answers, or returns ctx's error
// if ctx ends first. Otherwise it does not call the runtime.
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
		// Both the kubelet and this agent write these labels and annotations.
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

// mayBeLeft reports whether a kubelet may have left static pods. That is so if the pod with the
// UID own has no directory, and another static pod has one. If the pod with the UID own has a
// directory, this agent started it. If a directory cannot be read, the result is true: waiting
// is safer than starting a pod twice.
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
	ctx, cancel := context.WithTimeout(ctx, staticTimeout)
	defer cancel()
	pods, err := s.runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}})
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(pods, func(p *runtimeapi.PodSandbox) bool { return p.GetAnnotations()[podmeta.AnnotationSource] != "file" })
	s.made = map[string][]*runtimeapi.Container{}
	// Mostly there is no static pod, so the containers are not listed.
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

// couldMake reports whether each of the containers has the name and image of a container in the
// spec of pod. It returns false if the manifest was changed while no agent ran: then the running
// pod is terminated, and the new one gets another UID.
func couldMake(pod *v1.Pod, containers []*runtimeapi.Container) bool {
	hashes := map[string]string{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		hashes[c.Name] = podspec.Hash(&c)
	}
	return !slices.ContainsFunc(containers, func(c *runtimeapi.Container) bool {
		return c.GetAnnotations()[cri.AnnotationHash] != hashes[c.GetLabels()[cri.LabelContainerName]]
	})
}
