package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent"
	agentcsi "github.com/nodewright/nodewright/agent/csi"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/dra"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/gc"
	nodeblock "github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/statusmgr"
)

var compare = strings.Compare

// syncFrequency is ten times what it is by default: what happens shall be seen for
// itself and not at the next look at everything, and a week of looks takes long. Most seeds
// have rareSyncs, which come later than anything may take: startBound and convergeBound.
const (
	syncFrequency = 10 * time.Minute
	rareSyncs     = 30 * time.Minute
)

// errDead is what a process that was killed gets of everything that it still does.
var errDead = errors.New("sim: the agent was killed")

// life is one process of the agent, from its start to its end or its violent
// death. After that, nothing that it does has an effect.
type life struct {
	m       *machine
	agent   *agent.Agent  // nil until a whole node is made
	made    chan struct{} // closed when the agent is
	offers  offers
	sources []*source // none, of a whole node
	cache   *cache
	csi     *agentcsi.Part // nil without storage
	cancel  context.CancelFunc
	ctx     context.Context
	ended   chan error
	died    chan struct{} // closed at its violent death
	began   time.Time
	spoken  time.Time // when it first heard of the API server; machine.mu guards it

	evictions explainer             // nil until a whole node is made
	has       *nodeGiven            // as well
	pressed   map[string]*pressedBy // by memory and disk; machine.mu guards it

	mu     sync.Mutex
	dead   bool
	killAt int // effects until its death; 0: it lives
	events context.CancelFunc
}

// offers take plugins of this process.
type offers struct {
	devices func(ctx context.Context, resource string, p devicemgr.Plugin) error
	driver  func(name, instance string, d dra.Driver) error
}

func newLife(m *machine) (*life, error) {
	l := &life{m: m, began: time.Now(), ended: make(chan error, 1), died: make(chan struct{}), made: make(chan struct{}), pressed: map[string]*pressedBy{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if m.node {
		return l, nil // begin makes it: that writes to the disk
	}
	defer close(l.made)
	l.sources = []*source{
		{l: l, static: true, news: make(chan struct{}, 1), given: map[types.UID]given{}},
		{l: l, news: make(chan struct{}, 1), given: map[types.UID]given{}},
	}
	parts, err := l.parts()
	if err != nil {
		return nil, err
	}
	volumes, wakes, err := l.makeVolumes()
	if err != nil {
		return nil, err
	}
	parts = append(parts, wakes)
	if l.csi != nil {
		parts = append(parts, l.csi)
	}
	l.agent, err = agent.New(agent.Config{
		Node: nodeblock.Machine{Name: "n1", IPs: []string{"192.0.2.7"}, Capacity: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("4Gi"), v1.ResourcePods: resource.MustParse("110"),
		}},
		Paths:   agent.Paths{Root: m.root(), PodLogs: m.logs(), ContainerLogs: cmp.Or(m.containerLogs(), "-")},
		Runtime: &gate{Runtime: m.rt, l: l}, Images: agent.Images{Service: &gate{Runtime: m.rt, l: l}},
		Sources: []podmgr.Source{l.sources[0], l.sources[1]},
		Volumes: agent.VolumeConfig{Manager: volumes},
		Pods:    agent.Pods{SyncFrequency: cmp.Or(m.syncs, syncFrequency)},
		DNS:     agent.DNS{ResolvConf: "-"}, Status: agent.Status{Sink: sink{l}}, Parts: parts,
	})
	return l, err
}

// parts are those of every node, over the machine's disk.
func (l *life) parts() ([]part.Part, error) {
	m := l.m
	store := func(name string) part.Store { return part.OpenStore(filepath.Join(m.root(), name), nil) }
	rt := &gate{Runtime: m.rt, l: l}
	var err error
	devs, err := devicemgr.New(devicemgr.Config{Store: store("devices"), Machine: node()})
	if err != nil {
		return nil, err
	}
	var out []part.Part
	add := func(p part.Part, e error) {
		err = errors.Join(err, e)
		out = append(out, p)
	}
	st, e := pressure.NewStats(pressure.StatsConfig{NodeName: "n1", Runtime: rt, Images: rt, RootDir: m.root(), LogDir: m.logs(), PodsCgroup: pressure.NoCgroup})
	add(st, e)
	gc := pressure.CollectionConfig{
		Runtime: rt, Images: rt, Store: store("imagegc"), PodLogsDir: m.logs(), ContainerLogsDir: m.containerLogs(),
		ImagePolicy: &gc.ImagePolicy{High: 100, Low: 99}, // however full the disk of this machine is
	}
	gc.Logs.Poll, gc.Logs.Longest = true, time.Hour // the kernel is no part of a bubble, and containers write next to nothing
	co, e := pressure.NewCollection(gc)
	add(co, e)
	us, e := resources.NewUserNamespaces(resources.UserNamespacesConfig{Store: store("userns")})
	add(us, e)
	re, e := resources.NewResize(resources.ResizeConfig{Store: store("grants")})
	add(re, e)
	de, e := resources.NewDevices(resources.DevicesConfig{Manager: devs})
	add(de, e)
	pl, e := resources.NewPlacement(resources.PlacementConfig{
		Fit:     fit.PlacementConfig{Machine: node(), CPUPolicy: fit.CPUStatic, ReservedCPUs: cpumgr.Reservation{CPUs: numa.CPUs(0)}},
		Runtime: rt, Store: store("placement"),
	})
	add(pl, e)
	lookup := &resources.ClaimLookup{}
	held, e := dra.New(dra.Config{Store: store("claims"), Claims: lookup, Boot: m.driver.bootID()})
	if e != nil {
		return nil, e
	}
	cl, e := resources.NewClaims(resources.ClaimsConfig{Manager: held, Lookup: lookup})
	add(cl, e)
	l.offers = offers{devs.Offer, held.Offer}
	return out, err
}

// node is a machine of 8 CPUs without siblings on one NUMA node.
func node() numa.Machine { return numa.Uniform(1, 1, 8, 1, 4<<30) }

func (l *life) begin() {
	go func() { l.ended <- l.run() }()
	go func() {
		if l.ready() {
			go l.m.driver.come(l)
			go l.m.storage.come(l)
			l.m.plugin.come(l)
		}
	}()
}

// run is the process, from its beginning to its end.
func (l *life) run() error {
	if l.m.node {
		return l.runNode()
	}
	return l.agent.Run(l.ctx)
}

// ready waits until the agent is, and reports whether it lives.
func (l *life) ready() bool {
	select {
	case <-l.made:
	case <-l.ctx.Done():
		return false
	}
	select {
	case <-l.agent.Ready():
		return true
	case <-l.ctx.Done():
		return false
	}
}

// isMade reports whether the agent of a life is.
func (l *life) isMade() bool {
	select {
	case <-l.made:
		return true
	default:
		return false
	}
}

// kill ends the process between two effects.
func (l *life) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.die()
}

