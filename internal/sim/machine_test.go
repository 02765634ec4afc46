package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/podmgr"
)

// maxProblems is how many problems of a run are told: the first says the most.
const maxProblems = 6

// secondImage is what an edit in place changes an image to, and back.
const secondImage = "localhost/app:2"

// machine is what outlives the agents of one run: the runtime with its
// containers, the disk, the API server, the device plugin, and the truth about all of them.
type machine struct {
	rt      *critest.Runtime
	dir     string
	disk    *disk
	plugin  *plugin
	driver  *driver
	mounts  *mounts
	storage *storage // nil where no pod has a volume of a driver
	began   time.Time
	booted  time.Time // mu guards it
	trail   bool      // keeps a line for each effect
	links   bool      // see options
	node    bool      // see options
	api     *api      // nil without whole nodes
	needs   *needs    // nil without whole nodes
	kernel  *kernel   // as well
	logind  *logind   // as well
	syncs   time.Duration

	mu         sync.Mutex
	pods       map[types.UID]*pod
	names      map[string]types.UID // the newest pod of each name
	next       int                  // of UIDs
	made       map[string]*instance // containers by ID
	past       map[string]*instance // those that ended, and were followed by another one that was started
	boxes      map[string]types.UID // sandboxes by ID
	faults     []fault
	kills      []kill
	downSince  time.Time // when the machine began to go down; zero if it does not
	shutdowns  int
	calledOff  time.Time // when a shutdown was last
	down       bool      // the runtime
	apiDown    bool
	apiBad     bool      // the API server is there, and of little use
	apiHealed  time.Time // when it came back
	diskHealed time.Time // when it was well again
	healed     time.Time // when the last trouble ended that affects all pods
	troubled   int       // troubles of that kind that are there
	well       time.Time // when the last of them ended that was more than an agent's end
	live       *life
	problems   []string
	allocated  bool // the agent has given somebody a device, and knows from then on that there are some
	effects    int
	minute     int    // the last one that had an effect, since the beginning
	busy       int    // effects in it
	hash, sum  uint64 // of all effects, in order and in any
	hashed     []byte // what went into them last
	lines      []string
	unheal     map[string]bool
	wall       time.Duration           // how far the clock of the machine is from the right time
	objects    map[string]*object      // ConfigMaps and Secrets, by kind and name
	users      map[types.UID][2]uint32 // first ID and number of them, of pods with a user namespace of their own
	secretive  bool                    // some pod has a secret
	looked     *looked                 // where judgeSecrets found none
}

// newMachine makes a machine in an empty directory.
func newMachine(dir string) *machine {
	m := &machine{
		rt: critest.New(), dir: dir, began: time.Now(), booted: time.Now(), healed: time.Now(),
		pods: map[types.UID]*pod{}, names: map[string]types.UID{}, made: map[string]*instance{}, past: map[string]*instance{}, boxes: map[string]types.UID{}, unheal: map[string]bool{},
		mounts: &mounts{}, objects: map[string]*object{}, users: map[types.UID][2]uint32{},
	}
	m.rt.AddImage(image, secondImage)
	m.disk = newDisk(m)
	m.plugin = newPlugin(m)
	m.driver = newDriver(m)
	return m
}

func (m *machine) root() string { return filepath.Join(m.dir, "root") }
func (m *machine) logs() string { return filepath.Join(m.dir, "logs") }

// containerLogs is where links to logs are, or "".
func (m *machine) containerLogs() string {
	if !m.links {
		return ""
	}
	return filepath.Join(m.dir, "containers")
}

