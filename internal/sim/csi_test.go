package sim

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	agentcsi "github.com/nodewright/nodewright/agent/csi"
	"github.com/nodewright/nodewright/csi"
	"github.com/nodewright/nodewright/internal/csitest"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

const (
	csiName = "disk.example.com"
	// ownVolume is the value of csi in a pod's line that is a volume of its own; every other
	// one names a claim that pods share.
	ownVolume = "own"
	// csiTimeout is how long a call hangs that nobody heals: less than the agent waits.
	csiTimeout = 100 * time.Second
)

// storage is a CSI driver that outlives the agents, and the controller that attaches
// its volumes.
type storage struct {
	m      *machine
	driver *csitest.Driver

	mu       sync.Mutex
	wire     *bufconn.Listener
	down     bool
	lied     bool            // it said that something was done which was not
	away     map[string]bool // claims whose volumes are attached to another machine
	attached chan struct{}   // closed when one is attached here
}

// socket is where the driver is said to be; it is there, and nobody listens.
func (m *machine) socket() string { return filepath.Join(m.dir, "csi.sock") }

// makeStorage starts the driver.
func (m *machine) makeStorage() error {
	l, err := net.Listen("unix", m.socket())
	if err != nil {
		return err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		return err
	}
	s := &storage{m: m, away: map[string]bool{}, attached: make(chan struct{})}
	s.driver, err = csitest.Start(csitest.Config{
		Socket: m.socket(), Capabilities: []spec.NodeServiceCapability_RPC_Type{csitest.Stage}, Mounter: m.mounts, Fault: s.fault,
		Listen: func() (net.Listener, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.wire = bufconn.Listen(1 << 14)
			return s.wire, nil
		},
	})
	m.storage = s
	if m.api != nil {
		s.objects(m.api)
	}
	return err
}

// stop ends the driver.
func (s *storage) stop() {
	if s != nil {
		s.driver.Stop()
	}
}

func (s *storage) losePower() {
	if s != nil {
		_ = s.driver.Reboot()
	}
}

// dial connects a life to the driver.
func (s *storage) dial(ctx context.Context, _ string) (net.Conn, error) {
	s.mu.Lock()
	wire := s.wire
	s.mu.Unlock()
	return wire.DialContext(ctx)
}

// volumeCall is a request about a pod's volume.
type volumeCall interface {
	GetVolumeId() string
	GetTargetPath() string
}

