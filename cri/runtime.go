package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/seconds"
)

// The calls of RuntimeService. Each has the client's deadline unless its comment
// names another. Those that stop or remove may be repeated, and succeed if there is
// nothing left to do (CRI, RuntimeService).

// Version returns the runtime's name and version. A runtime may ignore apiVersion.
func (c *Client) Version(ctx context.Context, apiVersion string) (*runtimeapi.VersionResponse, error) {
	return call(ctx, c, "version", c.timeout, c.runtime.Version, &runtimeapi.VersionRequest{Version: apiVersion})
}

// Status returns the runtime's conditions, handlers and features.
func (c *Client) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	return call(ctx, c, "status", c.timeout, c.runtime.Status, &runtimeapi.StatusRequest{Verbose: verbose})
}

// RuntimeConfig returns the runtime's configuration, which has its cgroup driver.
func (c *Client) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return call(ctx, c, "runtime_config", c.timeout, c.runtime.RuntimeConfig, &runtimeapi.RuntimeConfigRequest{})
}

// UpdateRuntimeConfig sends the runtime the node's pod CIDR. Some runtimes write the
// configuration of their CNI plugins from it.
func (c *Client) UpdateRuntimeConfig(ctx context.Context, conf *runtimeapi.RuntimeConfig) error {
	_, err := call(ctx, c, "update_runtime_config", c.timeout, c.runtime.UpdateRuntimeConfig,
		&runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: conf})
	return err
}

// RunPodSandbox makes and starts a sandbox. Its deadline is twice the usual one, as in the kubelet,
// since the setup of a network may take long.
func (c *Client) RunPodSandbox(ctx context.Context, conf *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	resp, err := call(ctx, c, "run_podsandbox", 2*c.timeout, c.runtime.RunPodSandbox,
		&runtimeapi.RunPodSandboxRequest{Config: conf, RuntimeHandler: handler})
	if err != nil {
		return "", err
	}
	// Without an ID the sandbox could never be removed.
	if resp.GetPodSandboxId() == "" {
		return "", fmt.Errorf("run_podsandbox: the runtime returned no id for sandbox %q", conf.GetMetadata().GetName())
	}
	return resp.GetPodSandboxId(), nil
}

// StopPodSandbox kills the containers of a sandbox, stops the sandbox and removes its network. It
// may be called again. For a missing sandbox, most runtimes return no error; others return an
// error for which [IsNotFound] is true.
func (c *Client) StopPodSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, c, "stop_podsandbox", c.timeout, c.runtime.StopPodSandbox, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

// RemovePodSandbox removes a sandbox and its containers.
func (c *Client) RemovePodSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, c, "remove_podsandbox", c.timeout, c.runtime.RemovePodSandbox, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// PodSandboxStatus returns the status of a sandbox.
func (c *Client) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	return call(ctx, c, "podsandbox_status", c.timeout, c.runtime.PodSandboxStatus,
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: verbose})
}

// ListPodSandbox lists the sandboxes that pass the filter.
func (c *Client) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	resp, err := call(ctx, c, "list_podsandbox", c.timeout, c.runtime.ListPodSandbox, &runtimeapi.ListPodSandboxRequest{Filter: filter}, forList)
	return resp.GetItems(), err
}

// UpdatePodSandboxResources informs the runtime and its plugins that the agent has changed the
// resources of a pod's cgroup.
func (c *Client) UpdatePodSandboxResources(ctx context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return call(ctx, c, "update_podsandbox_resources", c.timeout, c.runtime.UpdatePodSandboxResources, r)
}

// PortForward prepares a stream to ports of a sandbox and returns its URL, which the runtime itself
// serves.
func (c *Client) PortForward(ctx context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return call(ctx, c, "port_forward", c.timeout, c.runtime.PortForward, r)
}

