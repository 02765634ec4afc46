package resources

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/numa"
)

const (
	// looksAtATime limits the concurrent calls of the runtime about containers.
	looksAtATime = 8
	// lookAgain is the pause between two calls of the runtime. lookTries limits the number of
	// tries for one container.
	lookAgain = time.Second
	lookTries = 3
)

// look reads the containers and their cpusets from the runtime.
func (p *Placement) look(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(looksAtATime)
	for _, c := range p.list(ctx) {
		uid := types.UID(c.GetLabels()[cri.LabelPodUID])
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED || uid == "" {
			continue
		}
		g.Go(func() error {
			p.lookAt(ctx, uid, c)
			return nil
		})
	}
	_ = g.Wait()
}

// list calls the runtime until it answers. It does not give up, since no container may start while
// the running containers are unknown.
func (p *Placement) list(ctx context.Context) []*runtimeapi.Container {
	for ctx.Err() == nil {
		lctx, cancel := context.WithTimeout(ctx, callTimeout)
		list, err := p.cfg.Runtime.ListContainers(lctx, nil)
		cancel()
		if err == nil {
			return list
		}
		p.cfg.Log.Error("failed to list containers; pods wait", zap.Error(err))
		retry.Sleep(ctx, lookAgain)
	}
	return nil
}

// lookAt records a container that has not exited.
func (p *Placement) lookAt(ctx context.Context, uid types.UID, c *runtimeapi.Container) {
	found := &container{uid: uid, name: c.GetLabels()[cri.LabelContainerName], unknown: true}
	var r v1.ResourceRequirements
	if json.Unmarshal([]byte(c.GetAnnotations()[cri.AnnotationResources]), &r) == nil {
		asks := fit.Resources(r)
		found.asks = &asks
	}
	there := true
	for try := 0; there && found.unknown && try < lookTries && ctx.Err() == nil; try++ {
		if try > 0 {
			retry.Sleep(ctx, lookAgain)
		}
		there = p.inspect(ctx, c.GetId(), found)
	}
	if !there {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live[c.GetId()] = found
}

// inspect reads the cpuset of a container, and reports whether the container may exist.
func (p *Placement) inspect(ctx context.Context, id string, c *container) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	st, err := p.cfg.Runtime.ContainerStatus(ctx, id, false)
	if err != nil {
		if status.Code(err) != codes.NotFound && !errors.Is(err, context.Canceled) {
			p.cfg.Log.Error("failed to read the cpuset of a container", zap.String("container", id), zap.Error(err))
		}
		return status.Code(err) != codes.NotFound
	}
	c.unknown = false
	res := st.GetStatus().GetResources().GetLinux()
	c.cpus, c.bound = p.cpusOf(res.GetCpusetCpus())
	if mems, err := numa.ParseCPUs(res.GetCpusetMems()); err == nil { // the same format
		for node := range mems.All() {
			if node < numa.MaxNodes {
				c.mems = c.mems.With(node)
			}
		}
	}
	return st.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_EXITED
}
