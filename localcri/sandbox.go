//go:build linux

package localcri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/rmtree"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/internal/life"
	"github.com/nodewright/nodewright/localcri/internal/spaces"
)

// RunPodSandbox creates a sandbox. A second call with the same name, namespace, UID and attempt
// joins the first one. If all callers have given up, the sandbox is kept for a minute for the
// next call. Later calls return AlreadyExists.
func (r *Runtime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	if err := r.await(ctx); err != nil {
		return "", err
	}
	if err := checkSandbox(config); err != nil {
		return "", err
	}
	if _, _, err := r.handler(handler); err != nil {
		return "", err
	}
	config = proto.CloneOf(config)
	for {
		p, err := r.claimPod(config, handler)
		if err != nil {
			return "", err
		}
		if p == nil { // the former sandbox is being removed
			if !retry.Sleep(ctx, pollPause) {
				return "", coded(context.Cause(ctx))
			}
			continue
		}
		if err := p.claim.take(ctx); err != nil {
			return "", err
		}
		return p.id, nil
	}
}

// pollPause is the interval for polling a state that changes within milliseconds and has no
// channel to wait for.
const pollPause = 5 * time.Millisecond

// claimPod returns the sandbox with this name, or starts to create it. It returns nil if a
// sandbox with this name is being removed.
func (r *Runtime) claimPod(config *runtimeapi.PodSandboxConfig, handler string) (*pod, error) {
	key := podKey(config.GetMetadata())
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.names[key]; p != nil {
		if p.claim == nil {
			return nil, errorf(codes.AlreadyExists, "sandbox name %.300q is reserved for %s", key, p.id)
		}
		switch p.claim.join(proto.Equal(p.config, config) && p.handler == handler) {
		case joinWait:
			return p, nil
		case joinDelivered:
			return nil, errorf(codes.AlreadyExists, "sandbox name %.300q is reserved for %s", key, p.id)
		}
		return nil, nil
	}
	b, err := proto.Marshal(config)
	if err != nil {
		return nil, errorf(codes.InvalidArgument, "config cannot be kept: %v", err)
	}
	p := newPod(r, sandboxFacts{
		Version: recordVersion, ID: newID(), Boot: r.cfg.BootID, Created: time.Now().UnixNano(), Handler: handler, Config: b,
	}, life.NewSandbox(), config)
	close(p.known)
	p.claim = newClaim(func() {
		r.log.Info("removing sandbox: the caller of its creation is gone", zap.String("sandbox", p.id), zap.String("name", p.key))
		_ = p.apply(life.Discarded{})
	})
	r.pods[p.id], r.names[key] = p, p
	r.label(p, p.config.GetLabels(), 1)
	r.do(func(ctx context.Context) { r.makePod(ctx, p) })
	return p, nil
}

// makePod creates the sandbox, and removes its parts if it fails.
func (r *Runtime) makePod(ctx context.Context, p *pod) {
	err := p.make(ctx)
	if err != nil {
		r.log.Debug("failed to make sandbox", zap.String("sandbox", p.id), zap.String("name", p.key), zap.Error(err))
		_ = p.apply(life.Discarded{})
		_ = p.removed(ctx)
		p.claim.complete(coded(err))
		return
	}
	// The waiting callers are told before the event is published.
	p.claim.complete(nil)
	p.tell(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, p.id, p.created)
	p.tell(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, p.id, 0)
}

