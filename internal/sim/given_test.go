package sim

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/nodeagent"
)

// nodeGiven is who has what, as a whole node answers monitors (pod resources): it is what the node
// itself believes, and gives to the next pod or not.
type nodeGiven struct {
	devices devicemgr.AssignedDevices
	cpus    devicemgr.AssignedCPUs
	claims  devicemgr.PreparedClaims
}

func givenOf(f *nodeagent.Facts) *nodeGiven {
	return &nodeGiven{f.Devices.Need(), f.CPUs.Need(), f.Claims.Need()}
}

// given is that of the node that lives, or nil: it is not made yet. m.mu is held.
func (m *machine) given() *nodeGiven {
	if !m.node || m.live == nil {
		return nil
	}
	if !m.live.isMade() {
		return nil
	}
	return m.live.has
}

// eachContainer calls fn with the name of each container of a pod.
func eachContainer(o *v1.Pod, fn func(string)) {
	for _, list := range [][]v1.Container{o.Spec.InitContainers, o.Spec.Containers} {
		for i := range list {
			fn(list[i].Name)
		}
	}
}

// of lists what a pod has of devices, CPUs and claims.
func (g *nodeGiven) of(o *v1.Pod) (out []string) {
	eachContainer(o, func(c string) {
		for _, d := range g.devicesOf(o.UID, c) {
			out = append(out, "device "+d)
		}
		if cpus := g.cpus.Exclusive(o.UID, c); cpus.Len() > 0 {
			out = append(out, "CPUs "+cpus.String())
		}
		if len(o.Spec.ResourceClaims) > 0 && len(g.claims.Dynamic(o, c)) > 0 {
			out = append(out, "a claim")
		}
	})
	return out
}

func (g *nodeGiven) devicesOf(uid types.UID, container string) (out []string) {
	for _, h := range g.devices.Holdings(uid, container) {
		for _, d := range h.Devices {
			out = append(out, d.ID)
		}
	}
	return out
}

// judgeGivenBack looks at a pod that is over, or gone, for what it has still: the next one may
// be sent for that from now on. m.mu is held.
func (m *machine) judgeGivenBack(p *pod, how string) {
	g := m.given()
	if g == nil {
		return
	}
	if left := g.of(p.object); len(left) > 0 {
		m.wrong("%s %s, and has %s still", p.object.Name, how, strings.Join(left, ", "))
	}
}

// judgeGiven looks at rest at who has what. m.mu is held.
func (m *machine) judgeGiven() {
	g := m.given()
	if g == nil {
		return
	}
	owners := map[string]string{}
	for _, p := range m.pods {
		if !p.wanted || p.over {
			m.judgeGivenBack(p, "is gone or over")
			continue
		}
		eachContainer(p.object, func(c string) {
			for _, d := range g.devicesOf(p.object.UID, c) {
				if o := owners[d]; o != "" {
					m.wrong("device %s is said to be that of %s and of %s/%s", d, o, p.object.Name, c)
				}
				owners[d] = p.object.Name + "/" + c
			}
		})
		waits := p.object.Status.Phase == v1.PodPending || p.stable && m.running(p.object.UID, p.object.Spec.Containers[0].Name) == 0
		if what := p.asksFor(); what != "" && waits && m.hasRoomFor(p, what) {
			m.wrong("%s does not run, and there is enough %s for it: its status is %q", p.object.Name, what, p.object.Status.Phase)
		}
	}
}

// The amounts of the machine that pods may have for themselves: one CPU is the node's.
var scarce = map[v1.ResourceName]int64{device: deviceCount, v1.ResourceCPU: 7000}

// asks is how much of a resource a pod asks for: devices, or thousandths of a CPU. Sidecars and
// containers add up, and another init container counts if it asks for more than these.
func (p *pod) asks(what v1.ResourceName) (n int64) {
	amount := func(c v1.Container) int64 {
		q := c.Resources.Requests[what]
		if what == v1.ResourceCPU {
			return q.MilliValue()
		}
		return q.Value()
	}
	most, sidecars := int64(0), int64(0)
	for _, c := range p.object.Spec.InitContainers {
		if c.RestartPolicy != nil {
			sidecars += amount(c)
			most = max(most, sidecars)
		} else {
			most = max(most, sidecars+amount(c))
		}
	}
	for _, c := range p.object.Spec.Containers {
		n += amount(c)
	}
	return max(n+sidecars, most)
}

