package cri

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Features is what a runtime says and shows that it can do. It is of one moment: an
// upgrade of the runtime may change it without the agent's restart.
type Features struct {
	Name, Version, APIVersion string
	// CgroupDriver is "systemd" or "cgroupfs", or "" if it does not tell. The agent's
	// own has to be the same, or two programs manage one hierarchy in different ways.
	CgroupDriver string
	// EventStream reports that container events are streamed.
	EventStream bool
	// PodStats reports that pod statistics come from the runtime, and need not be
	// read from cgroups.
	PodStats bool
	// Handlers are the runtime classes' handlers, with what each supports.
	Handlers []*runtimeapi.RuntimeHandler
	// SupplementalGroupsPolicy reports that the runtime obeys that field.
	SupplementalGroupsPolicy bool
	// Ready and NetworkReady are the conditions of these names, and Problem
	// what the runtime says of those that are not met.
	Ready, NetworkReady bool
	Problem             string
}

// probeTimeout bounds the wait for the first sign of an event stream.
const probeTimeout = 2 * time.Second

// Discover asks a runtime for its name and version, and finds out what it can do.
// What a runtime does not implement is not an error. A runtime that is not ready is
// none either; one that does not answer is. It makes five calls, the last of which
// may last for probeTimeout where events are streamed.
func (c *Client) Discover(ctx context.Context) (Features, error) {
	var f Features
	// Strings are cut: they go into the Node's status, whatever a runtime says.
	v, err := c.Version(ctx, "v1")
	if err != nil {
		return f, err
	}
	f.Name, f.Version, f.APIVersion = cut(v.GetRuntimeName(), maxVersion), cut(v.GetRuntimeVersion(), maxVersion), cut(v.GetRuntimeApiVersion(), maxVersion)
	st, err := c.Status(ctx, false)
	if err != nil {
		return f, err
	}
	f.Handlers = st.GetRuntimeHandlers()
	f.SupplementalGroupsPolicy = st.GetFeatures().GetSupplementalGroupsPolicy()
	for _, cond := range st.GetStatus().GetConditions() {
		switch cond.GetType() {
		case runtimeapi.RuntimeReady:
			f.Ready = cond.GetStatus()
		case runtimeapi.NetworkReady:
			f.NetworkReady = cond.GetStatus()
		}
		if !cond.GetStatus() && f.Problem == "" {
			f.Problem = cut(cond.GetReason()+": "+cond.GetMessage(), maxReason)
		}
	}
	// A call of CRI 1.28; runtimes before that tell nothing of cgroups.
	conf, err := c.RuntimeConfig(ctx)
	switch {
	case err == nil && conf.GetLinux() != nil:
		f.CgroupDriver = map[runtimeapi.CgroupDriver]string{
			runtimeapi.CgroupDriver_SYSTEMD: "systemd", runtimeapi.CgroupDriver_CGROUPFS: "cgroupfs",
		}[conf.GetLinux().GetCgroupDriver()]
	case err != nil && code(err) != codes.Unimplemented:
		return f, err
	}
	// Nothing announces these statistics but an answer.
	if _, err := c.ListPodSandboxStats(ctx, nil); err == nil {
		f.PodStats = true
	}
	f.EventStream, err = c.hasEvents(ctx)
	return f, err
}

// hasEvents opens the event stream and closes it again. A runtime without one
// answers at once; one that has it stays silent until something happens.
func (c *Client) hasEvents(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	// The client's own stream and not a Reader's: an event that comes now is nobody's
	// yet, and lists will show the same.
	stream, err := c.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err == nil {
		// The headers tell of success; an error comes in their place.
		if _, err = stream.Header(); err == nil {
			// A refusal may also come after the headers, so a short wait follows. The
			// goroutine ends with ctx.
			got := make(chan error, 1)
			go func() {
				_, err := stream.Recv()
				got <- err
			}()
			select {
			case err = <-got:
			case <-time.After(100 * time.Millisecond):
				return true, nil
			}
		}
	}
	switch {
	case err == nil, errors.Is(err, context.DeadlineExceeded), code(err) == codes.DeadlineExceeded:
		return true, nil
	case code(err) == codes.Unimplemented:
		return false, nil
	default:
		return false, err
	}
}
