package kubeapi

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/internal/retry"
)

// The kubelet's back-off of registration.
const (
	firstRegister = 100 * time.Millisecond
	lastRegister  = 7 * time.Second
)

// startup has the times at which the registration that created the Node began and ended.
type startup struct{ began, ended time.Time }

// register creates the Node, or adopts an existing one. It tries again until ctx ends.
func (r *reporter) register(ctx context.Context) {
	began, told := time.Now(), ""
	wait := retry.Backoff{First: firstRegister, Max: lastRegister}
	for {
		created, err := r.registerOnce(ctx)
		r.asked()
		if err == nil {
			r.cfg.Log.Info("registered the node", zap.Bool("created", created))
			r.dirty = true
			if created && r.begun.began.IsZero() {
				r.begun = startup{began, time.Now()}
			}
			return
		}
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != told {
			told = text
			r.cfg.Log.Error("failed to register node, trying again", zap.Error(err))
		}
		d := wait.Next()
		if d > time.Second {
			r.cfg.API.CloseConnections()
		}
		retry.Sleep(ctx, d)
	}
}

// registerOnce tries once, and reports whether it created the Node.
func (r *reporter) registerOnce(ctx context.Context) (created bool, err error) {
	fresh := r.fresh()
	events := r.fill(fresh)
	got := &v1.Node{}
	err = r.cfg.API.Create(ctx, Nodes, Key{Name: fresh.Name}, fresh, got)
	if err == nil {
		r.see(got)
		r.cfg.Status.Reported()
		for _, e := range events {
			r.event(e)
		}
		return true, nil
	}
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) {
		return false, fmt.Errorf("create the Node: %w", err)
	}
	have := &v1.Node{}
	if gerr := r.cfg.API.Get(ctx, Nodes, Key{Name: fresh.Name}, have); gerr != nil {
		return false, fmt.Errorf("get after failed create (%w): %w", err, gerr)
	}
	r.see(have)
	want := have.DeepCopy()
	freshDevices := r.cfg.FreshDevices != nil && r.cfg.FreshDevices()
	if !reconcileNode(want, fresh, freshDevices) {
		return false, nil
	}
	if _, err := r.patch(ctx, have, want); err != nil {
		return false, fmt.Errorf("update the Node: %w", err)
	}
	return false, nil
}

// fresh returns the Node as register would create it now.
func (r *reporter) fresh() *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: r.cfg.Name, Labels: ownLabels(r.cfg.Hostname, r.cfg.Labels), Annotations: map[string]string{}},
		Spec:       v1.NodeSpec{ProviderID: r.cfg.ProviderID, Taints: taints(r.cfg.Taints, r.cfg.ExternalProvider)},
	}
	if r.cfg.ControllerAttach {
		n.Annotations[annotationAttach] = "true"
	}
	return n
}
