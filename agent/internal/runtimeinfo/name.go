package runtimeinfo

import (
	"context"
	"sync"
	"time"

	criapi "k8s.io/cri-api/pkg/apis"
)

// Name caches the name of the runtime, with which the container IDs in statuses begin. The name
// is read once. If the runtime does not answer, the name is "" and is read again later.
type Name struct {
	Runtime criapi.RuntimeService

	mu    sync.Mutex
	name  string
	asked time.Time
}

// Statuses wait only briefly for the name: a status without it is better than none.
const (
	nameTimeout = 2 * time.Second
	nameAgain   = time.Minute
)

// Get returns the name, or "" if the runtime has not answered yet.
func (r *Name) Get(ctx context.Context) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.name == "" && (r.asked.IsZero() || time.Since(r.asked) >= nameAgain) {
		r.asked = time.Now()
		ctx, cancel := context.WithTimeout(ctx, nameTimeout)
		defer cancel()
		if v, err := r.Runtime.Version(ctx, ""); err == nil {
			r.name = v.GetRuntimeName()
		}
	}
	return r.name
}
