//go:build !race

package hostile

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	period   = time.Second
	crashers = 4
)

// bystander is what an attack must not hurt: a pod with a probe every second,
// and pods that crash once each.
const bystander = `apiVersion: v1
kind: Pod
metadata: {name: bystander, namespace: default}
spec:
  containers:
  - {name: c, image: "localhost/app:1", args: [sleep, forever], livenessProbe: {exec: {command: [exit, "0"]}, periodSeconds: 1}}
`

const crasher = `apiVersion: v1
kind: Pod
metadata: {name: crasher-%d, namespace: default}
spec: {containers: [{name: c, image: "localhost/app:1", args: [sleep, forever]}]}
`

// placeBystanders has them run, and probed.
func (m *machine) placeBystanders() {
	m.t.Helper()
	m.write("manifests/bystander.yaml", bystander)
	for i := range crashers {
		m.write(fmt.Sprintf("manifests/crasher-%d.yaml", i), fmt.Sprintf(crasher, i))
	}
	id := m.untilRuns("bystander")
	for i := range crashers {
		m.untilRuns(fmt.Sprintf("crasher-%d", i))
	}
	m.until("the bystander is probed", func() bool { return len(m.probes(id)) > 0 })
}

func (m *machine) probes(id string) []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.execs[id])
}

// lateness is how late something was at worst. clock is the test's own
// lateness: how long a client of its own takes for as many calls of the runtime
// as a restart has, after a sleep. So late may anybody be who does nothing
// wrong, since the runtime runs in this process, on the same busy machine.
type lateness struct{ probe, restart, clock time.Duration }

// callsOfRestart is how many calls of the runtime follow one another from the
// end of a container to the start of the next one.
const callsOfRestart = 10

// ownLateness measures the test's own lateness until stop is called.
func (m *machine) ownLateness() (stop func() time.Duration) {
	m.t.Helper()
	const nap = 20 * time.Millisecond
	conn, err := grpc.NewClient("unix://"+m.path("cri.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	m.must(err)
	client := runtimeapi.NewRuntimeServiceClient(conn)
	end, worst := make(chan struct{}), make(chan time.Duration)
	go func() {
		var most time.Duration
		for {
			begin := time.Now()
			select {
			case <-end:
				_ = conn.Close()
				worst <- most
				return
			case <-time.After(nap):
			}
			for range callsOfRestart {
				_, _ = client.Version(context.Background(), &runtimeapi.VersionRequest{})
			}
			most = max(most, time.Since(begin)-nap)
		}
	}()
	return func() time.Duration {
		close(end)
		return <-worst
	}
}

// watch crashes the crashers, one after the other, while d passes, and says how
// late the bystanders were at worst.
func (m *machine) watch(d time.Duration) lateness {
	m.t.Helper()
	var worst lateness
	clock := m.ownLateness()
	begin := time.Now()
	for i := range crashers {
		pod := fmt.Sprintf("crasher-%d", i)
		id := m.untilRuns(pod)
		killed := time.Now()
		m.rt.Kill(id)
		m.until(pod+" runs again", func() bool { now := m.container(pod); return now != "" && now != id })
		worst.restart = max(worst.restart, time.Since(killed))
		time.Sleep(time.Until(begin.Add(d * time.Duration(i+1) / crashers)))
	}
	id := m.container("bystander")
	times := append(m.probes(id), time.Now())
	for i := range len(times) - 1 {
		worst.probe = max(worst.probe, times[i+1].Sub(times[i])-period)
	}
	worst.clock = clock()
	return worst
}
