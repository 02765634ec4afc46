package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/cri/crilog"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/statusmgr"
)

// RunToCompletion runs one pod to its end on an agent of its own, removes it, and returns its last
// status: phase, exit codes, and the reason if it was rejected. If ctx ends first, the pod is
// terminated within its grace period and removed, and the error is the one of ctx.
//
// logs, if not nil, is called once for each container that has started. It returns the Writer for
// the container's log; if the Writer is nil, the log is dropped. Writers of different containers
// are used concurrently, but none is used after RunToCompletion has returned.
//
// cfg is the configuration of the agent. Its Sources may have objects that the pod refers to, and
// its Status.Sink gets the pod's statuses too. The pod gets the API's defaults. Its restart policy
// is Never by default, and must not be Always. Without a UID it gets [podmeta.HashUID], so that
// after a crash of the process, another call continues the same pod. The container runtime has to
// outlast the call.
func RunToCompletion(ctx context.Context, cfg Config, pod *v1.Pod, logs func(container string) io.Writer) (v1.PodStatus, error) {
	pod = pod.DeepCopy()
	switch pod.Spec.RestartPolicy {
	case "":
		pod.Spec.RestartPolicy = v1.RestartPolicyNever
	case v1.RestartPolicyAlways:
		return v1.PodStatus{}, errors.New("agent: spec.restartPolicy is Always, and the pod would never end; want Never or OnFailure")
	}
	podmgr.Default(pod)
	if pod.UID == "" {
		pod.UID = podmeta.HashUID(pod)
	}
	c := &completion{
		pod: pod, sink: cfg.Status.Sink, logs: logs, orders: make(chan []*v1.Pod), taken: make(chan struct{}), ended: make(chan v1.PodStatus, 1), deleted: make(chan struct{}),
		begun: map[string]int32{},
	}
	cfg.Sources, cfg.Status.Sink = append(slices.Clone(cfg.Sources), c), c
	var err error
	if c.agent, err = New(cfg); err != nil {
		return v1.PodStatus{}, err
	}
	return c.run(ctx)
}

// completion is one run of a pod. It is both the source and the sink of its agent.
type completion struct {
	agent *Agent
	pod   *v1.Pod
	sink  statusmgr.Sink // the sink of the configuration; nil if it has none
	logs  func(string) io.Writer

	orders  chan []*v1.Pod
	taken   chan struct{} // has a value after a change was delivered
	ended   chan v1.PodStatus
	deleted chan struct{}

	ctx context.Context // context of the goroutines that copy logs

	mu     sync.Mutex
	begun  map[string]int32 // the newest instance whose log is copied, by container
	copies []chan struct{}  // each is closed when the copy has ended
}

func (c *completion) Name() string      { return "run-to-completion" }
func (c *completion) Kind() podmgr.Kind { return podmgr.Managed }

// Run implements podmgr.Source.
func (c *completion) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case pods := <-c.orders:
			deliver(podmgr.Snapshot{Pods: pods})
			c.taken <- struct{}{}
		}
	}
}

// Update implements statusmgr.Sink.
func (c *completion) Update(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	if c.sink != nil {
		if err := c.sink.Update(ctx, pod, status); err != nil {
			return err
		}
	}
	if pod.UID != c.pod.UID {
		return nil
	}
	c.follow(&status)
	if podmeta.IsTerminal(status.Phase) {
		select {
		case c.ended <- status:
		default: // the end was reported before
		}
	}
	return nil
}

// Delete implements statusmgr.Sink.
func (c *completion) Delete(ctx context.Context, pod *v1.Pod) error {
	if c.sink != nil {
		if err := c.sink.Delete(ctx, pod); err != nil && !errors.Is(err, statusmgr.ErrGone) {
			return err
		}
	}
	if pod.UID == c.pod.UID {
		close(c.deleted)
	}
	return nil
}

// follow starts copying the logs of containers that have started.
func (c *completion) follow(st *v1.PodStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
		last, known := c.begun[s.Name]
		if s.State.Running == nil && s.State.Terminated == nil || c.logs == nil || known && s.RestartCount <= last {
			continue
		}
		c.begun[s.Name] = s.RestartCount
		w := c.logs(s.Name)
		if w == nil {
			continue
		}
		done := make(chan struct{})
		c.copies = append(c.copies, done)
		go func() {
			defer close(done)
			err := local.CopyLog(c.ctx, c.agent, c.pod, s.Name, false, w, crilog.Options{Tail: -1, Follow: true})
			if err != nil && c.ctx.Err() == nil {
				c.agent.log.Warn("failed to copy the log of a container", zap.String("container", s.Name), zap.Error(err))
			}
		}()
	}
}

// run runs the agent until the pod is removed.
func (c *completion) run(ctx context.Context) (last v1.PodStatus, err error) {
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	c.ctx = running
	var failure error
	over := make(chan struct{})
	go func() {
		defer close(over)
		failure = c.agent.Run(running)
	}()
	defer func() {
		end()
		<-over
		c.copied(context.Background())
		err = errors.Join(err, failure)
	}()
	order := func(pods ...*v1.Pod) bool {
		select {
		case c.orders <- pods:
			<-c.taken
			return true
		case <-over:
			return false
		}
	}
	if !order(c.pod.DeepCopy()) {
		return last, errEndedEarly
	}
	for _, p := range c.agent.Problems() {
		if p.Source == c.Name() {
			return last, fmt.Errorf("agent: pod %s: %s: %s", p.Pod, p.Field, p.Reason)
		}
	}
	select {
	case last = <-c.ended:
		c.copied(ctx) // the removal of the pod removes its logs
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-over:
		return last, errEndedEarly
	}
	if !order() {
		return last, errors.Join(err, errEndedEarly)
	}
	late := time.NewTimer(time.Duration(*c.pod.Spec.TerminationGracePeriodSeconds)*time.Second + endTimeout)
	defer late.Stop()
	select {
	case <-c.deleted:
	case <-over:
		return last, errors.Join(err, errEndedEarly)
	case <-late.C:
		why := c.agent.Why(c.pod)
		err = errors.Join(err, fmt.Errorf("agent: pod %s/%s was not removed in time: it %s", c.pod.Namespace, c.pod.Name, why.Summary()))
	}
	select {
	case last = <-c.ended: // the pod ended only now, because it was removed
	default:
	}
	return last, err
}

// errEndedEarly means that the agent ended before the pod. It is joined with the
// agent's own error, which has the reason.
var errEndedEarly = errors.New("agent: the agent ended before the pod")

// copied waits until the logs of all started containers have been copied, or ctx ends.
func (c *completion) copied(ctx context.Context) {
	c.mu.Lock()
	copies := slices.Clone(c.copies)
	c.mu.Unlock()
	for _, done := range copies {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}
