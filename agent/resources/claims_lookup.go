package resources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/dra"
	"github.com/nodewright/nodewright/podmeta"
)

// ClaimLookup provides a dra.Manager with the ResourceClaims of the agent's sources: claims in
// manifests, and claims of the API server that pods of this node use. Pass the same zero value to
// dra.Config and to ClaimsConfig; Join of the part connects it to the agent.
//
// A claim that is not reserved counts as reserved for every pod of its namespace that refers to
// it in a manifest, since such pods have no scheduler that would reserve it. For pods of the API
// server, only a reservation counts.
type ClaimLookup struct {
	from atomic.Pointer[sources]
}

// sources provides the pods and claims of an agent.
type sources struct {
	part.Pods
	part.Claims
}

var _ dra.Claims = (*ClaimLookup)(nil)

// Claim returns a claim by name. It returns an error if the sources have no such claim, or before
// Join. It reads memory only.
func (l *ClaimLookup) Claim(_ context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	from := l.from.Load()
	if from == nil {
		return nil, errors.New("the agent has not started yet; ResourceClaims are unknown")
	}
	c := from.ResourceClaims(namespace)[name]
	if c == nil {
		return nil, fmt.Errorf("no ResourceClaim %s is known in namespace %s", name, namespace)
	}
	if len(c.Status.ReservedFor) > 0 {
		return c, nil
	}
	reserved := *c
	for _, p := range from.Pods.Pods() {
		if p.Namespace == namespace && names(p, name) && !podmeta.IsScheduled(p) {
			reserved.Status.ReservedFor = append(reserved.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
				Resource: "pods", Name: p.Name, UID: p.UID,
			})
		}
	}
	return &reserved, nil
}

// names reports whether a pod refers to a claim by name.
func names(pod *v1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.ResourceClaims, func(rc v1.PodResourceClaim) bool {
		return rc.ResourceClaimName != nil && *rc.ResourceClaimName == claim
	})
}
