package sim

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// verbs are what may happen, by the second word of a line.
var verbs map[string]func(*machine, step) error

func init() {
	verbs = map[string]func(*machine, step) error{
		"pod":      (*machine).doPod,      // NAME SOURCE ...: a pod comes; see newPod
		"edit":     (*machine).doEdit,     // NAME: its image changes; a static pod is another one then
		"remove":   (*machine).doRemove,   // NAME: a manifest goes, or a deletion is asked for
		"forget":   (*machine).doForget,   // NAME: the API server does not know it any more
		"back":     (*machine).doBack,     // NAME: a manifest comes back as it was
		"exit":     (*machine).doExit,     // NAME CONTAINER CODE: a process ends
		"sandbox":  (*machine).doSandbox,  // NAME: a sandbox dies
		"agent":    (*machine).doAgent,    // kill, stop, start, or kill-at N: before the Nth effect from now
		"power":    (*machine).doPower,    // the machine loses power and comes back
		"call":     (*machine).doCall,     // METHOD fail|hang|lost POD|*, or lie for calls of a CSI driver
		"heal":     (*machine).doHeal,     // takes back all calls
		"runtime":  (*machine).doRuntime,  // down or up
		"events":   (*machine).doEvents,   // lost or kept
		"api":      (*machine).doAPI,      // down or up, and for whole nodes what api.inject has
		"disk":     (*machine).doDisk,     // fail, hang or ok
		"plugin":   (*machine).doPlugin,   // down or up
		"probe":    (*machine).doProbe,    // NAME ready|live|start ok|no|hang|mute|broken
		"csi":      (*machine).doCSI,      // down or up: the driver
		"attach":   (*machine).doAttach,   // CLAIM here|elsewhere
		"resize":   (*machine).doResize,   // NAME SIZE: its memory, in Mi
		"wall":     (*machine).doWall,     // DURATION: how far the machine's clock is from the right time
		"object":   (*machine).doObject,   // config|secret NAME change|gone
		"oom":      (*machine).doOOM,      // NAME CONTAINER: the kernel kills its process
		"shutdown": (*machine).doShutdown, // [off DURATION]: the machine goes down in order and comes back, or that is called off
		"uses":     (*machine).doUses,     // NAME memory|disk MI, of whole nodes
		"clock":    (*machine).doClock,    // DURATION: how far the runtime's is from the agent's
	}
}

func (m *machine) doPod(s step) error {
	m.mu.Lock()
	if p := m.newest(s.arg(0)); p != nil && p.gone.IsZero() {
		m.mu.Unlock()
		return nil
	}
	uid := m.uid()
	p, err := newPod(s.args, string(uid))
	if err == nil {
		p.wanted, p.since, p.trouble, p.came = true, time.Now(), time.Now(), time.Now()
		m.pods[uid], m.names[p.object.Name] = p, uid
		if !p.static {
			m.addVolumes(p, s.args[2:])
		}
	}
	m.mu.Unlock()
	m.tell()
	return err
}

func (m *machine) doEdit(s step) error {
	m.mu.Lock()
	p := m.newest(s.arg(0))
	if p == nil || !p.wanted {
		m.mu.Unlock()
		return nil
	}
	o := p.object.DeepCopy()
	if c := &o.Spec.Containers[0]; c.Image == image {
		c.Image = secondImage
	} else {
		c.Image = image
	}
	if p.static {
		p.wanted, p.gone, p.since = false, time.Now(), time.Now()
		o.UID, o.Status = m.uid(), v1.PodStatus{}
		now := *p
		now.counts, now.over, now.stopping, now.epoch = map[string]int32{}, false, time.Time{}, 0
		now.counted, now.deleted, now.takenBack, now.guessed, now.rejected, now.anew = map[string]counted{}, false, false, false, false, false
		p = &now
		m.pods[o.UID], m.names[o.Name] = p, o.UID
	}
	if !p.over || p.static {
		p.epoch++
	}
	p.object, p.wanted, p.gone, p.since, p.trouble = o, true, time.Time{}, time.Now(), time.Now()
	m.mu.Unlock()
	m.tell()
	return nil
}

func (m *machine) doRemove(s step) error {
	m.mu.Lock()
	if p := m.newest(s.arg(0)); p != nil && p.wanted {
		p.wanted, p.since = false, time.Now()
		if p.static || p.over { // an API server waits for nobody's end of a pod that it knows to be over
			p.gone = time.Now()
		} else {
			p.object = deletedAt(p.object, m.rightTime())
		}
	}
	m.mu.Unlock()
	m.tell()
	return nil
}

func (m *machine) doForget(s step) error {
	m.mu.Lock()
	if p := m.newest(s.arg(0)); p != nil && !p.static && p.gone.IsZero() {
		if p.wanted {
			p.wanted, p.since = false, time.Now()
		}
		p.gone = time.Now()
	}
	m.mu.Unlock()
	m.tell()
	return nil
}

func (m *machine) doBack(s step) error {
	m.mu.Lock()
	if p := m.newest(s.arg(0)); p != nil && p.static && !p.wanted {
		p.wanted, p.gone, p.since, p.trouble = true, time.Time{}, time.Now(), time.Now()
		p.epoch++
		p.over, p.guessed, p.rejected, p.anew = false, true, false, false
		if m.node { // its mirror went, with what was published
			clear(p.counts)
			clear(p.counted)
		}
	}
	m.mu.Unlock()
	m.tell()
	return nil
}