// die is kill. l.mu is held.
func (l *life) die() {
	if !l.dead {
		l.dead = true
		l.cancel()
		close(l.died)
	}
}

func (l *life) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// effect is asked before each effect of the process on anything outside of it.
func (l *life) effect(what, target string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return errDead
	}
	if l.killAt > 0 {
		if l.killAt--; l.killAt == 0 {
			l.die()
			return errDead
		}
	}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.m.note(what, target)
	return nil
}

// gate is what calls of this life pass.
func (l *life) gate() *gate { return &gate{Runtime: l.m.rt, l: l} }

func (l *life) tell() {
	for _, s := range l.sources {
		select {
		case s.news <- struct{}{}:
		default:
		}
	}
}

// source names the pods of one of the two sources.
type source struct {
	l      *life
	static bool
	news   chan struct{}
	given  map[types.UID]given
}

// given is the copy of a pod that a source has given to its agent.
type given struct{ of, copy *v1.Pod }

// copyOf is a copy of a pod, the same one while the pod is: as of the objects of a watch,
// the agent has it by itself. Those of manifests are read anew, and completed in place.
func (s *source) copyOf(o *v1.Pod) *v1.Pod {
	if s.static {
		return o.DeepCopy()
	}
	if g := s.given[o.UID]; g.of == o {
		return g.copy
	}
	s.given[o.UID] = given{of: o, copy: o.DeepCopy()}
	return s.given[o.UID].copy
}

func (s *source) Name() string {
	if s.static {
		return "file"
	}
	return podmeta.SourceAPI
}

func (s *source) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	for {
		s.l.m.mu.Lock()
		silent := !s.static && s.l.m.apiDown
		s.l.m.mu.Unlock()
		if !silent && !s.l.isDead() {
			snap := s.l.m.snapshot(s.static, s.copyOf)
			if !s.static {
				s.l.cache.hear(snap.ConfigMaps, snap.Secrets)
			}
			deliver(snap)
			s.l.m.mu.Lock()
			if s.l.spoken.IsZero() && !s.static {
				s.l.spoken = time.Now()
			}
			s.l.m.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.news:
		}
	}
}

// sink is the API server as it hears of statuses.
type sink struct{ l *life }

// shown is a status in a word for each container.
func shown(name string, st v1.PodStatus) string {
	out := name + " " + string(st.Phase)
	for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
		state := "running"
		switch {
		case c.State.Waiting != nil:
			state = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			state = fmt.Sprintf("%s(%d)", c.State.Terminated.Reason, c.State.Terminated.ExitCode)
		}
		out += fmt.Sprintf(" %s=%s,%d", c.Name, state, c.RestartCount)
	}
	return out
}

var errNoAPI = errors.New("sim: no route to the API server")

func (s sink) Update(_ context.Context, o *v1.Pod, st v1.PodStatus) error {
	m := s.l.m
	m.mu.Lock()
	p := m.pods[o.UID]
	down := m.apiDown && p != nil && !p.static
	m.mu.Unlock()
	if down {
		return errNoAPI
	}
	if err := s.l.effect("status", shown(o.Name, st)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if p == nil || !p.gone.IsZero() {
		return statusmgr.ErrGone
	}
	if p.over && st.Phase != v1.PodSucceeded && st.Phase != v1.PodFailed {
		return nil
	}
	m.judgeStatus(p, st)
	now := *p.object
	now.Status = *st.DeepCopy()
	p.object = &now
	return nil
}

func (s sink) Delete(_ context.Context, o *v1.Pod) error {
	m := s.l.m
	m.mu.Lock()
	p := m.pods[o.UID]
	down := m.apiDown
	m.mu.Unlock()
	if down {
		return errNoAPI
	}
	if err := s.l.effect("delete", o.Name); err != nil {
		return err
	}
	m.mu.Lock()
	if p != nil && !p.static && p.gone.IsZero() {
		m.judgeDeletion(p)
		p.wanted, p.gone, p.deleted = false, time.Now(), true
	}
	m.mu.Unlock()
	s.l.tell()
	return nil
}
