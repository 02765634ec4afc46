package cri_test

import (
	"context"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/cri/observed"
)

// reviving is a runtime whose one container ends with code, or runs.
type reviving struct {
	*critest.Runtime
	runs bool
	code int32
}

func (r *reviving) state() runtimeapi.ContainerState {
	if r.runs {
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return runtimeapi.ContainerState_CONTAINER_EXITED
}

func (r *reviving) ListContainers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	list, err := r.Runtime.ListContainers(ctx, f)
	for _, c := range list {
		c.State = r.state()
	}
	return list, err
}

func (r *reviving) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	resp, err := r.Runtime.ContainerStatus(ctx, id, verbose)
	resp.Status.State, resp.Status.ExitCode = r.state(), r.code
	return resp, err
}

// The end of a container that began anew under its ID is read anew.
func TestSecondEndOfOneContainer(t *testing.T) {
	rt := &reviving{Runtime: critest.New(), code: 1}
	rt.AddImage("i")
	addPod(t, rt.Runtime, "u", "sleep", "forever")
	r := cri.NewReader(rt)
	look := func() *observed.Container {
		t.Helper()
		p, err := r.Inspect(t.Context(), "u")
		if err != nil {
			t.Fatal(err)
		}
		return p.Newest("c")
	}
	if c := look(); c.State != observed.Exited || c.Code() != 1 {
		t.Errorf("first end: %+v", c)
	}
	rt.runs = true
	if c := look(); c.State != observed.Running {
		t.Errorf("begun anew: %+v", c)
	}
	rt.runs, rt.code = false, 2
	if c := look(); c.State != observed.Exited || c.Code() != 2 {
		t.Errorf("second end: %+v", c)
	}
}
