package resources

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/podspec"
)

// Compile implements part.Compiler. A container with missing devices gets an error from
// BeforeCreate instead, so that the pod's other containers start.
func (p *Devices) Compile(pod *v1.Pod, in *podspec.Input) error {
	for _, c := range containers(pod) {
		got, err := p.cfg.Manager.Attachment(pod, c.Name)
		if err != nil {
			continue
		}
		if in.Attached == nil {
			in.Attached = map[string]podspec.Attachment{}
		}
		in.Attached[c.Name] = attach(in.Attached[c.Name], got)
	}
	return nil
}

// attach returns a copy of base to which the plugins' attachment a is added. base is shared and
// not changed.
func attach(base podspec.Attachment, a devicemgr.Attachment) podspec.Attachment {
	out := podspec.Attachment{
		Env: slices.Concat(base.Env, a.Env), CDI: slices.Concat(base.CDI, a.CDI), Annotations: maps.Clone(a.Annotations),
		Mounts: slices.Clone(base.Mounts), Devices: slices.Clone(base.Devices),
	}
	for k, v := range base.Annotations {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[k] = v
	}
	for _, m := range a.Mounts {
		out.Mounts = append(out.Mounts, &runtimeapi.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath, Readonly: m.ReadOnly})
	}
	for _, d := range a.Nodes {
		out.Devices = append(out.Devices, &runtimeapi.Device{ContainerPath: d.ContainerPath, HostPath: d.HostPath, Permissions: d.Permissions})
	}
	return out
}

var (
	errDevicesNotRestored = errors.New("devices: the devices of the running container are not known yet")
	errRemade             = errors.New("devices: the container's devices were allocated again during its start; the next sync uses the new ones")
)

// BeforeCreate implements part.Creator: it prepares the devices of a container for its start. It
// waits a second for the plugin; after that the pod is synced again when the devices are prepared.
func (p *Devices) BeforeCreate(ctx context.Context, c part.Container, _ *runtimeapi.ContainerConfig) (func(string, error), error) {
	return nil, p.ready(ctx, c.Pod, c.Name)
}

func (p *Devices) ready(ctx context.Context, pod *v1.Pod, container string) error {
	if asksForSome(named(pod, container)) && p.before(func(*earlyDevices) { p.starts.fail(pod.UID) }) {
		return errDevicesNotRestored
	}
	_, missing := p.cfg.Manager.Attachment(pod, container)
	if missing == nil && len(p.cfg.Manager.Holdings(pod.UID, container)) == 0 {
		return nil
	}
	err := p.starts.do(ctx, pod.UID, container, func(ctx context.Context) error {
		return p.cfg.Manager.PreStart(ctx, pod, container)
	}, func() { p.host.Retry(pod.UID) })
	if err != nil {
		return fmt.Errorf("devices: %w", err)
	}
	if missing != nil {
		return errRemade // it was compiled without the new devices
	}
	return nil
}