// CreateContainer makes a container in a sandbox. sandboxConf is the configuration with which the
// sandbox was made: runtimes read the pod's cgroup and log directory from it.
func (c *Client) CreateContainer(ctx context.Context, sandbox string, conf *runtimeapi.ContainerConfig, sandboxConf *runtimeapi.PodSandboxConfig) (string, error) {
	resp, err := call(ctx, c, "create_container", c.timeout, c.runtime.CreateContainer,
		&runtimeapi.CreateContainerRequest{PodSandboxId: sandbox, Config: conf, SandboxConfig: sandboxConf})
	if err != nil {
		return "", err
	}
	if resp.GetContainerId() == "" {
		return "", fmt.Errorf("create_container: the runtime returned no id for container %q", conf.GetMetadata().GetName())
	}
	return resp.GetContainerId(), nil
}

// StartContainer starts a container that was made.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	_, err := call(ctx, c, "start_container", c.timeout, c.runtime.StartContainer, &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

// StopContainer stops a container, and kills it after timeout seconds. It blocks until the
// container has ended. Its deadline is timeout plus the client's timeout.
func (c *Client) StopContainer(ctx context.Context, id string, timeout int64) error {
	_, err := call(ctx, c, "stop_container", c.timeout+seconds.Of(timeout), c.runtime.StopContainer,
		&runtimeapi.StopContainerRequest{ContainerId: id, Timeout: int64(seconds.Of(timeout) / time.Second)}) // runtimes count in durations too
	return err
}

// RemoveContainer removes a container, and kills it if it runs.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	_, err := call(ctx, c, "remove_container", c.timeout, c.runtime.RemoveContainer, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return err
}

// ListContainers lists the containers that pass the filter.
func (c *Client) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	resp, err := call(ctx, c, "list_containers", c.timeout, c.runtime.ListContainers, &runtimeapi.ListContainersRequest{Filter: filter}, forList)
	return resp.GetContainers(), err
}

// ContainerStatus returns the status of a container.
func (c *Client) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	return call(ctx, c, "container_status", c.timeout, c.runtime.ContainerStatus,
		&runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: verbose})
}

// UpdateContainerResources changes the limits of a running container.
func (c *Client) UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.ContainerResources) error {
	_, err := call(ctx, c, "update_container", c.timeout, c.runtime.UpdateContainerResources, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: r.GetLinux(), Windows: r.GetWindows(),
	})
	return err
}

// ExitError is a command's exit code that is not 0. The call itself has succeeded.
type ExitError struct{ Code int32 }

// ExitStatus returns the code. With this method callers can read the code without the type.
func (e *ExitError) ExitStatus() int { return int(e.Code) }

func (e *ExitError) Error() string { return fmt.Sprintf("command ended with exit code %d", e.Code) }

// ExecSync runs a command in a container and waits for its end. If timeout is 0, only ctx limits
// the time. For an exit code other than 0 it returns the output and an *ExitError. For a command
// that writes more than 256 KiB it returns an *OutputError and no output.
func (c *Client) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	// The runtime ends the command at its timeout. The client waits longer, so that the
	// answer can arrive.
	deadline := time.Duration(0)
	whole := int64((timeout + time.Second - 1) / time.Second) // as the CRI counts them
	if timeout > 0 {
		deadline = c.timeout + timeout
	}
	resp, err := call(ctx, c, "exec_sync", deadline,
		func(ctx context.Context, req *runtimeapi.ExecSyncRequest, _ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
			return c.execSync(ctx, req)
		}, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: whole})
	if err == nil && resp.GetExitCode() != 0 {
		err = &ExitError{Code: resp.GetExitCode()}
	}
	return resp.GetStdout(), resp.GetStderr(), err
}

// Exec prepares a command's streams and returns their URL. The command is started when a
// client connects there.
func (c *Client) Exec(ctx context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return call(ctx, c, "exec", c.timeout, c.runtime.Exec, r)
}

// Attach prepares the streams of a container's main process and returns their URL.
func (c *Client) Attach(ctx context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return call(ctx, c, "attach", c.timeout, c.runtime.Attach, r)
}

