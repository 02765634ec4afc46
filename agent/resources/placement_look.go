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
	// looksAtATime is how many containers the runtime is asked about at a time.
	looksAtATime = 8
	// lookAgain is the pause between two tries to ask the runtime, and lookTries
	// how often it is asked about one container.
	lookAgain = time.Second
	lookTries = 3
)

// look asks the runtime for its containers and their cpusets.
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

// list asks until it is answered: as long as it is not known who runs, nobody new
// may.
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

// lookAt takes note of a container that has not exited.
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

// inspect fills in what a container runs on, and reports whether it may be there.
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