// make creates all parts of a sandbox. The record is written before anything is
// created.
func (p *pod) make(ctx context.Context) error {
	r := p.rt
	if err := p.save(ctx); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	if ownUserns(p.options()) {
		if m, err := r.facts.Machine(ctx); err != nil || m.UserNamespace {
			return cmp.Or(err, errorf(codes.FailedPrecondition, "linux.security_context.namespace_options.userns_options.mode POD: this runtime is in a user namespace itself, where the kernel maps no IDs of mounts"))
		}
		if err := othersPass(r.rootPath(containersDir)); err != nil {
			return err
		}
	}
	step, cancel := context.WithTimeout(ctx, spaceTimeout)
	defer cancel()
	if _, err := r.spaces.Make(step, p.spaces()); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	if err := p.attach(ctx); err != nil {
		return err
	}
	step, cancel = context.WithTimeout(ctx, spaceTimeout)
	defer cancel()
	if p.config.GetLinux().GetSecurityContext().GetPrivileged() && !p.hostNetwork() {
		if err := r.spaces.HoldSys(step, p.id, p.netns()); err != nil {
			return fmt.Errorf("keep sysfs writable: %w", err)
		}
	}
	if err := r.spaces.SetSysctls(step, p.id, p.netns(), p.config.GetLinux().GetSysctls()); err != nil {
		return err
	}
	if err := p.writeFiles(); err != nil {
		return fmt.Errorf("write files: %w", err)
	}
	if _, err := p.client(ctx); err != nil {
		return fmt.Errorf("start monitor: %w", err)
	}
	if p.sharedPID() {
		if err := p.startInfra(ctx); err != nil {
			return fmt.Errorf("start process of the shared PID namespace: %w", err)
		}
	}
	if err := p.apply(life.Made{}); err != nil {
		return errors.New("the process of the shared PID namespace ended at once")
	}
	if err := p.save(ctx); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	p.mu.Lock()
	p.told = toldLife
	p.mu.Unlock()
	return p.hook(ctx, HookPodRun)
}

// othersPass returns an error if users other than root cannot pass through a directory. The root
// user of a user namespace is such a user on the host, and has to reach its root file system.
func othersPass(dir string) error {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return errorf(codes.FailedPrecondition, "linux.security_context.namespace_options.userns_options.mode POD: directory %s has mode %04o, and must let others pass (chmod o+x)", dir, info.Mode().Perm())
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// spaces returns which namespaces the sandbox has in addition to its network namespace.
func (p *pod) spaces() spaces.Request {
	own := ownSpaces(p.options())
	q := spaces.Request{ID: p.id, UTS: own.UTS, IPC: own.IPC}
	if q.UTS {
		q.Hostname = p.config.GetHostname()
	}
	if u := p.options().GetUsernsOptions(); own.User {
		q.User = &spaces.Mappings{UIDs: u.GetUids(), GIDs: u.GetGids()}
	}
	return q
}

func (p *pod) netns() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.record.Netns
}

// attach gives the sandbox its network.
func (p *pod) attach(ctx context.Context) error {
	if p.hostNetwork() {
		return nil
	}
	a := attachment(p.id, p.config)
	if ownUserns(p.options()) {
		f, err := p.rt.spaces.OpenUser(p.id)
		if err != nil {
			return fmt.Errorf("open user namespace: %w", err)
		}
		defer func() { _ = f.Close() }()
		a.UserNS = f
	}
	result, err := p.rt.cfg.Network.Attach(ctx, a)
	if err != nil {
		return networkError(err)
	}
	for _, w := range result.Warnings {
		p.rt.log.Warn("network ignored a requested setting", zap.String("sandbox", p.id), zap.String("warning", w))
	}
	p.mu.Lock()
	p.record.Netns = result.Netns
	for _, ip := range result.IPs {
		p.record.IPs = append(p.record.IPs, ip.String())
	}
	p.mu.Unlock()
	return nil
}

// file returns the path of one of the sandbox's files.
func (p *pod) file(elements ...string) string {
	return p.rt.rootPath(append([]string{sandboxesDir, p.id}, elements...)...)
}

