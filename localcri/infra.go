//go:build linux

package localcri

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/internal/executor"
	"github.com/nodewright/nodewright/localcri/internal/life"
	"github.com/nodewright/nodewright/localcri/internal/monitor"
	"github.com/nodewright/nodewright/localcri/internal/ocispec"
)

// infraUser is the user ID of the infra process, which is PID 1 of a PID namespace that the
// containers of a sandbox share. It is an unused ID, as in the pause images of other
// runtimes.
const infraUser = 65535

// infraProgram is the name of the program in its root.
const infraProgram = "pause"

// startInfra starts the first process of the shared PID namespace: the monitor's program in its
// own read-only root without other files, since the containers can see this root.
func (p *pod) startInfra(ctx context.Context) error {
	r := p.rt
	h, x, err := r.handler(p.handler)
	if err != nil {
		return err
	}
	rootfs, err := r.pauseRoot()
	if err != nil {
		return fmt.Errorf("copy program: %w", err)
	}
	in, err := p.infraInput(ctx, h, x, rootfs)
	if err != nil {
		return err
	}
	spec, err := ocispec.Compile(in)
	if err != nil {
		return err
	}
	config, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(p.file("infra"), closed), os.MkdirAll(p.infraStreams(), closed)); err != nil {
		return err
	}
	if err := (durable.OS{FileMode: 0o600}).Write(p.file("infra", configFile), config, false); err != nil {
		return err
	}
	m, err := p.client(ctx)
	if err != nil {
		return err
	}
	started, err := m.Start(ctx, p.infraContainer(x))
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.record.Infra = &life.Process{PID: started.PID, StartTime: started.StartTime}
	p.mu.Unlock()
	return nil
}

func (p *pod) infraStreams(elements ...string) string {
	return p.rt.statePath(append([]string{streamsDir, p.id}, elements...)...)
}

// infraContainer returns what a monitor needs to run the infra process. Its ID is the sandbox's.
func (p *pod) infraContainer(x ociRuntime) monitor.Container {
	m := monitor.Container{
		ID: p.id, Dir: "/", PIDFile: p.infraStreams(pidFile), ExecutorLog: p.infraStreams(runtimeLog),
		FIFODir: p.infraStreams(), ExitFile: p.infraStreams(exitFile), Timeout: createTimeout,
	}
	m.Create = x.Create(executor.Creation{ID: p.id, Bundle: p.file("infra"), PIDFile: m.PIDFile, Log: m.ExecutorLog})
	m.Start = x.Start(p.id, m.ExecutorLog)
	return m
}

func (p *pod) infraInput(ctx context.Context, h Handler, x ociRuntime, rootfs string) (*ocispec.Input, error) {
	r := p.rt
	machine, features, err := r.machineFor(ctx, x)
	if err != nil {
		return nil, err
	}
	made, err := r.spaces.Look(p.id)
	if err != nil {
		return nil, fmt.Errorf("find the namespaces of the sandbox: %w", err)
	}
	security := &runtimeapi.LinuxContainerSecurityContext{
		ReadonlyRootfs: true, NoNewPrivs: true,
		Capabilities: &runtimeapi.Capability{DropCapabilities: []string{"ALL"}},
		NamespaceOptions: &runtimeapi.NamespaceOption{
			Network: p.options().GetNetwork(), Ipc: p.options().GetIpc(), Pid: runtimeapi.NamespaceMode_CONTAINER,
		},
	}
	if machine.Seccomp != nil {
		security.Seccomp = &runtimeapi.SecurityProfile{}
	}
	return &ocispec.Input{
		ID: p.id, Sandbox: p.config, Rootfs: rootfs,
		Container: &runtimeapi.ContainerConfig{
			Command: []string{"/" + infraProgram, "pause"},
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources: &runtimeapi.LinuxContainerResources{OomScoreAdj: -998}, SecurityContext: security,
			},
		},
		User:       ocispec.User{UID: infraUser, GID: infraUser, Groups: []uint32{infraUser}},
		Namespaces: ocispec.Namespaces{IPC: made.IPC, UTS: made.UTS, User: made.User, Network: p.netns()},
		Machine:    machine,
		Handler:    ocispec.Handler{RecursiveReadOnly: features.RecursiveReadOnly, IDMap: features.IDMap && features.UserNamespaces, PrivilegedWithoutHostDevices: h.PrivilegedWithoutHostDevices},
	}, nil
}

// pauseRoot returns the root directory of all infra processes. It contains a copy of the program,
// and is named after the program's content.
func (r *Runtime) pauseRoot() (string, error) {
	const most = 64 << 20
	b, err := safefile.ReadLinked(r.cfg.Monitor, most)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	root := r.rootPath(pauseDir, hex.EncodeToString(sum[:8]))
	if fi, err := os.Stat(filepath.Join(root, infraProgram)); err == nil && fi.Size() == int64(len(b)) {
		return root, nil
	}
	// Mount points must exist, since the root is read-only.
	for _, d := range []string{"", "proc", "dev", "sys", "etc"} {
		if err := makeDir(filepath.Join(root, d), 0o755); err != nil {
			return "", err
		}
	}
	temp, err := os.CreateTemp(root, infraProgram+".*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(temp.Name()) }() // fails after the rename
	_, err = temp.Write(b)
	err = errors.Join(err, temp.Chmod(0o555), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), filepath.Join(root, infraProgram))
	}
	return root, err
}

// infraEnded handles the end of the shared PID namespace: the kernel has killed all its
// processes, and no new one can start in it.
func (p *pod) infraEnded() {
	p.mu.Lock()
	lost := p.life.Phase() == life.Ready && !p.life.InfraDead()
	_ = p.applyLocked(life.InfraEnded{})
	p.mu.Unlock()
	if lost {
		p.rt.log.Warn("process that holds the pod's shared PID namespace ended; the sandbox is not ready", zap.String("sandbox", p.id))
	}
}

// endInfra kills the infra process and removes what the OCI runtime has of it.
func (p *pod) endInfra(ctx context.Context) error {
	r := p.rt
	_, x, err := r.handler(p.handler)
	if err != nil {
		return err
	}
	p.mu.Lock()
	infra := p.record.Infra
	m := p.monitor
	p.mu.Unlock()
	if infra != nil {
		if err := r.processes.Signal(*infra, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill infra process: %w", err)
		}
	}
	if err := x.Delete(ctx, p.id, true); err != nil {
		return fmt.Errorf("delete infra process: %w", err)
	}
	if m != nil { // the monitor may not know of the end yet
		step, cancel := context.WithTimeout(ctx, monitorTimeout)
		defer cancel()
		_ = busyMonitor(step, func() error { return m.Forget(step, p.id) })
	}
	return nil
}