// fault counts a call as an effect of the life, and returns the fault of the schedule for it.
func (s *storage) fault(method string, req proto.Message) csitest.Fault {
	m := s.m
	v, about := req.(interface{ GetVolumeId() string })
	if !about {
		return csitest.Fault{}
	}
	pod := ""
	if c, ok := req.(volumeCall); ok {
		pod = m.ownerOf(c.GetTargetPath())
	}
	m.mu.Lock()
	l := m.live
	m.mu.Unlock()
	if l == nil || l.effect(method, pod+v.GetVolumeId()[:1]) != nil {
		return csitest.Code(codes.Canceled)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.judge(method, v.GetVolumeId(), pod)
	for _, f := range m.faults {
		if (f.method != "*" && f.method != method) || (f.pod != "*" && f.pod != pod) {
			continue
		}
		switch f.mode {
		case "fail":
			return csitest.Code(codes.Internal)
		case "lost":
			return csitest.Fault{Err: errInjected, After: true}
		case "lie":
			s.lied = true
			return csitest.Fault{Lie: true}
		case "hang":
			over := make(chan struct{})
			go func() {
				defer close(over)
				select {
				case <-f.healed:
				case <-l.died:
				case <-time.After(csiTimeout):
				}
			}()
			return csitest.Fault{Hang: over, Err: errInjected, After: true}
		}
	}
	return csitest.Fault{}
}

// judge looks at a call before its effect. machine.mu is held.
func (s *storage) judge(method, volume, pod string) {
	m := s.m
	p := m.newest(pod)
	switch method {
	case "NodeStageVolume":
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.away[volume] {
			m.wrong("volume %s is staged while it is attached to another machine", volume)
		}
	case "NodePublishVolume":
		if p != nil && (p.deleted || p.takenBack) {
			m.wrong("volume %s is published for %s after its end", volume, pod)
		}
	case "NodeUnpublishVolume":
		if p != nil {
			p.takenBack = m.endKnown(p)
		}
		for _, i := range m.made {
			if p != nil && i.uid == p.object.UID && m.runs(i) {
				m.wrong("volume %s is taken from %s while %s runs", volume, pod, i.name)
			}
		}
	}
}

// come registers the driver with a life of the agent.
func (s *storage) come(l *life) {
	if s == nil {
		return
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Minute) {
		s.mu.Lock()
		down := s.down
		s.mu.Unlock()
		if down || l.csi.Registrar().Register(l.ctx, csiName, s.m.socket(), []string{"1.0.0"}) == nil {
			return
		}
		select {
		case <-l.ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// doCSI is down or up.
func (m *machine) doCSI(st step) error {
	s := m.storage
	if s == nil {
		return nil
	}
	down := st.arg(0) == "down"
	s.mu.Lock()
	was := s.down
	s.down = down
	s.mu.Unlock()
	if was == down {
		return nil
	}
	m.mu.Lock()
	m.trouble("csi", down)
	l := m.live
	m.mu.Unlock()
	if down {
		s.driver.Stop()
		if l != nil && l.isMade() {
			l.csi.Registrar().Deregister(csiName, m.socket())
		}
		return nil
	}
	err := s.driver.Restart()
	if l != nil && l.isMade() {
		go s.come(l)
	}
	return err
}

// doAttach is CLAIM here|elsewhere: no controller takes a volume away that the node says to
// be in use.
func (m *machine) doAttach(st step) error {
	s := m.storage
	if s == nil {
		return nil
	}
	name, away := st.arg(0), st.arg(1) == "elsewhere"
	m.mu.Lock()
	l := m.live
	m.mu.Unlock()
	if away && m.inUse(l, name) {
		return nil
	}
	s.mu.Lock()
	s.away[name] = away
	if !away {
		close(s.attached)
		s.attached = make(chan struct{})
	}
	s.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	s.attach()
	for _, p := range m.pods {
		if p.claim == name {
			p.trouble = time.Now()
		}
	}
	return nil
}

// isAway reports whether the volume of a pod's claim is attached to another machine.
func (s *storage) isAway(p *pod) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away[p.claim]
}

// healStorage has the driver and all volumes be there.
func (m *machine) healStorage() error {
	if m.storage == nil {
		return nil
	}
	for name := range m.storage.away {
		_ = m.doAttach(step{args: []string{name, "here"}})
	}
	return m.doCSI(step{args: []string{"up"}})
}

// Driver implements plugins.StorageCluster, as the methods below do.
func (s *storage) Driver(context.Context, string) (plugins.CSIDriver, error) {
	return plugins.CSIDriver{Name: csiName, AttachRequired: true, PodInfoOnMount: true, Persistent: true, Ephemeral: true, FSGroupPolicy: plugins.FSGroupNone}, nil
}

func (s *storage) Apply(context.Context, []plugins.CSINodeDriver, []string) error { return nil }

func (s *storage) Wait(ctx context.Context, a plugins.Attachment, note func(string)) (map[string]string, error) {
	_, name, _ := strings.Cut(string(a.Volume), "^")
	for {
		s.mu.Lock()
		away, news := s.away[name], s.attached
		s.mu.Unlock()
		if !away {
			return nil, nil
		}
		note("is attached to another machine")
		select {
		case <-news:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Resolve implements volumemgr.Claims: a claim's volume is named after it.
func (s *storage) Resolve(_ context.Context, _ *v1.Pod, v *v1.Volume) (*volumemgr.Spec, error) {
	if v.PersistentVolumeClaim == nil {
		return nil, fmt.Errorf("volume %s names no claim", v.Name)
	}
	name := v.PersistentVolumeClaim.ClaimName
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: csiName, VolumeHandle: name}
	pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	return &volumemgr.Spec{PersistentVolume: pv}, nil
}

// makeCSI makes the part for volumes of drivers.
func (l *life) makeCSI() (err error) {
	s := l.m.storage
	l.csi, err = agentcsi.New(agentcsi.Config{CSI: csi.Config{
		Root: l.m.root(), NodeName: "n1", Mounter: mounter{l}, Cluster: s, Dial: s.dial,
	}})
	return err
}

// addCSI gives a pod the volume of its line, and returns it.
func (p *pod) addCSI(value string) v1.Volume {
	out, name := v1.Volume{Name: "csi"}, "csi"
	if value == ownVolume {
		out.CSI = &v1.CSIVolumeSource{Driver: csiName}
	} else {
		name, p.claim = "pv-"+value, value
		out.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: value}
	}
	p.published = append(p.published, filepath.Join("volumes/kubernetes.io~csi", name, "mount"))
	return out
}

// judgePublished looks for volumes of drivers that a pod with containers does not have. m.mu
// is held.
func (m *machine) judgePublished(p *pod) {
	s := m.storage
	if s == nil || s.lied || len(p.published) == 0 {
		return
	}
	all := slices.Concat(slicesOf(s.driver.Published())...)
	for _, at := range p.published {
		at = filepath.Join(m.root(), "pods", string(p.object.UID), at)
		if !slices.Contains(all, at) || len(m.mounts.below(at)) == 0 {
			m.wrong("%s runs without its volume %s", p.object.Name, strings.TrimPrefix(at, m.dir))
		}
	}
}

func slicesOf(of map[string][]string) (out [][]string) {
	for _, v := range of {
		out = append(out, v)
	}
	return out
}

// judgeCalls looks at what the driver has to complain of. m.mu is held.
func (m *machine) judgeCalls() {
	if m.storage == nil || m.storage.lied { // what it said was done cannot be built upon
		return
	}
	for _, v := range m.storage.driver.Violations() {
		m.wrong("CSI: %s", v)
	}
}

// judgeStorage looks at what is staged and published at rest. m.mu is held.
func (m *machine) judgeStorage() {
	s := m.storage
	if s == nil || s.lied {
		return
	}
	published := s.driver.Published()
	for volume, paths := range published {
		for _, at := range paths {
			uid, _, _ := strings.Cut(strings.TrimPrefix(at, filepath.Join(m.root(), "pods")+"/"), "/")
			if p := m.pods[types.UID(uid)]; p == nil || !p.wanted {
				m.wrong("volume %s is still published at %s", volume, strings.TrimPrefix(at, m.dir))
			}
		}
	}
	for volume, at := range s.driver.Staged() {
		if len(published[volume]) == 0 {
			m.wrong("volume %s is still staged, and nobody has it", volume)
		}
		if _, err := os.Stat(at); err != nil {
			m.wrong("the place of volume %s is gone: %v", volume, err)
		}
	}
	for _, at := range m.mounts.below(filepath.Join(m.root(), "plugins")) {
		if !slices.Contains(stagedAt(s.driver.Staged()), at) {
			m.wrong("a mount is left at %s", strings.TrimPrefix(at, m.dir))
		}
	}
}

func stagedAt(of map[string]string) (out []string) {
	for _, at := range of {
		out = append(out, at)
	}
	return out
}

var _ mount.Mounter = (*mounts)(nil)
