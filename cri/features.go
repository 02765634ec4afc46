package cri

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Features has the abilities of a runtime at the time of Discover. An upgrade of the
// runtime may change them while the agent runs.
type Features struct {
	Name, Version, APIVersion string
	// CgroupDriver is "systemd" or "cgroupfs". It is "" if the runtime does not report it. The
	// agent has to use the same driver.
	CgroupDriver string
	// EventStream reports that container events are streamed.
	EventStream bool
	// PodStats reports that the runtime returns pod statistics, so that they need not be read from
	// cgroups.
	PodStats bool
	// Handlers are the runtime classes' handlers, with what each supports.
	Handlers []*runtimeapi.RuntimeHandler
	// SupplementalGroupsPolicy reports that the runtime supports the pod's field
	// supplementalGroupsPolicy.
	SupplementalGroupsPolicy bool
	// Ready and NetworkReady are the conditions RuntimeReady and NetworkReady. Problem
	// has the reason and the message of the first condition that is false.
	Ready, NetworkReady bool
	Problem             string
}

// probeTimeout limits the wait for the first answer of an event stream.
const probeTimeout = 2 * time.Second

// Discover returns the runtime's name, version and abilities. Missing abilities and a runtime that
// is not ready are no errors. It returns an error if the runtime does not answer. Discover makes
// five calls. The last one opens the event stream, and takes up to probeTimeout.
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
	// Runtimes do not report this ability: the call is tried.
	if _, err := c.ListPodSandboxStats(ctx, nil); err == nil {
		f.PodStats = true
	}
	f.EventStream, err = c.hasEvents(ctx)
	return f, err
}

// hasEvents opens the event stream and closes it again. A runtime without a stream answers at once
// with an error. A runtime with a stream sends nothing until an event occurs.
func (c *Client) hasEvents(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	// Not a Reader's stream: events that arrive here are dropped, which is harmless
	// before the first list.
	stream, err := c.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err == nil {
		// Headers mean success; a runtime without a stream returns an error instead.
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