func (m *machine) doExit(s step) error {
	code, err := strconv.Atoi(s.arg(2))
	if err != nil {
		return fmt.Errorf("exit code %q: want a number", s.arg(2))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.newest(s.arg(0))
	for _, i := range m.made {
		if p != nil && i.uid == p.object.UID && i.name == s.arg(1) && m.runs(i) {
			p.trouble = time.Now()
			m.rt.Exit(i.id, int32(code))
		}
	}
	return nil
}

// stopBoxes ends sandboxes with all in them, as a crash does.
func (m *machine) stopBoxes(which func(*runtimeapi.PodSandbox) bool) {
	boxes, _ := m.look()
	for _, b := range boxes {
		if which(b) {
			_ = m.rt.StopPodSandbox(context.Background(), b.GetId())
		}
	}
}

func (m *machine) doSandbox(s step) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.newest(s.arg(0)); p != nil {
		p.trouble = time.Now()
		m.stopBoxes(func(b *runtimeapi.PodSandbox) bool { return b.GetMetadata().GetUid() == string(p.object.UID) })
	}
	return nil
}

func (m *machine) doAgent(s step) error {
	m.mu.Lock()
	l := m.live
	m.mu.Unlock()
	switch s.arg(0) {
	case "start":
		return m.start()
	case "kill":
		if l != nil {
			l.kill()
		}
	case "stop":
		if l != nil {
			l.cancel()
			m.reap()
		}
	case "kill-at":
		n, err := strconv.Atoi(s.arg(1))
		if err != nil || n < 1 {
			return fmt.Errorf("agent kill-at %q: want a number from 1", s.arg(1))
		}
		if l != nil {
			l.mu.Lock()
			l.killAt = n
			l.mu.Unlock()
		}
	}
	return nil
}

func (m *machine) doPower(step) error {
	m.mu.Lock()
	l := m.live
	m.mu.Unlock()
	if l != nil {
		l.kill()
		m.reap()
	}
	m.disk.losePower()
	m.turnOff()
	time.Sleep(restartAfter)
	return m.start()
}

// turnOff has all be gone that a boot of the machine has in memory.
func (m *machine) turnOff() {
	m.mu.Lock()
	l := m.live
	m.mu.Unlock()
	if l != nil {
		l.kill()
		m.reap()
	}
	m.driver.losePower()
	m.mounts.losePower()
	m.storage.losePower()
	m.mu.Lock()
	m.booted = time.Now()
	m.stopBoxes(func(*runtimeapi.PodSandbox) bool { return true })
	for _, p := range m.pods {
		p.trouble = time.Now()
	}
	m.mu.Unlock()
}

func (m *machine) doCall(s step) error {
	m.inject(s.arg(0), s.arg(1), s.arg(2))
	return nil
}

func (m *machine) doHeal(step) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heal()
	return nil
}

func (m *machine) doRuntime(s step) error {
	m.mu.Lock()
	m.down = s.arg(0) == "down"
	m.trouble("runtime", m.down)
	l, down := m.live, m.down
	m.mu.Unlock()
	if l != nil && down {
		l.endEvents()
	}
	return nil
}

func (m *machine) doEvents(s step) error {
	m.rt.LoseEvents(s.arg(0) == "lost")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble("events", s.arg(0) == "lost")
	return nil
}

func (m *machine) doAPI(s step) error {
	m.mu.Lock()
	was := m.apiDown || m.apiBad
	switch how := s.arg(0); {
	case how == "down" || how == "up":
		m.apiDown, m.apiBad = how == "down", false
	case m.api == nil: // an agent alone has no client of it
		m.mu.Unlock()
		return nil
	case !m.apiDown:
		m.apiBad = m.api.inject(how) || m.apiBad
	}
	m.trouble("api", m.apiDown || m.apiBad)
	if was && !m.apiDown && !m.apiBad {
		m.apiHealed = time.Now()
		m.api.heal()
	}
	if m.apiDown {
		m.api.cut()
	}
	m.mu.Unlock()
	m.tell()
	return nil
}

func (m *machine) doDisk(s step) error {
	m.disk.inject(s.arg(0))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble("disk", s.arg(0) != "ok")
	return nil
}

func (m *machine) doPlugin(s step) error {
	m.plugin.set(s.arg(0) == "down")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble("plugin", s.arg(0) == "down")
	return nil
}

func (m *machine) doClock(s step) error {
	d, err := time.ParseDuration(strings.TrimPrefix(s.arg(0), "+"))
	if err != nil {
		return fmt.Errorf("clock %q: want a duration", s.arg(0))
	}
	m.rt.SetClock(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble("clock", d != 0)
	return nil
}

// healAll ends every trouble.
func (m *machine) healAll() error {
	for _, line := range []string{"heal", "runtime up", "events kept", "api up", "disk ok", "plugin up", "clock 0s", "wall 0s"} {
		f := strings.Fields(line)
		if err := verbs[f[0]](m, step{verb: f[0], args: f[1:]}); err != nil {
			return err
		}
	}
	m.healProbes()
	m.healUses()
	m.healObjects()
	if err := m.healStorage(); err != nil {
		return err
	}
	m.mu.Lock()
	l := m.live
	m.mu.Unlock()
	if l != nil {
		l.mu.Lock()
		l.killAt = 0
		l.mu.Unlock()
	}
	return m.start()
}
