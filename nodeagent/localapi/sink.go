package localapi

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/statusmgr"
)

// sink publishes statuses in the API, and passes them to the node's own sink, which
// stores them over a restart: the API has statuses of running pods only in memory.
type sink struct {
	api  *localapi.Server
	next statusmgr.Sink // nil: they are not stored
}

var _ statusmgr.Loader = (*sink)(nil)

func (s *sink) Update(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	var err error
	if s.next != nil {
		err = s.next.Update(ctx, pod, status)
	}
	shown := s.api.Update(ctx, pod, status)
	if !podmeta.IsScheduled(pod) && errors.Is(shown, statusmgr.ErrGone) {
		shown = nil // another pod has the name, or the manifest was removed while no agent ran
	}
	return errors.Join(err, shown)
}

func (s *sink) Delete(ctx context.Context, pod *v1.Pod) error {
	err := s.api.Delete(ctx, pod)
	if err != nil && !errors.Is(err, statusmgr.ErrGone) {
		return err
	}
	if s.next != nil {
		return s.next.Delete(ctx, pod)
	}
	return err
}

// Load returns the statuses of the node's own sink, and publishes them.
func (s *sink) Load(ctx context.Context) (map[types.UID]v1.PodStatus, error) {
	l, ok := s.next.(statusmgr.Loader)
	if !ok {
		return nil, nil //nolint:nilnil // nothing is kept
	}
	kept, err := l.Load(ctx)
	s.api.Restore(kept)
	return kept, err
}

// Prune drops pods that are gone from the API and from the node's own sink.
func (s *sink) Prune(keep map[types.UID]bool) error {
	if err := s.api.Prune(keep); err != nil {
		return err
	}
	if p, ok := s.next.(interface {
		Prune(keep map[types.UID]bool) error
	}); ok {
		return p.Prune(keep)
	}
	return nil
}