// ReopenContainerLog makes the runtime open a container's log again, after the file was
// renamed.
func (c *Client) ReopenContainerLog(ctx context.Context, id string) error {
	_, err := call(ctx, c, "reopen_container_log", c.timeout, c.runtime.ReopenContainerLog, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	return err
}

// CheckpointContainer writes a container's memory and files to disk. Its deadline is the
// longer of the request's and the client's timeout.
func (c *Client) CheckpointContainer(ctx context.Context, r *runtimeapi.CheckpointContainerRequest) error {
	timeout := c.timeout
	if t := seconds.Of(r.GetTimeout()); t > timeout {
		timeout = t
	}
	_, err := call(ctx, c, "checkpoint_container", timeout, c.runtime.CheckpointContainer, r)
	return err
}

// CheckpointPod writes all containers of a pod to a directory. Its deadline is that of ctx, or the
// client's timeout if ctx has none.
func (c *Client) CheckpointPod(ctx context.Context, r *runtimeapi.CheckpointPodRequest) error {
	_, err := call(ctx, c, "checkpoint_pod", c.until(ctx), c.runtime.CheckpointPod, r)
	return err
}

// RestorePod creates a sandbox and its containers from a checkpoint. Its deadline is that of ctx,
// or the client's timeout if ctx has none.
func (c *Client) RestorePod(ctx context.Context, r *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return call(ctx, c, "restore_pod", c.until(ctx), c.runtime.RestorePod, r)
}

// until returns the time until ctx's deadline, or the client's timeout if ctx has none. If
// the deadline has passed, the result is negative, and ctx ends the call at once.
func (c *Client) until(ctx context.Context) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		return time.Until(at)
	}
	return c.timeout
}

// GetContainerEvents sends events to ch until the stream or ctx ends. opened, if not
// nil, is called once the stream is open. At the end of the stream the error is io.EOF.
// Only ctx limits the time. ch is not closed. While ch is full, no events are read, and
// the runtime may drop some.
func (c *Client) GetContainerEvents(ctx context.Context, ch chan *runtimeapi.ContainerEventResponse, opened func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	start := time.Now()
	stream, err := c.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	c.met.observe("get_container_events", start, err)
	if err != nil {
		return &callError{"get_container_events", shortened(err)}
	}
	if opened != nil {
		opened(stream)
	}
	for {
		ev, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		if err != nil {
			return &callError{"get_container_events", shortened(err)}
		}
		select {
		case ch <- ev:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ContainerStats returns the usage of one container.
func (c *Client) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	resp, err := call(ctx, c, "container_stats", c.timeout, c.runtime.ContainerStats, &runtimeapi.ContainerStatsRequest{ContainerId: id})
	return resp.GetStats(), err
}

// ListContainerStats returns the usage of the containers that pass the filter.
func (c *Client) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	resp, err := call(ctx, c, "list_container_stats", c.timeout, c.runtime.ListContainerStats, &runtimeapi.ListContainerStatsRequest{Filter: filter}, forList)
	return resp.GetStats(), err
}

// PodSandboxStats returns the usage of one pod.
func (c *Client) PodSandboxStats(ctx context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	resp, err := call(ctx, c, "podsandbox_stats", c.timeout, c.runtime.PodSandboxStats, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: id})
	return resp.GetStats(), err
}

// ListPodSandboxStats returns the usage of the pods that pass the filter.
func (c *Client) ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	resp, err := call(ctx, c, "list_podsandbox_stats", c.timeout, c.runtime.ListPodSandboxStats, &runtimeapi.ListPodSandboxStatsRequest{Filter: filter}, forList)
	return resp.GetStats(), err
}

// ListMetricDescriptors returns the descriptions of the runtime's own metrics.
func (c *Client) ListMetricDescriptors(ctx context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	resp, err := call(ctx, c, "list_metric_descriptors", c.timeout, c.runtime.ListMetricDescriptors, &runtimeapi.ListMetricDescriptorsRequest{}, forList)
	return resp.GetDescriptors(), err
}

// ListPodSandboxMetrics returns the runtime's own metrics of all pods.
func (c *Client) ListPodSandboxMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	resp, err := call(ctx, c, "list_podsandbox_metrics", c.timeout, c.runtime.ListPodSandboxMetrics, &runtimeapi.ListPodSandboxMetricsRequest{}, forList)
	return resp.GetPodMetrics(), err
}