// writeFiles writes the files that all containers of the sandbox see.
func (p *pod) writeFiles() error {
	if err := makeDir(p.file(), closed); err != nil {
		return err
	}
	resolv, err := resolvConf(p.config.GetDnsConfig())
	if err != nil {
		return err
	}
	hostname := p.config.GetHostname()
	if hostname == "" || p.hostNetwork() {
		if hostname, err = os.Hostname(); err != nil {
			return err
		}
	}
	disk := durable.OS{DirMode: closed, FileMode: 0o644}
	const most = 1 << 20
	hosts, err := safefile.ReadLinked("/etc/hosts", most)
	if errors.Is(err, os.ErrNotExist) {
		hosts, err = []byte("127.0.0.1 localhost\n::1 localhost\n"), nil
	}
	return errors.Join(
		err, disk.Write(p.file("resolv.conf"), resolv, false), disk.Write(p.file("hosts"), hosts, false), disk.Write(p.file("hostname"), []byte(hostname+"\n"), false),
	)
}

// hostname returns the host name of the sandbox. It reads the sandbox's file with the host name,
// so that all containers show the same name.
func (p *pod) hostname() (string, error) {
	const most = 4 << 10
	b, err := safefile.ReadFile(p.file("hostname"), most)
	return strings.TrimSuffix(string(b), "\n"), err
}

// undo removes all parts of a sandbox that callers have not seen. If that is not possible at
// once, the removal is recorded, and continues in the background. In any case the sandbox's
// name is free when undo returns.
func (p *pod) undo(ctx context.Context) error {
	p.keepRecord(ctx)
	p.rt.persistFrom(ctx, "failed to undo sandbox", p.id, func(ctx context.Context) error {
		if err := p.tearDown(ctx); err != nil {
			return err
		}
		for _, c := range p.list() {
			if err := c.remove(ctx); err != nil {
				return err
			}
		}
		return p.erase(ctx)
	})
	p.hookRemoval(ctx)
	p.rt.forgetPod(p)
	return nil
}

// persist calls f until f succeeds or ctx ends.
func (r *Runtime) persist(ctx context.Context, failure, id string, f func() error) {
	backoff := retry.Backoff{First: time.Second, Max: 5 * time.Minute}
	for backoff.Wait(ctx) {
		err := f()
		if err == nil {
			return
		}
		r.log.Warn(failure, zap.String("id", id), zap.Error(err))
	}
}

// forgetPod removes a sandbox from the tables.
func (r *Runtime) forgetPod(p *pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods[p.id] == p {
		delete(r.pods, p.id)
		r.label(p, p.config.GetLabels(), -1)
	}
	if r.names[p.key] == p {
		delete(r.names, p.key)
	}
}

// StopPodSandbox kills everything in a sandbox and releases its network. A missing sandbox is not
// an error.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	p, err := r.lookPod(ctx, id)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return p.halt(ctx)
}

// halt stops a sandbox, or joins a stop in progress.
func (p *pod) halt(ctx context.Context) error {
	if err := p.apply(life.StopAsked{}); err != nil {
		return err
	}
	return p.awaitHalt(ctx)
}

// awaitHalt waits until a sandbox that is being stopped has stopped.
func (p *pod) awaitHalt(ctx context.Context) error {
	p.mu.Lock()
	o, stopping := p.stop, p.life.Phase() == life.Stopping
	p.mu.Unlock()
	if !stopping {
		return nil
	}
	return o.wait(ctx)
}

func (p *pod) stopNow(ctx context.Context) error {
	p.keepRecord(ctx)
	if err := p.tearDown(ctx); err != nil {
		p.rt.log.Warn("failed to stop sandbox", zap.String("sandbox", p.id), zap.Error(err))
		_ = p.apply(life.NotTornDown{})
		return err
	}
	_ = p.apply(life.TornDown{})
	p.keepRecord(ctx)
	return nil
}

