package main

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/containerdtest"
)

// terminate is SIGTERM; it returns how the agent ended, and when.
func (l *lab) terminate() (time.Duration, error) {
	l.t.Helper()
	began := time.Now()
	l.must(l.cmd.Process.Signal(syscall.SIGTERM))
	err := l.cmd.Wait()
	l.cmd = nil
	return time.Since(began), err
}

// A SIGTERM is how an agent is restarted, and ends no pod; where it was said to
// mean the machine's end, pods go in the order of their priorities, and come
// back with the machine.
func TestSIGTERM(t *testing.T) {
	t.Parallel()
	containerdtest.Required(t)
	l := newLab(t)
	l.reconfigure("evictionHard: {}", "evictionHard: {}\nshutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 20}, {priority: 1000, shutdownGracePeriodSeconds: 20}, {priority: 2000000000, shutdownGracePeriodSeconds: 20}]")
	prio := func(name, priority string) string {
		s := box(name, "trap, '0', 1s, sleep, forever")
		s = strings.Replace(s, "terminationGracePeriodSeconds: 1\n", "terminationGracePeriodSeconds: 15\n", 1)
		return strings.Replace(s, "spec:\n", "spec:\n  priority: "+priority+"\n", 1)
	}
	names := []string{"plain", "vital", "system"}
	for i, priority := range []string{"0", "1000", "2000000000"} {
		l.write(names[i]+".yaml", prio(names[i], priority))
	}
	// Without the flag there is only logind, of which this machine has none, or
	// one that is told nothing.
	l.start()
	l.untilReady(names...)
	before := ids(l.containers())
	if took, err := l.terminate(); err != nil {
		t.Errorf("the agent ends after %v with %v", took, err)
	}
	if now := ids(l.containers()); !slices.Equal(now, before) || l.runningContainers() != len(names) {
		t.Fatalf("an agent's end ended pods")
	}

	l.args = []string{"--shutdown-on-sigterm"}
	l.start()
	pods := l.untilReady(names...)
	type end struct{ ctr, name string }
	var ctrs []end
	for _, n := range names {
		ctrs = append(ctrs, end{containerID(pods[n], "c"), n})
	}
	took, err := l.terminate()
	if err != nil {
		t.Errorf("the agent ends with %v", err)
	}
	if n := l.runningContainers(); n > 0 {
		t.Errorf("%d containers run", n)
	}
	var last time.Time
	for _, c := range ctrs {
		st, err := l.cri.ContainerStatus(t.Context(), c.ctr, false)
		l.must(err)
		at := time.Unix(0, st.GetStatus().GetFinishedAt())
		if at.Before(last.Add(900 * time.Millisecond)) { // each takes a second to end
			t.Errorf("%s ended at %v, that before it at %v", c.name, at, last)
		}
		if code := st.GetStatus().GetExitCode(); code != 0 {
			t.Errorf("%s was not let end: exit code %d", c.name, code)
		}
		last = at
	}
	t.Logf("three pods of three priorities ended in their order, and the agent, in %v", took.Round(time.Millisecond))

	// The machine is back.
	l.start()
	pods = l.untilReady(names...)
	for _, c := range ctrs {
		if containerID(pods[c.name], "c") == c.ctr {
			t.Errorf("%s did not begin again", c.name)
		}
	}
	if why := l.ask("why", "node"); strings.Contains(why, "going down") {
		t.Errorf("agent why node:\n%s", why)
	}
	l.args = nil
	l.until("running", func(pods map[string]*v1.Pod) bool { return len(pods) == len(names) })
}

func (l *lab) runningContainers() (n int) {
	l.t.Helper()
	for _, c := range l.containers() {
		if c.GetState() == 1 { // CONTAINER_RUNNING
			n++
		}
	}
	return n
}