// asksFor is the scarce resource that a pod asks for, or "": no line has both.
func (p *pod) asksFor() v1.ResourceName {
	for _, what := range []v1.ResourceName{device, v1.ResourceCPU} {
		if p.asks(what) > 0 {
			return what
		}
	}
	return ""
}

// mayHave reports whether a pod may still have what it asks for: it was not heard to be over,
// or gone. m.mu is held.
func (m *machine) mayHave(p *pod) bool {
	for _, i := range m.made {
		if i.uid == p.object.UID && m.runs(i) {
			return true
		}
	}
	switch {
	case p.gone.IsZero():
		return !p.over || m.hasFault(p)
	case p.deleted:
		return false
	default: // its source does not name it any more, and nobody says when it is over
		return m.hasFault(p) || time.Since(p.gone) < m.knowledge(p)+p.grace+time.Minute
	}
}

// hasRoomFor reports whether the machine has what a pod asks for, beside those who may have
// some of it. Others have to make room for a critical pod. m.mu is held.
func (m *machine) hasRoomFor(p *pod, what v1.ResourceName) bool {
	left := scarce[what] - p.asks(what)
	for _, q := range m.pods {
		if q == p || q.asks(what) == 0 || !m.mayHave(q) || p.critical() && q.lesser(p) && q.wanted && !m.hasFault(q) {
			continue
		}
		left -= q.asks(what)
	}
	return left >= 0
}

// judgeRefusal looks at a status that says that a pod was rejected for lack of devices or
// CPUs: there is none for it, if no fault has affected any pod for long. m.mu is held.
func (m *machine) judgeRefusal(p *pod, st *v1.PodStatus) {
	if !m.node || p.over || st.Phase != v1.PodFailed || len(st.ContainerStatuses) > 0 {
		return
	}
	what := p.asksFor()
	if what == "" || !slices.Contains([]string{"OutOf" + string(what), "UnexpectedAdmissionError", "TopologyAffinityError"}, st.Reason) {
		return
	}
	if m.troubled > 0 || !m.downSince.IsZero() || time.Since(m.healed) < startBound || m.hasFault(p) {
		return
	}
	if m.hasRoomFor(p, what) {
		m.wrong("%s was rejected, and there is enough %s for it: %s: %s", p.object.Name, what, st.Reason, st.Message)
	}
}

// judgeUsers looks at the IDs that the sandbox of a pod with a user namespace of its own gets: no
// other pod has one of them. m.mu is held.
func (m *machine) judgeUsers(p *pod, conf *runtimeapi.PodSandboxConfig) {
	if p == nil || !p.ownUsers() {
		return
	}
	ids := conf.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions().GetUids()
	if len(ids) != 1 || ids[0].GetLength() == 0 {
		m.wrong("the sandbox of %s has no IDs of its own: %v", p.object.Name, ids)
		return
	}
	mine := [2]uint32{ids[0].GetHostId(), ids[0].GetLength()}
	for uid, r := range m.users {
		if q := m.pods[uid]; q != p && mine[0] < r[0]+r[1] && r[0] < mine[0]+mine[1] && m.hasBox(uid) {
			m.wrong("IDs from %d on of %s are also those of %s", mine[0], p.object.Name, q.object.Name)
		}
	}
	m.users[p.object.UID] = mine
}

// ownUsers reports whether a pod asks for a user namespace of its own.
func (p *pod) ownUsers() bool { return p.object.Spec.HostUsers != nil && !*p.object.Spec.HostUsers }

// hasBox reports whether a pod has a sandbox that is ready. m.mu is held.
func (m *machine) hasBox(uid types.UID) bool {
	for id, of := range m.boxes {
		if of == uid && m.boxReady(id) {
			return true
		}
	}
	return false
}
