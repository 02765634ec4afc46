package podsync

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// Pauses between two reads of an attachment while the node's object does not
// change.
const (
	firstLook = 500 * time.Millisecond
	lastLook  = 15 * time.Second
)

// resourceExhausted is gRPC's code for a limit that is reached.
const resourceExhausted = 8

// NodeChanged wakes the callers that wait for an attachment.
func (s *Storage) NodeChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.node)
	s.node = make(chan struct{})
}

// Wait waits until a volume is attached to the node.
func (s *Storage) Wait(ctx context.Context, a plugins.Attachment, note func(string)) (map[string]string, error) {
	pause := retry.Backoff{First: firstLook, Max: lastLook, Jitter: 0.2}
	why := ""
	for {
		s.mu.Lock()
		changed := s.node
		s.mu.Unlock()
		done, metadata, what, err := s.look(ctx, a)
		if done || err != nil {
			return metadata, err
		}
		if what != why {
			why = what
			note(what)
		}
		t := time.NewTimer(pause.Next())
		select {
		case <-ctx.Done():
		case <-changed:
			pause.Reset()
		case <-t.C:
		}
		t.Stop()
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("waits for %s: %w", why, err)
		}
	}
}

// look reports whether a volume is attached. If it is not, what says why the caller has to wait.
func (s *Storage) look(ctx context.Context, a plugins.Attachment) (done bool, metadata map[string]string, what string, err error) {
	node, live := s.cfg.Node()
	if node == nil || !live || !slices.Contains(node.Status.VolumesInUse, a.Volume) {
		return false, nil, "the node's status to say that the volume is in use", nil
	}
	o := &storagev1.VolumeAttachment{}
	err = s.cfg.Client.Get(ctx, kubeapi.VolumeAttachments, kubeapi.Key{Name: a.Name}, o)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil, "a controller to make VolumeAttachment " + a.Name, nil
	case err != nil:
		return false, nil, fmt.Sprintf("the API server: %.256s", err.Error()), nil
	case o.Spec.NodeName != "" && o.Spec.NodeName != s.cfg.NodeName:
		return false, nil, "", fmt.Errorf("VolumeAttachment is for node %.253q; want %s", o.Spec.NodeName, s.cfg.NodeName)
	case o.DeletionTimestamp != nil:
		return false, nil, "a controller to attach the volume again, which it is about to detach", nil
	}
	if e := o.Status.AttachError; e != nil && !o.Status.Attached {
		if e.ErrorCode != nil && *e.ErrorCode == resourceExhausted {
			return false, nil, "", fmt.Errorf("%w: %.1024s", plugins.ErrExhausted, e.Message)
		}
		return false, nil, fmt.Sprintf("attacher %s, which says: %.1024s", o.Spec.Attacher, e.Message), nil
	}
	attached := slices.ContainsFunc(node.Status.VolumesAttached, func(v v1.AttachedVolume) bool { return v.Name == a.Volume })
	if !o.Status.Attached || !attached {
		return false, nil, "attacher " + o.Spec.Attacher, nil
	}
	return true, o.Status.AttachmentMetadata, "", nil
}
