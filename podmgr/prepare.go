package podmgr

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewright/nodewright/podmeta"
)

// Default sets in pod the defaults that an API server sets, with the values of the v1 API
// documentation. It is idempotent. A Manager calls it for all pods, except those of [API]
// sources.
func Default(pod *v1.Pod) {
	pod.Namespace = orDefault(pod.Namespace)
	setDefaults(pod)
}

// Validate returns the mistakes for which an API server would refuse the pod, as far as they
// matter to a node. References that only an API server can resolve are mistakes too. It returns
// at most 100 mistakes. The pod must have its defaults. A Manager refuses pods with mistakes,
// except those of [API] sources.
func Validate(pod *v1.Pod) field.ErrorList {
	errs := validatePod(pod)
	if pod.UID == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "uid"), ""))
	}
	return errs
}

// prepare defaults and validates the pods of a snapshot. An invalid pod becomes a problem, and
// its previous version stays in effect. It runs without m.mu, since thousands of pods would
// block all readers.
func (m *Manager) prepare(source string, kind Kind, snap Snapshot) Snapshot {
	// An API server has done both already.
	if kind == API {
		return snap
	}
	var good, bad []*v1.Pod
	mistakes := map[*v1.Pod]field.ErrorList{}
	had := m.givenBy(source)
	for i, p := range snap.Pods {
		if p == nil {
			snap.Problems = append(snap.Problems, Problem{Source: source, Reason: fmt.Sprintf("pod %d is nil", i)})
			continue
		}
		// The same pod as before is prepared, and readers share it.
		if had[p] {
			good = append(good, p)
			continue
		}
		Default(p)
		if errs := Validate(p); len(errs) > 0 {
			bad, mistakes[p] = append(bad, p), errs
			continue
		}
		good = append(good, p)
	}
	snap.Pods = good
	if len(bad) == 0 {
		return snap
	}
	// The names are those with defaults, so a broken version finds the one before.
	before := m.podsOf(source)
	for _, p := range bad {
		old := before[podmeta.FullName(p.Namespace, p.Name)]
		if old != nil {
			// A copy, since merge annotates what it is
			// handed; the original is shared with readers.
			snap.Pods = append(snap.Pods, old.DeepCopy())
		}
		for _, e := range mistakes[p] {
			snap.Problems = append(snap.Problems, Problem{
				Source: source, Pod: p.Namespace + "/" + p.Name, Field: e.Field, Reason: e.ErrorBody(), Kept: old != nil,
			})
		}
	}
	return snap
}

// givenBy returns the pods that a source has delivered and that the Manager keeps: the pods in
// effect, and the pods whose name or UID another pod has.
func (m *Manager) givenBy(source string) map[*v1.Pod]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.sources[source]
	had := make(map[*v1.Pod]bool, len(st.given)+len(st.waiting))
	for _, p := range st.given {
		had[p] = true
	}
	for _, p := range st.waiting {
		had[p] = true
	}
	return had
}

// podsOf returns the pods of a source by full name. The caller owns the map; the pods are
// shared.
func (m *Manager) podsOf(source string) map[string]*v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]*v1.Pod{}
	for _, p := range m.sources[source].pods {
		out[podmeta.FullName(p.Namespace, p.Name)] = p
	}
	return out
}