// wrong notes that an invariant does not hold. m.mu is held.
func (m *machine) wrong(format string, args ...any) {
	if len(m.problems) >= maxProblems {
		return
	}
	m.problems = append(m.problems, fmt.Sprintf("%v: ", time.Since(m.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

func (m *machine) failed() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.problems)
}

// note counts an effect. m.mu is held.
func (m *machine) note(what, target string) {
	m.effects++
	if m.api != nil && isBeat(target) {
		m.api.beats++
	}
	if now := int(time.Since(m.began) / time.Minute); now != m.minute {
		m.minute, m.busy = now, 0
	}
	if m.busy++; m.busy == busyBound {
		m.wrong("%d effects within a minute, the latest %s %s", busyBound, what, target)
	}
	m.hashed = binary.LittleEndian.AppendUint64(m.hashed[:0], uint64(time.Since(m.began)/time.Second))
	m.hashed = append(append(append(m.hashed, what...), ' '), target...)
	h := fnv.New64a()
	_, _ = h.Write(m.hashed)
	m.sum += h.Sum64()
	m.hashed = binary.LittleEndian.AppendUint64(m.hashed, m.hash)
	_, _ = h.Write(m.hashed[len(m.hashed)-8:])
	m.hash = h.Sum64()
	if m.trail {
		m.lines = append(m.lines, fmt.Sprintf("%v %s %s", time.Since(m.began).Round(time.Millisecond), what, target))
	}
}

// snapshot is what a source names at the moment, in the copies that it gives away.
func (m *machine) snapshot(static bool, copyOf func(*v1.Pod) *v1.Pod) (s podmgr.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pods {
		if p.static == static && p.gone.IsZero() {
			s.Pods = append(s.Pods, copyOf(p.object))
			if len(p.object.Spec.ResourceClaims) > 0 {
				s.ResourceClaims = append(s.ResourceClaims, claimFor(p.object))
			}
		}
	}
	if !static {
		s.ConfigMaps, s.Secrets = m.objectsFor()
	}
	slices.SortFunc(s.Pods, func(a, b *v1.Pod) int { return compare(a.Name, b.Name) })
	return s
}

// tell has the agent that lives hear of its sources again.
func (m *machine) tell() {
	m.publish()
	m.mu.Lock()
	l := m.live
	m.mu.Unlock()
	if l != nil {
		l.tell()
	}
}

// newest is the newest pod of a name, or nil.
func (m *machine) newest(name string) *pod { return m.pods[m.names[name]] }

func (m *machine) uid() types.UID {
	m.next++
	return types.UID(fmt.Sprintf("00000000-0000-4000-a000-%012d", m.next))
}

// look is the truth about the runtime.
func (m *machine) look() (boxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) {
	boxes, _ = m.rt.ListPodSandbox(context.Background(), nil)
	containers, _ = m.rt.ListContainers(context.Background(), nil)
	return boxes, containers
}

// trouble begins or ends something that affects all pods. m.mu is held.
func (m *machine) trouble(what string, on bool) {
	if was := m.unheal[what]; was == on {
		return
	}
	m.unheal[what] = on
	if on {
		m.troubled++
		return
	}
	m.troubled--
	m.healed = time.Now()
	if what == "disk" {
		m.diskHealed = time.Now()
	}
	if what != "no agent" {
		m.well = time.Now()
	}
}

// start begins a life, unless there is one.
func (m *machine) start() error {
	m.mu.Lock()
	l := m.live
	m.mu.Unlock()
	if l != nil {
		return nil
	}
	m.disk.begins()
	l, err := newLife(m)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.live = l
	if m.node {
		m.forgetUntold()
	}
	m.trouble("no agent", false)
	m.healed = time.Now()
	m.mu.Unlock()
	l.begin()
	return nil
}

// forgetUntold has the restart counts of static pods not be held against a whole node that
// begins: it may begin before it hears of their mirrors, as the kubelet does. m.mu is held.
func (m *machine) forgetUntold() {
	for _, p := range m.pods {
		if p.static {
			clear(p.counts)
			clear(p.counted)
		}
	}
}

// reap waits for the end of a life that ends.
func (m *machine) reap() {
	m.mu.Lock()
	l := m.live
	m.trouble("no agent", true)
	m.mu.Unlock()
	if l == nil {
		return
	}
	err := <-l.ended
	killed := l.isDead()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live = nil
	if killed {
		m.forgetUnpublished()
	}
	m.judgeSecrets()
	if err != nil && !killed {
		m.wrong("agent ended with an error: %v", err)
	}
}

// restartAfter is how long the agent's supervisor waits before it starts it again.
const restartAfter = time.Second

// wait lets time pass. An agent that dies meanwhile is started again.
func (m *machine) wait(d time.Duration) error {
	for end := time.Now().Add(d); ; {
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		m.mu.Lock()
		l := m.live
		m.mu.Unlock()
		if l == nil {
			time.Sleep(left)
			return nil
		}
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-l.died:
			t.Stop()
			m.reap()
			time.Sleep(restartAfter)
			if err := m.start(); err != nil {
				return err
			}
		}
	}
}

// guard has the disk's steps looked at until release is called.
func (m *machine) guard() (release func()) { return durable.Guard(m.dir, m.disk.ask) }

func deletedAt(o *v1.Pod, at time.Time) *v1.Pod {
	o = o.DeepCopy()
	now := metav1.NewTime(at)
	o.DeletionTimestamp = &now
	o.DeletionGracePeriodSeconds = o.Spec.TerminationGracePeriodSeconds
	return o
}

// clear empties a directory of a machine.
func clearDir(dir string) { _ = os.RemoveAll(dir) }
