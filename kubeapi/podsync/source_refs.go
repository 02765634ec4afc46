package podsync

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// Ref names an object that a pod refers to.
type Ref struct {
	Kind      string // "ConfigMap", "Secret", "PersistentVolumeClaim", "PersistentVolume" or "ResourceClaim"
	Namespace string // "" of a PersistentVolume
	Name      string
}

const (
	kindConfigMap = "ConfigMap"
	kindSecret    = "Secret"
	kindClaim     = "PersistentVolumeClaim"
	kindVolume    = "PersistentVolume"
	kindResource  = "ResourceClaim"
)

// refsOf returns the objects that a pod refers to and may still need, each once, including optional
// ones, which are used if they exist.
func refsOf(p *v1.Pod) []Ref {
	// The objects of a mirror pod come from the source of its static pod, and a pod that has ended
	// starts nothing.
	if podmeta.IsMirror(p) || podmeta.IsTerminal(p.Status.Phase) {
		return nil
	}
	var out []Ref
	for _, r := range podmeta.References(p) {
		out = append(out, Ref{r.Kind, p.Namespace, r.Name})
	}
	return out
}
