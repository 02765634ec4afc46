package statusmgr

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Republish says that something other than the status of a pod has changed
// that its publication waits for: the object that Config.PublishAs gives for it
// appeared or is another one, Config.CouldHaveRunning or Config.Reclaimed say
// something else. What has to be published then, is.
func (m *Manager) Republish(uid types.UID) {
	m.mu.Lock()
	e := m.entries[uid]
	var pod *v1.Pod
	if e != nil {
		pod = e.pod
	}
	m.mu.Unlock()
	if pod == nil {
		return
	}
	as, ok := m.cfg.PublishAs(pod)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[uid] != e {
		return
	}
	if ok && as.UID != e.shownAs && !e.restored {
		e.published = 0
	}
	e.asked, e.homeless = true, false
	m.enqueue(e)
}

// Reconcile compares the status that the world shows of a pod with the one
// that was published, and publishes it again if somebody changed it. It tells
// whether that is so. Parts of seconds, and what is others' to say, do not
// count. The pod is kept and must not be changed.
func (m *Manager) Reconcile(pod *v1.Pod) (again bool) {
	as, ok := m.cfg.PublishAs(pod)
	if !ok || as.Status.Phase == "" {
		return false // nobody shows it
	}
	shows := as.Status.DeepCopy()
	normalize(pod, shows)
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[pod.UID]
	if e == nil || e.restored {
		return false
	}
	e.pod = pod
	if e.shown == nil || e.version > e.published || m.queue.busy[pod.UID] || saysSame(e.shown, shows) {
		return false
	}
	e.published, e.unsure = 0, true
	m.enqueue(e)
	return true
}