// tearDown ends all processes of the sandbox and removes the parts that a stopped sandbox does
// not need. It may be called again. It continues after failures.
func (p *pod) tearDown(ctx context.Context) error {
	r := p.rt
	var errs []error
	all := p.list()
	failures := make(chan error, len(all))
	for _, c := range all {
		go func() { failures <- c.halt(ctx, 0) }()
	}
	for range all {
		errs = append(errs, <-failures)
	}
	for _, c := range all {
		errs = append(errs, c.cleaned(ctx))
	}
	if p.sharedPID() {
		errs = append(errs, p.endInfra(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err // the running container still uses the rest
	}
	p.hookEnd(ctx)
	if !p.hostNetwork() {
		if err := r.cfg.Network.Detach(ctx, p.id); err != nil {
			errs = append(errs, networkError(err))
		}
	}
	step, cancel := context.WithTimeout(ctx, spaceTimeout)
	defer cancel()
	if err := r.spaces.Remove(step, p.id); err != nil {
		errs = append(errs, fmt.Errorf("remove namespaces: %w", err))
	}
	// The monitor reports how they ended, and then ends.
	for _, c := range all {
		c.keepRecord(ctx)
	}
	p.dismiss(ctx)
	return errors.Join(errs...)
}

// RemovePodSandbox stops a sandbox and removes it with its containers. A missing sandbox is not
// an error.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	p, err := r.goingPod(ctx, id)
	if isNotFound(err) || err == nil && !p.visible() && !p.going() {
		return nil
	}
	if err != nil {
		return err
	}
	if err := p.apply(life.RemoveAsked{}); err != nil {
		return err
	}
	if err := p.awaitHalt(ctx); err != nil {
		return err
	}
	return p.removed(ctx)
}

// removed waits until the removal in progress has ended, and returns its error.
func (p *pod) removed(ctx context.Context) error {
	p.mu.Lock()
	o := p.removal
	p.mu.Unlock()
	return o.wait(ctx)
}

// withdraw removes the containers of a sandbox and then the sandbox itself. Afterwards callers do
// not see them any more; files that cannot be removed at once are removed in the background.
func (p *pod) withdraw(ctx context.Context) error {
	r := p.rt
	for _, c := range p.list() {
		if err := c.awaitRemoval(ctx); ctx.Err() != nil {
			return err
		} else if err != nil {
			r.log.Warn("failed to remove container with its sandbox", zap.String("container", c.id), zap.Error(err))
		}
	}
	p.keepRecord(ctx)
	p.hookRemoval(ctx)
	r.forgetPod(p)
	p.tell(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, p.id, 0)
	r.persistFrom(ctx, "failed to remove sandbox", p.id, p.erase)
	return nil
}

// erase removes the files of a sandbox; the record is removed last.
func (p *pod) erase(ctx context.Context) error {
	// The socket is about to be removed, and a monitor that continued could not be found any
	// more.
	if err := p.endMonitor(ctx); err != nil {
		return fmt.Errorf("end monitor: %w", err)
	}
	if err := removeTree(p.file()); err != nil {
		return err
	}
	if err := p.removeStateFiles(); err != nil {
		return err
	}
	if err := p.saver.remove(ctx, p.rt.sandboxRecords, p.id); err != nil {
		return err
	}
	return p.apply(life.Erased{})
}

// removeStateFiles removes the sandbox's files below StateDir.
func (p *pod) removeStateFiles() error {
	return errors.Join(removeTree(p.rt.statePath(streamsDir, p.id)), removeTree(p.rt.statePath(monitorsDir, p.id)))
}

// removeTree removes a directory of the runtime, including files that other programs may have
// put into it.
func removeTree(dir string) error {
	err := rmtree.Remove(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// resolvConf returns the content of resolv.conf(5) for a pod. If d has no servers, searches or
// options, the result is the content of the host's file.
func resolvConf(d *runtimeapi.DNSConfig) ([]byte, error) {
	if len(d.GetServers())+len(d.GetSearches())+len(d.GetOptions()) == 0 {
		const most = 1 << 20
		b, err := safefile.ReadLinked("/etc/resolv.conf", most) // often a symbolic link
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return b, err
	}
	var b strings.Builder
	for _, s := range d.GetServers() {
		b.WriteString("nameserver " + s + "\n")
	}
	if d := d.GetSearches(); len(d) > 0 {
		b.WriteString("search " + strings.Join(d, " ") + "\n")
	}
	if d := d.GetOptions(); len(d) > 0 {
		b.WriteString("options " + strings.Join(d, " ") + "\n")
	}
	return []byte(b.String()), nil
}
