package agent

import (
	"context"
	"sync"
	"time"

	criapi "k8s.io/cri-api/pkg/apis"
)

// runtimeName is what the runtime calls itself: container IDs of statuses begin
// with it. It is asked once; one that does not answer is "", and asked again
// later.
type runtimeName struct {
	runtime criapi.RuntimeService

	mu    sync.Mutex
	name  string
	asked time.Time
}

// Statuses wait for the answer, and not for long: one without the right name
// beats none.
const (
	runtimeNameTimeout = 2 * time.Second
	runtimeNameAgain   = time.Minute
)

func (r *runtimeName) get(ctx context.Context) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.name == "" && (r.asked.IsZero() || time.Since(r.asked) >= runtimeNameAgain) {
		r.asked = time.Now()
		ctx, cancel := context.WithTimeout(ctx, runtimeNameTimeout)
		defer cancel()
		if v, err := r.runtime.Version(ctx, ""); err == nil {
			r.name = v.GetRuntimeName()
		}
	}
	return r.name
}
