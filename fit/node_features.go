package fit

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// Undeclared returns those of names that the node does not declare. If Node.Features is nil, it
// returns none. names is not modified.
func (p *Node) Undeclared(names []string) []string {
	if p.Features == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(p.Features, n) })
}

// features rejects pods that need a feature that the node does not declare.
func (p *Node) features(pod *v1.Pod, _ []*v1.Pod) *Rejection {
	if p.Features == nil {
		return nil
	}
	lacks := p.Undeclared(podmeta.FeaturesOf(pod))
	if len(lacks) == 0 {
		return nil
	}
	return &Rejection{Reason: "PodFeatureUnsupported", Final: true, Message: "pod needs features that the node does not declare: " + strings.Join(lacks, ", ")}
}
