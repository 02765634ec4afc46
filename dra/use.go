package dra

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Queries about prepared claims: CDI devices for the runtime, devices for the podresources
// service, and health for the status. They only read memory.

// serves reports whether a device belongs to a request of its claim. The request "" stands for
// all requests. A device of "main/sub" also belongs to "main".
func (d Device) serves(request string) bool {
	return request == "" || len(d.Requests) == 0 || slices.ContainsFunc(d.Requests, func(r string) bool {
		base, _, _ := strings.Cut(r, "/")
		return r == request || base == request
	})
}

// Attachment returns the CDI devices of a container, without duplicates. They are sorted by the
// pod's claims, the drivers' names, and the order in the drivers' answers, which is the same
// after a restart. The error is [ErrNotPrepared], or says that a claim is not generated yet.
// After an error the container must not start.
func (m *Manager) Attachment(pod *v1.Pod, container string) ([]string, error) {
	wants, err := wantsOf(pod)
	if err != nil {
		return nil, err
	}
	var names []string
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range wants {
		for _, u := range w.uses {
			if u.Container != container {
				continue
			}
			name := pod.Namespace + "/" + w.claim
			c := m.byName[name]
			// The claim may have been unprepared since Prepare, and its devices allocated to
			// others.
			if c == nil || c.pods[pod.UID] == nil || !c.prepared() {
				return nil, &ClaimError{name, ErrNotPrepared}
			}
			for _, d := range c.serving(u.Request) {
				for _, id := range d.CDI {
					if !slices.Contains(names, id) {
						names = append(names, id)
					}
				}
			}
		}
	}
	return names, nil
}

// serving returns the devices for a request, or for all requests if it is "". Manager.mu is held.
// The devices are shared and read-only.
func (c *claim) serving(request string) []HeldDevice {
	var list []HeldDevice
	for _, name := range c.drivers() {
		for _, d := range c.parts[name].devices {
			if d.serves(request) {
				list = append(list, HeldDevice{name, d})
			}
		}
	}
	return list
}

// Holding is a claim of a container, with the container's devices from it.
type Holding struct {
	Namespace, Claim string
	Devices          []HeldDevice
}

// HeldDevice is a device that a container has.
type HeldDevice struct {
	Driver string
	Device
}

// Holdings returns the claims of a container, sorted by name: the dynamic resources of the
// podresources service. A claim may have no devices for the container.
func (m *Manager) Holdings(uid types.UID, container string) []Holding {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Holding
	for _, c := range m.of(uid) {
		h := Holding{Namespace: c.Namespace, Claim: c.Name}
		mine := false
		for _, u := range c.pods[uid].Uses {
			mine = mine || u.Container == container
		}
		for _, d := range c.serving("") {
			if slices.ContainsFunc(c.pods[uid].Uses, func(u Use) bool { return u.Container == container && d.serves(u.Request) }) {
				h.Devices = append(h.Devices, d)
			}
		}
		if mine {
			out = append(out, h)
		}
	}
	return out
}

// Health returns the health of a container's devices for its status (KEP-4680): an entry for each
// of its claims and requests, sorted by name. A device without a valid report is Unknown. Entries
// without devices are omitted.
func (m *Manager) Health(uid types.UID, container string) []v1.ResourceStatus {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []v1.ResourceStatus
	for _, c := range m.of(uid) {
		for _, u := range c.pods[uid].Uses {
			// A claim for extended resources has no name in the spec that an entry could show.
			if u.Container != container || u.Claim == "" {
				continue
			}
			st := v1.ResourceStatus{Name: v1.ResourceName("claim:" + u.Claim)}
			// The status shows "main/sub" under its own name, with the devices of all
			// alternatives of "main".
			request, _, _ := strings.Cut(u.Request, "/")
			if request != "" {
				st.Name = v1.ResourceName(fmt.Sprintf("claim:%s/%s", u.Claim, u.Request))
			}
			for _, d := range c.serving(request) {
				h := m.healthOf(d, now)
				if !slices.ContainsFunc(st.Resources, func(x v1.ResourceHealth) bool { return x.ResourceID == h.ResourceID }) {
					st.Resources = append(st.Resources, h)
				}
			}
			if len(st.Resources) > 0 {
				out = append(out, st)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b v1.ResourceStatus) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
