package sim

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The bounds of a run.
const (
	// startBound is how long a pod without troubles of its own may take to run when
	// nothing affects all pods: the longest back-off, and a minute.
	startBound = 6 * time.Minute
	// busyBound is how many effects a minute may not have: an agent that tries something
	// again without a pause has thousands.
	busyBound = 2000
	// convergeBound is how long everything may take when all troubles are over: the
	// longest back-offs, of a container and of a sync.
	convergeBound = 20 * time.Minute
	// restAfter is the time in which the agent may still tidy up, with one more look at all pods:
	// events of a pod that is gone go after an hour. restFor is the time in which then nothing
	// happens.
	restAfter, restFor = 80 * time.Minute, 2 * time.Hour
)

// result is what came of a schedule.
type result struct {
	problems []string
	effects  int
	hash     uint64 // of all effects, in order
	sum      uint64 // of all effects with their second, in any order
	virtual  time.Duration
	lines    []string
}

// options are how a schedule is run.
type options struct {
	trail bool          // keep a line for each effect
	links bool          // the agent keeps links to the logs of containers
	node  bool          // lives are whole nodes, see node_test.go
	syncs time.Duration // how often pods are looked at although nothing happened; syncFrequency
}

// withStorage reports whether a schedule has a CSI driver.
func withStorage(steps []step) bool {
	return slices.ContainsFunc(steps, func(s step) bool {
		return slices.ContainsFunc(s.args, func(a string) bool { return strings.HasPrefix(a, "csi=") })
	})
}

// run lives through a schedule in a bubble, on an empty machine in dir.
func run(t *testing.T, dir string, steps []step, o options) (r result) {
	clearDir(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(*testing.T) {
		m := newMachine(dir)
		m.trail, m.links, m.syncs = o.trail, o.links, o.syncs
		if o.node {
			if err := m.becomeNode(); err != nil {
				t.Fatal(err)
			}
		}
		if withStorage(steps) {
			if err := m.makeStorage(); err != nil {
				t.Fatal(err)
			}
			defer m.storage.stop()
		}
		release := m.guard()
		defer release()
		defer shiftWall(0)
		if err := m.through(steps); err != nil {
			m.mu.Lock()
			m.wrong("schedule: %v", err)
			m.mu.Unlock()
		}
		_ = m.doHeal(step{})
		m.disk.inject("ok")
		m.mu.Lock()
		l := m.live
		m.mu.Unlock()
		if l != nil {
			l.cancel()
			m.reap()
		}
		_, containers := m.look()
		for _, c := range containers {
			m.rt.Kill(c.GetId()) // its timers and files
		}
		r = result{problems: m.failed(), effects: m.effects, hash: m.hash, sum: m.sum, virtual: time.Since(m.began), lines: m.lines}
	})
	clearDir(dir)
	return r
}

// through goes through the steps, and then has everything converge and come to rest.
func (m *machine) through(steps []step) error {
	if err := m.start(); err != nil {
		return err
	}
	for _, s := range steps {
		if err := m.wait(s.after); err != nil {
			return err
		}
		synctest.Wait()
		m.judgeDelays()
		if len(m.failed()) > 0 {
			return nil
		}
		m.mu.Lock()
		if m.trail {
			m.lines = append(m.lines, fmt.Sprintf("%v -- %s", time.Since(m.began).Round(time.Millisecond), s))
		}
		m.mu.Unlock()
		if err := verbs[s.verb](m, s); err != nil {
			return err
		}
		m.rt.ForgetCalls()
	}
	if err := m.healAll(); err != nil {
		return err
	}
	if err := m.wait(convergeBound); err != nil {
		return err
	}
	synctest.Wait()
	m.judgeDelays()
	m.judgeRest()
	if len(m.failed()) > 0 {
		return nil
	}
	return m.quiet()
}

// quiet has those pods go that are never at rest, also of those that would begin anew, and of a whole
// node half of the others, and then nothing may happen.
func (m *machine) quiet() error {
	m.mu.Lock()
	var names []string
	for _, p := range m.pods {
		if p.wanted && (m.node && p.object.Name[len(p.object.Name)-1]%2 == 0 || !p.stable && (!p.over || p.static && p.rejected)) {
			names = append(names, p.object.Name)
		}
	}
	m.mu.Unlock()
	slices.Sort(names)
	for _, name := range names {
		if err := m.doRemove(step{args: []string{name}}); err != nil {
			return err
		}
	}
	if err := m.wait(restAfter + m.syncs); err != nil {
		return err
	}
	synctest.Wait()
	m.judgeRest()
	m.mu.Lock()
	before, lines := m.effects-m.api.beatsSoFar(), len(m.lines)
	m.api.rests()
	m.mu.Unlock()
	if err := m.wait(restFor); err != nil {
		return err
	}
	synctest.Wait()
	m.judgeRest()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.api.judgeRequests()
	if n := m.effects - m.api.beatsSoFar() - before; n > 0 {
		since := m.lines[min(lines, len(m.lines)):]
		m.wrong("%d effects at rest, the first: %v", n, since[:min(10, len(since))])
	}
	return nil
}

