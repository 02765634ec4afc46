package agenttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// pause is the time between two checks of a condition.
const pause = 10 * time.Millisecond

// A Condition returns nil if a pod meets it. Otherwise it returns an error that says what is
// missing.
type Condition func(*v1.Pod) error

// Ready returns nil if the pod has the condition Ready.
func Ready(p *v1.Pod) error {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("the pod is %s and not ready", p.Status.Phase)
}

// Phase returns a Condition that is met if the pod is in the phase wanted.
func Phase(wanted v1.PodPhase) Condition {
	return func(p *v1.Pod) error {
		if p.Status.Phase != wanted {
			return fmt.Errorf("the pod is %s; want %s", p.Status.Phase, wanted)
		}
		return nil
	}
}

// Reason returns a Condition that is met if the pod's status has the reason wanted, such as
// Evicted. It is also met if a container waits or has ended with this reason, such as
// CrashLoopBackOff or OOMKilled.
func Reason(wanted string) Condition {
	return func(p *v1.Pod) error {
		all := []string{p.Status.Reason}
		for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
			for _, s := range list {
				if s.State.Waiting != nil {
					all = append(all, s.State.Waiting.Reason)
				}
				if s.State.Terminated != nil {
					all = append(all, s.State.Terminated.Reason)
				}
			}
		}
		for _, r := range all {
			if r == wanted {
				return nil
			}
		}
		return fmt.Errorf("the reasons are %q; want %s", all, wanted)
	}
}

// Restarts returns a Condition that is met if the restart counts of the pod's containers add up
// to at least minimum.
func Restarts(minimum int32) Condition {
	return func(p *v1.Pod) error {
		var n int32
		for _, s := range p.Status.ContainerStatuses {
			n += s.RestartCount
		}
		if n != minimum {
			return fmt.Errorf("%d restarts; want %d", n, minimum)
		}
		return nil
	}
}

// Await waits until the agent has a pod of that name, or namespace/name, that meets all conditions,
// and returns it. After Timeout the test fails with the missing conditions, their cause, and the
// pod's events.
func (n *Node) Await(name string, conditions ...Condition) *v1.Pod {
	n.t.Helper()
	return n.until(name, func(p *v1.Pod) error {
		if p == nil {
			return errors.New("there is no such pod")
		}
		var missing []error
		for _, c := range conditions {
			missing = append(missing, c(p))
		}
		return errors.Join(missing...)
	})
}

// AwaitGone waits until the agent has no pod of that name and the runtime has no sandbox or
// container of it.
func (n *Node) AwaitGone(name string) {
	n.t.Helper()
	n.until(name, func(p *v1.Pod) error {
		if p != nil {
			return errors.New("the pod still exists")
		}
		return n.left(name)
	})
}

// left returns an error that names the sandboxes and containers of a pod in the runtime.
func (n *Node) left(name string) error {
	sandboxes, err := n.Runtime.ListPodSandbox(context.Background(), nil)
	if err != nil {
		return err
	}
	for _, s := range sandboxes {
		if m := s.GetMetadata(); full(m.GetNamespace(), m.GetName()) == qualified(name) {
			return fmt.Errorf("sandbox %s is left", s.GetId())
		}
	}
	return nil
}

// until waits until met returns nil. met gets the pod with this name, or nil if there is none.
func (n *Node) until(name string, met func(*v1.Pod) error) *v1.Pod {
	n.t.Helper()
	if n.agent == nil {
		n.t.Fatal("agenttest: no agent runs on this node; Start one first")
	}
	deadline := time.Now().Add(n.Timeout)
	for {
		p := n.Pod(name)
		err := met(p)
		if err == nil {
			return p
		}
		select {
		case end := <-n.ended:
			n.agent = nil
			n.t.Fatalf("agenttest: pod %s: %v; the agent ended: %v", name, err, end)
		case <-time.After(pause):
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("agenttest: pod %s, after %s: %v%s", name, n.Timeout, err, n.explain(p))
		}
	}
}

// Pod returns the pod with this name, which may be namespace/name. It returns nil if there is no
// such pod.
func (n *Node) Pod(name string) *v1.Pod {
	var found *v1.Pod
	for _, p := range n.agent.Pods() {
		if full(p.Namespace, p.Name) == qualified(name) {
			found = p // of several the last is the newest
		}
	}
	return found
}

// explain returns what the agent knows of a pod.
func (n *Node) explain(p *v1.Pod) string {
	var b strings.Builder
	for _, problem := range n.agent.Problems() {
		fmt.Fprintf(&b, "\nproblem: %+v", problem)
	}
	if p == nil {
		return b.String()
	}
	why := n.agent.Why(p)
	for _, line := range why.Lines(time.Now()) {
		b.WriteString("\n" + line)
	}
	if why.LastError != "" {
		fmt.Fprintf(&b, "\nlast error: %s (%d in a row)", why.LastError, why.Failures)
	}
	for _, e := range n.agent.Events(p) {
		fmt.Fprintf(&b, "\nevent: %s %s: %s", e.Type, e.Reason, e.Message)
	}
	return b.String()
}

func full(namespace, name string) string { return namespace + "/" + name }

// qualified adds the namespace default to a name without one.
func qualified(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return full(v1.NamespaceDefault, name)
}