// judgeDelays looks for pods that do not run, although nothing is in their way.
func (m *machine) judgeDelays() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.judgeSecrets()
	m.judgeBeats()
	m.judgeKills()
	for _, file := range m.disk.unsafe() {
		m.wrong("the directory of %s was not synced after it was written", file)
	}
	m.judgeCalls()
	if m.troubled > 0 {
		for _, p := range m.pods {
			m.judgeVolumes(p, false)
		}
		return
	}
	for _, p := range m.pods {
		m.judgeProbes(p)
		m.judgeVolumes(p, time.Since(m.healed) > startBound && time.Since(p.trouble) > startBound && !m.hasFault(p))
		since := m.healed
		for _, t := range []time.Time{p.since, p.trouble} {
			if t.After(since) {
				since = t
			}
		}
		bound := startBound + p.grace
		if m.pressed(bound + pressureBound) {
			continue // new pods are not admitted
		}
		if !p.wanted || !p.stable || p.over || p.unwell() || m.hasFault(p) || m.lacks(p) || time.Since(since) < bound {
			continue
		}
		if _, asks := p.object.Spec.Containers[0].Resources.Limits[device]; asks {
			continue // there may be none left
		}
		if _, asks := p.object.Spec.Containers[0].Resources.Limits[v1.ResourceCPU]; asks {
			continue
		}
		for _, c := range p.object.Spec.Containers {
			if n := m.running(p.object.UID, c.Name); n != 1 {
				m.wrong("%d instances of %s/%s run %v after the last trouble", n, p.object.Name, c.Name, time.Since(since))
			}
		}
	}
}

// hasFault reports whether calls for a pod have a fault.
func (m *machine) hasFault(p *pod) bool {
	return slices.ContainsFunc(m.faults, func(f fault) bool { return f.pod == p.object.Name })
}

func (m *machine) running(uid types.UID, name string) (n int) {
	for _, i := range m.made {
		if i.uid == uid && i.name == name && m.runs(i) {
			n++
		}
	}
	return n
}

// judgeRest looks at a machine without troubles: nothing is left of pods that are
// gone, and the API server knows what is.
func (m *machine) judgeRest() {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, containers := m.look()
	sets := map[string]string{} // cpusets of what runs, by pod and container
	for _, p := range m.pods {
		if m.driver.has(p.object.UID) && (!p.wanted || p.over) {
			m.wrong("the claim of %s is prepared, and nobody uses it", p.object.Name)
		}
		if !p.wanted {
			for _, left := range m.leftOf(p.object.UID) {
				m.wrong("%s is not wanted, and there is %s", p.object.Name, left)
			}
			if p.gone.IsZero() {
				m.wrong("%s was to be deleted, and the API server has it still", p.object.Name)
			}
			continue
		}
		if p.stable && !p.over && p.object.Status.Phase != v1.PodRunning && !m.waits(p) {
			m.wrong("status of %s: %q, want Running", p.object.Name, p.object.Status.Phase)
		}
		m.judgeReady(p)
		m.judgeVolumes(p, true)
		m.judgeMemory(p)
		if p.static && p.over && p.terminated && p.object.Spec.RestartPolicy == v1.RestartPolicyAlways && !m.waits(p) {
			m.wrong("%s was ended for a shutdown, and is not back: %s %s", p.object.Name, p.object.Status.Phase, p.object.Status.Reason)
		}
		if p.stable && p.over && p.object.Spec.RestartPolicy == v1.RestartPolicyAlways && !m.waits(p) && !p.evicted && !p.terminated {
			m.wrong("status of %s: %s, and it never ends: %s %s", p.object.Name, p.object.Status.Phase, p.object.Status.Reason, p.object.Status.Message)
		}
	}
	for _, c := range containers {
		if i := m.instanceOf(c.GetId()); i != nil && c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			sets[m.pods[i.uid].object.Name+"/"+i.name] = m.status(i.id).GetResources().GetLinux().GetCpusetCpus()
		}
	}
	for _, i := range m.made {
		if i.cpus == "" || !m.runs(i) {
			continue
		}
		own := m.pods[i.uid].object.Name + "/" + i.name
		for name, cpus := range sets {
			if name != own && overlap(cpus, i.cpus) {
				m.wrong("CPUs %s of %s are also used by %s: %s", i.cpus, own, name, cpus)
			}
		}
	}
	m.judgeStorage()
	m.judgeNode()
	m.judgeGiven()
	m.judgeCollected(containers)
	for _, file := range m.filesOf() {
		m.wrong("left on the disk: %s", file)
	}
}

// waits reports whether a pod may be without what it asks for.
func (m *machine) waits(p *pod) bool {
	limits := p.object.Spec.Containers[0].Resources.Limits
	_, devices := limits[device]
	_, cpus := limits[v1.ResourceCPU]
	return devices || cpus
}

// filesOf lists files and directories that bear the UID of a pod that is not wanted.
func (m *machine) filesOf() (out []string) {
	_ = filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it went meanwhile
		}
		if m.disk.mayHave(d.Name()) {
			return nil
		}
		for _, f := range strings.FieldsFunc(d.Name(), func(r rune) bool { return r == '_' || r == '.' }) {
			if p := m.pods[types.UID(f)]; p != nil && !p.wanted {
				out = append(out, strings.TrimPrefix(path, m.dir)+" of "+p.object.Name)
				if d.IsDir() {
					return fs.SkipDir
				}
			}
		}
		return nil
	})
	return out
}

// cpuList reads a cpuset.
func cpuList(s string) (out []int) {
	for _, f := range strings.Split(s, ",") {
		from, to, isRange := strings.Cut(f, "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		b := a
		if isRange {
			b, _ = strconv.Atoi(to)
		}
		for n := a; n <= b; n++ {
			out = append(out, n)
		}
	}
	return out
}
